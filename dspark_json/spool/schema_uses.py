"""How often each registered schema was asked for, and when last; kept in a lane's ``stats.json`` beside the counters."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMAS_MEMBER: Final = "schemas"


@dataclass(frozen=True, slots=True)
class SchemaUse:
    """``count`` requests asked for a schema, the last of them at ``last_used`` (µs since the epoch)."""

    count: int
    last_used: int


class SchemaUses:
    """The uses of schemas by their hashes; adding is safe from any thread."""

    def __init__(self, uses: Mapping[str, SchemaUse] | None = None) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, SchemaUse] = dict(uses or {})

    def add(self, hash: str, at_us: int) -> None:  # noqa: A002 - the field's name
        """One more request asked for the schema."""
        with self._lock:
            old = self._uses.get(hash)
            self._uses[hash] = (
                SchemaUse(1, at_us) if old is None else SchemaUse(old.count + 1, max(old.last_used, at_us))
            )

    def snapshot(self) -> dict[str, SchemaUse]:
        """All uses at one moment."""
        with self._lock:
            return dict(self._uses)


def to_member(uses: Mapping[str, SchemaUse]) -> dict[str, dict[str, int]]:
    """The uses as a member of ``stats.json``: ``{"<hash>": {"count": 3, "last_used": 1795970578000000}}``."""
    return {key: {"count": use.count, "last_used": use.last_used} for key, use in uses.items()}


def from_member(member: object) -> dict[str, SchemaUse]:
    """The uses that such a member tells of; what is broken in it counts as never used."""
    found = {}
    for key, use in member.items() if isinstance(member, dict) else ():
        numbers = [use.get(name) for name in ("count", "last_used")] if isinstance(use, dict) else []
        if [type(number) for number in numbers] == [int, int]:
            found[key] = SchemaUse(*numbers)
    return found


def summed(parts: Iterable[Mapping[str, SchemaUse]]) -> dict[str, SchemaUse]:
    """The uses of several lanes together."""
    total: dict[str, SchemaUse] = {}
    for part in parts:
        for key, use in part.items():
            old = total.get(key, SchemaUse(0, 0))
            total[key] = SchemaUse(old.count + use.count, max(old.last_used, use.last_used))
    return total
