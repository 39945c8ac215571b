"""How often each registered schema was asked for, and when last; kept in ``stats.json`` beside a lane's counters."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dspark_json.spool import layout
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.stats import STATS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from dspark_json.spool.schemas import StoredSchema

SCHEMAS_MEMBER: Final = "schemas"


class SchemaUse(NamedTuple):
    """``requests`` asked for a schema, the last of them at ``last_used`` (µs since the epoch; 0: none did)."""

    requests: int
    last_used: int


_NEVER: Final = SchemaUse(0, 0)


class SchemaUses:
    """The uses of schemas by their hashes; adding is safe from any thread."""

    def __init__(self, uses: Mapping[str, SchemaUse] | None = None) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, SchemaUse] = dict(uses or {})

    def add(self, hash: str, at_us: int, times: int = 1) -> None:  # noqa: A002 - the field's name
        """So many more requests asked for the schema, the last of them at ``at_us``."""
        with self._lock:
            old = self._uses.get(hash, _NEVER)
            self._uses[hash] = SchemaUse(old.requests + times, max(old.last_used, at_us))

    def snapshot(self) -> dict[str, SchemaUse]:
        """All uses at one moment."""
        with self._lock:
            return dict(self._uses)

    def to_member(self) -> dict[str, dict[str, int]]:
        """The uses as ``stats.json`` has them: ``{"<hash>": {"count": 3, "last_used": 1795970578000000}}``."""
        return {key: {"count": use.requests, "last_used": use.last_used} for key, use in self.snapshot().items()}


def load_schema_uses(lane: Path) -> SchemaUses:
    """The uses that a lane's earlier writers left; what is missing or broken counts as none."""
    return SchemaUses(_read(lane))


def sum_schema_uses(spool: Path, *, but: str | None = None) -> dict[str, SchemaUse]:
    """The uses over all lanes of a spool (``but``: without this one), those without a writer too."""
    try:
        names = lane_names(spool)
    except OSError:
        return {}
    return summed(_read(layout.lane_folder(spool, name)) for name in names if name != but)


def summed(parts: Iterable[Mapping[str, SchemaUse]]) -> dict[str, SchemaUse]:
    """The uses of several lanes together."""
    total: dict[str, SchemaUse] = {}
    for part in parts:
        for key, use in part.items():
            old = total.get(key, _NEVER)
            total[key] = SchemaUse(old.requests + use.requests, max(old.last_used, use.last_used))
    return total


def documents_with_uses(stored: Iterable[StoredSchema], uses: Mapping[str, SchemaUse]) -> list[dict[str, Any]]:
    """The documents of the registry, each with its ``hash``, ``count`` and ``last_used``."""
    found = []
    for schema in stored:
        use = uses.get(schema.hash, _NEVER)
        found.append({**schema.document, "hash": schema.hash, "count": use.requests, "last_used": use.last_used})
    return found


def _read(lane: Path) -> dict[str, SchemaUse]:
    try:
        members = json.loads((lane / STATS_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    schemas = members.get(SCHEMAS_MEMBER) if isinstance(members, dict) else None
    found = {}
    for key, use in schemas.items() if isinstance(schemas, dict) else ():
        count, last_used = (use.get("count"), use.get("last_used")) if isinstance(use, dict) else (None, None)
        if isinstance(count, int) and isinstance(last_used, int):
            found[key] = SchemaUse(count, last_used)
    return found
