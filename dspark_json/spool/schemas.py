"""The answer schemas seen in requests, one file each in ``<spool>/schemas``, shared by all processes of a server."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.spool import layout
from dspark_json.spool.os_errors import reading_failed, writing_failed
from dspark_json.spool.sharing import share_like_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_SCHEMAS: Final = 1_000
MAX_BYTES: Final = 16 << 20  # a spool is in memory as a rule, and clients choose what they send
_HASH: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_FILE_NAME: Final = re.compile(r"([0-9A-Za-z_-]{1,128})\.json")


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One file: its hash (the name) and the document in it (name, JSON Schema, first seen)."""

    hash: str
    document: Mapping[str, Any]


class SchemaStore:
    """Create-once storage of at most 1,000 documents (16 MiB) by hash; safe between threads and processes."""

    def __init__(self, spool: Path) -> None:
        self._folder = spool / layout.SCHEMAS_FOLDER
        self._known: set[str] = set()
        self._sizes: dict[str, int] = {}  # a file never changes once it is there

    def put(self, hash: str, document: Mapping[str, Any]) -> bool:  # noqa: A002 - the field's name
        """Keep ``document`` under ``hash``, unless something is kept there already.

        Returns False where the store is full, so that the document was not kept (count it as ``schema_overflow``).
        Raises ``SpoolWriteError`` where the folder can't be written.
        """
        if hash in self._known:
            return True
        if _HASH.fullmatch(hash) is None:
            raise ValueError(f"a hash is made of letters, digits, - and _, not {hash!r}")
        path = self._folder / f"{hash}.json"
        try:
            self._folder.mkdir(
                mode=layout.FOLDER_MODE, parents=False, exist_ok=True
            )  # a writer made it, if one is open
            if not path.exists():
                raw = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
                names = self._names()
                if len(names) >= MAX_SCHEMAS or self._bytes(names) + len(raw) > MAX_BYTES:
                    return False
                self._create(path, raw)
        except OSError as error:
            raise writing_failed(path, error) from error
        self._known.add(hash)
        return True

    def list(self) -> tuple[StoredSchema, ...]:
        """All documents kept, in the order of their hashes; files that are no documents are left out.

        Raises ``SpoolPermissionError`` where the folder may not be read.
        """
        found = []
        for name in sorted(self._names()):
            try:
                document = json.loads((self._folder / f"{name}.json").read_bytes())
            except (ValueError, RecursionError):
                continue
            except OSError as error:
                raise reading_failed(self._folder / f"{name}.json", error) from error
            if isinstance(document, dict):
                found.append(StoredSchema(name, document))
        return tuple(found)

    def _names(self) -> set[str]:
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise reading_failed(self._folder, error) from error
        return {match[1] for match in map(_FILE_NAME.fullmatch, names) if match is not None}

    def _bytes(self, names: set[str]) -> int:
        for name in names - self._sizes.keys():
            self._sizes[name] = (self._folder / f"{name}.json").stat().st_size
        return sum(self._sizes[name] for name in names)

    @staticmethod
    def _create(path: Path, raw: bytes) -> None:
        # Not the process's id: two containers may have the same one.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{layout.TEMPORARY_SUFFIX}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, layout.FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                share_like_folder(descriptor, path.parent)
                file.write(raw)
            os.link(temporary, path)
        except FileExistsError:
            pass  # another process was first; both have the same document
        finally:
            temporary.unlink(missing_ok=True)
