"""A server's command line as GPUStack's ``backend_parameters``.

GPUStack joins the entries of that list to one command line (``gpustack/utils/command.py``): an entry that begins with
an option's name is split as a shell would, JSON behind a ``=`` kept together; every other entry is one word as it is,
without the blanks around it.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final

from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REFUSED", "backend_parameters"]

# What GPUStack sets itself; it refuses the first three.
REFUSED: Final = frozenset({"port", "api-key", "served-model-name", "host"})

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[\w@%+:,./-]+", re.ASCII)
_UNSPLIT: Final = re.compile(r"=[{\[]|[\\\n\r\x1f]")  # what the splitting changes even inside quotes


def backend_parameters(arguments: Mapping[str, object]) -> list[str]:
    """The entries for arguments by name: ``true`` is the name alone, ``false`` nothing, a table JSON, a list values."""
    entries: list[str] = []
    for name, value in arguments.items():
        if _NAME.fullmatch(name) is None:
            raise InvalidOptionError(f'"{name}" is not the name of an argument', remedy="Leave out the dashes.")
        if name.replace("_", "-") in REFUSED:
            raise InvalidOptionError(
                f"the argument {name} can't be set: GPUStack sets it itself", remedy="Leave it out."
            )
        entries += _entries(name, value)
    return entries


def _entries(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    if isinstance(value, dict):
        return [f"--{name}", _json(value)]
    if isinstance(value, list):
        if not value:
            raise InvalidOptionError(f"the argument {name} is an empty list", remedy="Leave it out, or give values.")
        return [f"--{name}", *(_word(name, one) for one in value)]
    text = _text(name, value)
    if _PLAIN.fullmatch(text):
        return [f"--{name}={text}"]
    if _UNSPLIT.search(text):
        if not _is_changed_alone(text):
            return [f"--{name}", text]
        raise _unsayable(name, text)
    return [f"--{name}={shlex.quote(text)}"]


def _word(name: str, value: object) -> str:
    """A value of several, as an entry of its own."""
    text = _json(value) if isinstance(value, dict) else _text(name, value)
    if _is_changed_alone(text):
        raise _unsayable(name, text)
    return text


def _is_changed_alone(text: str) -> bool:
    return not text or text != text.strip() or text.startswith("-")


def _text(name: str, value: object) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidOptionError(
        f"the argument {name} is a {type(value).__name__}", remedy="Allowed are texts, numbers, true, lists and tables."
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _unsayable(name: str, text: str) -> InvalidOptionError:
    return InvalidOptionError(
        f'GPUStack can\'t be given the value "{text}" of {name}: it would split or trim it',
        remedy="Give it as a table (JSON), or without leading dashes, blanks around it and backslashes.",
    )
