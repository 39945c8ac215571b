"""The schemas that the servers of a stream have registered (DESIGN §5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.schema.registry import RegisteredSchema
from dspark_json.source.discovery import Discovery, FoundSpool
from dspark_json.spool.layout import SCHEMAS_FOLDER

if TYPE_CHECKING:
    from dspark_json.source.settings import ReaderSettings

__all__ = ["ReadSchemas", "RegisteredSchemas", "ask_for_schemas"]

# Gives the registry documents of a spool.
ReadSchemas = Callable[[FoundSpool], Iterable[Mapping[str, Any]]]

_NS: Final = 1_000_000_000
# A folder that changed this recently may change again without showing it: its time of change has coarse ticks.
_SETTLED_NS: Final = 2 * _NS


def ask_for_schemas(settings: ReaderSettings) -> list[RegisteredSchema]:
    """What all servers have registered now; every one of them must answer."""
    discovery = Discovery(settings.addresses, local=settings.local, key=settings.key, timeout_s=settings.timeout_s)
    survey = discovery.look({})
    for error in survey.down.values():
        raise error
    return RegisteredSchemas(discovery.schemas, ttl_s=0.0).look(survey.spools.values())


@dataclass(frozen=True, slots=True)
class _Look:
    """What a spool had registered, when that was read (monotonic ns), and when its folder had last changed (ns)."""

    schemas: tuple[RegisteredSchema, ...]
    read_at: int
    changed_at: int | None


class RegisteredSchemas:
    """The schemas that the servers of a stream have registered, read no more often than needed.

    A folder's are read when it has changed, those behind HTTP when the last answer is older than ``ttl_s``.
    """

    def __init__(self, read: ReadSchemas, *, ttl_s: float) -> None:
        """``read`` gives the registry documents of a spool."""
        self._read = read
        self._ttl_ns = round(ttl_s * _NS)
        self._looks: dict[str, _Look] = {}

    def look(self, spools: Iterable[FoundSpool]) -> list[RegisteredSchema]:
        """All schemas, each hash once, in the order in which they were first seen."""
        by_hash: dict[str, RegisteredSchema] = {}
        for found in spools:
            for one in self._of(found):
                known = by_hash.get(one.hash)
                if known is None or one.first_seen < known.first_seen:
                    by_hash[one.hash] = one
        return sorted(by_hash.values(), key=lambda one: (one.first_seen, one.hash))

    def _of(self, found: FoundSpool) -> tuple[RegisteredSchema, ...]:
        spool_id = found.offsets.spool_id
        last = self._looks.get(spool_id)
        changed_at = _changed_at(found)
        if last is not None and self._holds(last, changed_at):
            return last.schemas
        schemas = tuple(RegisteredSchema.from_document(document) for document in self._read(found))
        settled = changed_at is not None and time.time_ns() - changed_at > _SETTLED_NS
        self._looks[spool_id] = _Look(schemas, time.monotonic_ns(), changed_at if settled else None)
        return schemas

    def _holds(self, last: _Look, changed_at: int | None) -> bool:
        if changed_at is not None:
            return changed_at == last.changed_at
        return time.monotonic_ns() - last.read_at < self._ttl_ns


def _changed_at(found: FoundSpool) -> int | None:
    """When a spool's folder of schemas last changed; ``None`` for one that is read over HTTP."""
    if found.folder is None:
        return None
    try:
        return (Path(found.folder) / SCHEMAS_FOLDER).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
