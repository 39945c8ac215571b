"""Records of a spool one by one, in the order they were written."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.errors import RecordsExpiredError

if TYPE_CHECKING:
    from dspark_json.spool.reader import SpoolAccess

_CHUNK_BYTES: Final = 1 << 20  # a lane; all lanes of a spool are read side by side


@dataclass(frozen=True, slots=True, order=True)
class StoredRecord:
    """One record; ordered by the time it was written, in µs since 1970."""

    appended_at: int
    lane: str
    seq: int
    line: bytes = field(compare=False)


Lost = Callable[[str, int, int], None]
"""Told of records that retention has deleted: lane, first and one past the last of their numbers."""


def stored_records(access: SpoolAccess, ranges: Mapping[str, tuple[int, int]], lost: Lost) -> Iterator[StoredRecord]:
    """The records of several lanes (numbers from, to), merged by the time they were written."""
    return heapq.merge(*(_lane_records(access, lane, *numbers, lost) for lane, numbers in sorted(ranges.items())))


def _lane_records(access: SpoolAccess, lane: str, start: int, stop: int, lost: Lost) -> Iterator[StoredRecord]:
    seq = start
    while seq < stop:
        try:
            chunk = access.read(lane, seq, stop, max_bytes=_CHUNK_BYTES)
        except RecordsExpiredError as error:
            lost(lane, seq, min(error.first, stop))
            seq = error.first
            continue
        begin = 0
        for number, end in enumerate(chunk.ends):
            yield StoredRecord(chunk.appended_at[number], lane, seq + number, bytes(chunk.buffer[begin:end]))
            begin = end
        seq = chunk.next_seq
