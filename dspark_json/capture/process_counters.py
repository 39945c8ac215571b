"""What a server's process has counted, whatever becomes of the lane that it writes: never less than it told before."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dspark_json.spool.lane import lane_identity
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.layout import lane_folder
from dspark_json.spool.stats import Counters, load_counters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dspark_json.spool.writer import LaneWriter

__all__ = ["ProcessCounters"]


class ProcessCounters:
    """The counts of this process, and with them those of its spool's other lanes; safe from any thread.

    While a lane is open they are the lane's, and so in its ``stats.json``. Where the lane's files are taken away from
    under the server, or can't be written, they go on, and into the next lane that is opened: a counter that begins anew
    while its process lives would look like a restart, and what was lost until then like nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writer: LaneWriter | None = None
        self._between = Counters()  # what is counted while no lane is open, and what the lane before that one had
        self._left: tuple[int, int] | None = None  # the lane that it had; its stats.json may still be there
        self._others: dict[str, int] = {}  # the most that the other lanes together were seen to have

    def add(self, name: str, n: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            (self._between if self._writer is None else self._writer.counters).add(name, n)

    def enter(self, writer: LaneWriter) -> None:
        """Count in a lane that was opened, on top of what it and this process have counted."""
        with self._lock:
            found = writer.counters.snapshot()
            own = self._between.snapshot()
            if writer.lane_identity == self._left:  # what it has was counted here
                own = {name: max(0, value - found.get(name, 0)) for name, value in own.items()}
            else:
                self._others = {name: max(0, value - found.get(name, 0)) for name, value in self._others.items()}
            for name, value in own.items():
                writer.counters.add(name, value)
            self._between, self._left, self._writer = Counters(), None, writer

    def leave(self, writer: LaneWriter) -> None:
        """Count without a lane: this one is gone, or closed."""
        with self._lock:
            if self._writer is not writer:
                return
            self._between, self._left, self._writer = Counters(writer.counters.snapshot()), writer.lane_identity, None

    def total(self, folder: Path | None) -> dict[str, int]:
        """The sum over this process and the other lanes of the spool in ``folder``, as their writers last told it.

        What other lanes had counts on where their files are gone: their writers take it along into new ones.
        """
        while True:
            with self._lock:
                writer, left = self._writer, self._left
            others = {} if folder is None else _others(folder, writer, left)
            with self._lock:
                if self._writer is not writer:  # its lane was one of the others, or the other way round
                    continue
                for name, value in others.items():
                    self._others[name] = max(value, self._others.get(name, 0))
                total = (self._between if writer is None else writer.counters).snapshot()
                for name, value in self._others.items():
                    total[name] = total.get(name, 0) + value
                return total


def _others(folder: Path, writer: LaneWriter | None, left: tuple[int, int] | None) -> Mapping[str, int]:
    """The sum over the lanes that are neither the writer's nor the one that was left."""
    own = left if writer is None else writer.lane_identity
    total: dict[str, int] = {}
    try:
        names = lane_names(folder)
    except OSError:
        return total  # what this process counted is told all the same
    for name in names:
        lane = lane_folder(folder, name)
        if own is not None and lane_identity(lane) == own:
            continue
        for counter, value in load_counters(lane).snapshot().items():
            total[counter] = total.get(counter, 0) + value
    return total
