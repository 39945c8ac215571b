"""The file that keeps a query's types over its restarts: ``<schemaLocation>/dspark_schema.json`` (DESIGN §5, §6).

::

    {"v": 1, "response_schema": "order", "tool_schema": null, "content_type": "STRUCT<amount: DOUBLE>",
     "tool_type": null, "tools": null, "hashes": ["…"], "history": [{"at": …, "hashes": ["…"], "content_type": "…", …}]}

Types are Spark's DDL with the names of the wire. ``history`` says, oldest first, when (µs since 1970) which schemas
came and what the types were then.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.errors import SchemaLocationError
from dspark_json.spool.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["FILE_NAME", "KeptTypes", "read_location", "write_location"]

FILE_NAME: Final = "dspark_schema.json"
_FORMAT: Final = 1
_LONGEST_HISTORY: Final = 100


@dataclass(frozen=True, slots=True)
class KeptTypes:
    """The types that came from registered schemas, as DDL with the names of the wire, and where they came from.

    ``response_schema`` and ``tool_schema`` are the options' values, ``tools`` the names of the tools that
    ``tool_schema`` means (``None``: any), ``hashes`` all schemas that were seen, in the order in which they came. A
    type is ``None`` where no registered schema gives it.
    """

    response_schema: str | None = None
    tool_schema: str | None = None
    content_type: str | None = None
    tool_type: str | None = None
    tools: tuple[str, ...] | None = None
    hashes: tuple[str, ...] = ()

    def types(self) -> tuple[str | None, str | None]:
        """The two types."""
        return self.content_type, self.tool_type


def read_location(folder: Path) -> KeptTypes | None:
    """What the folder keeps; ``None`` where nothing is kept yet; ``SchemaLocationError`` where it can't be read."""
    document = _document(folder / FILE_NAME)
    if document is None:
        return None
    try:
        tools = document["tools"]
        return KeptTypes(
            _text_or_null(document["response_schema"]),
            _text_or_null(document["tool_schema"]),
            _text_or_null(document["content_type"]),
            _text_or_null(document["tool_type"]),
            None if tools is None else tuple(str(name) for name in tools),
            tuple(str(one) for one in document["hashes"]),
        )
    except (KeyError, TypeError) as error:
        raise _damaged(folder / FILE_NAME, f"{error!s} is not as it should be") from None


def write_location(folder: Path, kept: KeptTypes) -> None:
    """Keep the types in the folder, which is made if it does not exist; the file is replaced as a whole."""
    path = folder / FILE_NAME
    before = _document(path) or {}
    known = before.get("hashes", [])
    entry = {
        "at": time.time_ns() // 1000,
        "hashes": [one for one in kept.hashes if one not in known],
        "content_type": kept.content_type,
        "tool_type": kept.tool_type,
    }
    document = {
        "v": _FORMAT,
        "response_schema": kept.response_schema,
        "tool_schema": kept.tool_schema,
        "content_type": kept.content_type,
        "tool_type": kept.tool_type,
        "tools": None if kept.tools is None else list(kept.tools),
        "hashes": list(kept.hashes),
        "history": [*before.get("history", []), entry][-_LONGEST_HISTORY:],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n", durable=True)
    except OSError as error:
        raise SchemaLocationError(
            f'schemaLocation "{folder}" can\'t be written: {error.strerror}',
            remedy="Give a local folder that the driver may write.",
        ) from None


def _document(path: Path) -> Mapping[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SchemaLocationError(
            f'schemaLocation "{path.parent}" can\'t be read: {error.strerror}',
            remedy="Give a local folder that the driver may read and write.",
        ) from None
    except ValueError as error:
        raise _damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("v") != _FORMAT:
        raise _damaged(path, f'its format "v" is not {_FORMAT}')
    return document


def _text_or_null(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(value)
    return value


def _damaged(path: Path, problem: str) -> SchemaLocationError:
    return SchemaLocationError(
        f"{path} can't be understood: {problem}",
        remedy="Restore it, or delete it to have the types asked of the server again.",
    )
