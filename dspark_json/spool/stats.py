"""Counters of a lane, kept in ``<lane>/stats.json``; any process can give the sum over all lanes."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.spool import layout
from dspark_json.spool.files import replace_file
from dspark_json.spool.lane_files import lane_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STATS_FILE: Final = "stats.json"


class Counters:
    """Named whole numbers that only grow; adding is safe from any thread."""

    def __init__(self, values: Mapping[str, int] | None = None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = dict(values or {})

    def add(self, name: str, n: int = 1) -> None:
        """Add ``n`` to the counter of this name; a name not met before begins at 0."""
        with self._lock:
            self._values[name] = self._values.get(name, 0) + n

    def get(self, name: str) -> int:
        """The value of one counter; 0 where nothing was added."""
        with self._lock:
            return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """All counters at one moment."""
        with self._lock:
            return dict(self._values)


@dataclass(frozen=True, slots=True)
class LaneStats:
    """What a lane's ``stats.json`` tells: None where it can't be read.

    ``written_at`` is in seconds since 1970, None where there is no such file.
    """

    lane: str
    counters: Mapping[str, int] | None
    written_at: float | None


def load_counters(lane: Path) -> Counters:
    """The counters a lane's earlier writers left; empty where the file is missing or broken."""
    return Counters(_read(lane / STATS_FILE))


def save_counters(lane: Path, counters: Counters, schemas: Mapping[str, Mapping[str, int]] | None = None) -> None:
    """Replace ``stats.json`` of a lane, so that a reader sees the old numbers or the new ones.

    ``schemas``: the uses of answer schemas, see ``spool.schema_uses``.
    """
    members = {**counters.snapshot(), **({"schemas": schemas} if schemas else {})}
    raw = json.dumps(members, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    replace_file(lane / STATS_FILE, raw)


def sum_counters(spool: Path) -> dict[str, int]:
    """The sum of each counter over all lanes of a spool, those without a writer too."""
    total: dict[str, int] = {}
    try:
        names = lane_names(spool)
    except OSError:
        return total
    for name in names:
        for counter, value in _read(layout.lane_folder(spool, name) / STATS_FILE).items():
            total[counter] = total.get(counter, 0) + value
    return total


def lane_stats(spool: Path) -> list[LaneStats]:
    """The counters of each lane, and when they were written; raises ``OSError`` where the lanes can't be listed."""
    found = []
    for name in lane_names(spool):
        path = layout.lane_folder(spool, name) / STATS_FILE
        try:
            written_at: float | None = path.stat().st_mtime
        except FileNotFoundError:
            written_at = None
        found.append(LaneStats(name, _parsed(path), written_at))
    return found


def _read(path: Path) -> dict[str, int]:
    return _parsed(path) or {}


def _parsed(path: Path) -> dict[str, int] | None:
    try:
        members = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    return {name: value for name, value in members.items() if isinstance(value, int) and not isinstance(value, bool)}
