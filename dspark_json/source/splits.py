"""The pieces of a micro-batch that tasks read (DESIGN §4)."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SPLIT_BYTES", "LaneRange", "Split", "cut"]

SPLIT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """Records ``start`` (inclusive) to ``stop`` (exclusive) of one lane.

    ``endpoint`` is the server's address (or the folder itself for ``.load(path)``); ``folder`` is where the driver
    found the spool's folder, a hint; ``planned_on`` is the machine (``this_machine``) where the driver
    has found the spool. No key is in here.
    """

    spool_id: str
    lane: str
    start: int
    stop: int
    endpoint: str
    folder: str | None = None
    planned_on: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LaneRange:
    """A lane's share of a batch, before it is cut; ``mean_bytes`` is 0 where nothing is known about sizes."""

    split: Split
    mean_bytes: float = 0.0

    @property
    def records(self) -> int:
        return self.split.stop - self.split.start


def cut(ranges: Sequence[LaneRange], min_partitions: int | None) -> list[Split]:
    """Cut ranges into splits of about ``SPLIT_BYTES``; ``min_partitions`` at least, with that many records."""
    pieces = [min(r.records, max(1, math.ceil(r.records * r.mean_bytes / SPLIT_BYTES))) for r in ranges]
    missing = (min_partitions or 0) - sum(pieces)
    largest = [(-r.records / n, i) for i, (r, n) in enumerate(zip(ranges, pieces, strict=True)) if r.records > n]
    heapq.heapify(largest)
    while missing > 0 and largest:
        i = heapq.heappop(largest)[1]
        pieces[i] += 1
        missing -= 1
        if ranges[i].records > pieces[i]:
            heapq.heappush(largest, (-ranges[i].records / pieces[i], i))
    return [piece for r, n in zip(ranges, pieces, strict=True) for piece in _evenly(r.split, n)]


def _evenly(split: Split, pieces: int) -> list[Split]:
    length = split.stop - split.start
    bounds = [split.start + length * k // pieces for k in range(pieces + 1)]
    return [replace(split, start=bounds[k], stop=bounds[k + 1]) for k in range(pieces)]
