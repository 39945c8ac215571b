"""The files of one lane as a reader finds them: never locked, and never trusted beyond what the index says.

A segment exists once its index has a whole header. In the newest segment, entries that are torn, or whose line is not
in the data file, are not there yet. In an older one the same is damage, and an error for whoever reads that range.

A header that is whole but wrong is damage of that segment's records in any segment. The extent of the lane stands all
the same, since neither the number of entries nor their sizes come from the header: so the other segments and lanes stay
readable, who has to read the damaged range gets an error that names it, and who may go on without it can count it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dspark_json.errors import SpoolCorruptError
from dspark_json.spool import layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FilesVanishedError(Exception):
    """A file was there when the lane was listed and is not now; never leaves the package: the lane is listed again."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a lane: records from ``first_seq`` to below ``next_seq``, lines up to ``end`` bytes.

    For an older segment ``next_seq`` is the first number of the one after it, whatever its own index says.
    """

    spool_id: str
    lane: Path
    first_seq: int
    next_seq: int
    end: int
    newest: bool

    @property
    def data(self) -> Path:
        """The path of the data file."""
        return layout.data_path(self.lane, self.first_seq)

    @property
    def index(self) -> Path:
        """The path of the index file."""
        return layout.index_path(self.lane, self.first_seq)

    def entries(self, start: int, stop: int) -> layout.IndexColumns:
        """The index entries of the records from ``start`` to below ``stop``, all of this segment.

        Returns at least one, and fewer than asked for only where an older segment's index ends too soon. Raises
        ``SpoolCorruptError`` where ``start`` is missing, where an older index holds more than its records, or where
        the header is none of this segment's.
        """
        with opened(self.index) as descriptor:
            problem = layout.header_problem(os.pread(descriptor, layout.HEADER_BYTES, 0), self.first_seq)
            if problem is not None:
                raise self.damage(start, self.index, problem)
            held = layout.whole_entries(os.fstat(descriptor).st_size)
            raw = os.pread(descriptor, (stop - start) * layout.ENTRY_BYTES, layout.index_size(start - self.first_seq))
        columns = layout.unpack_entries(raw)
        if self.newest:
            if len(columns) < stop - start:
                raise FilesVanishedError  # cut by a writer since the lane was listed
        elif held > self.next_seq - self.first_seq or not len(columns):
            what = f"has {held} records, but the next segment begins after {self.next_seq - self.first_seq}"
            raise self.damage(min(start, self.next_seq), self.index, what)
        return columns

    def end_before(self, seq: int) -> int:
        """The position in the data file where the record ``seq`` begins."""
        return 0 if seq == self.first_seq else self.entries(seq - 1, seq).ends[0]

    def damage(self, seq: int, path: Path, what: str) -> SpoolCorruptError:
        """The error for a record of this segment that can't be read."""
        return SpoolCorruptError(
            f"spool {self.spool_id}, lane {self.lane.name}, record {seq}: {path} {what}",
            remedy="The file was changed by something else than the hook, or its disk is failing; "
            "failOnDataLoss=false goes on after what is lost.",
        )


@dataclass(frozen=True, slots=True)
class LaneFiles:
    """The segments of a lane, oldest first; at least one, without a gap in their numbers."""

    segments: tuple[Segment, ...]

    @property
    def first(self) -> int:
        """The oldest number still there."""
        return self.segments[0].first_seq

    @property
    def next(self) -> int:
        """The number after the last record."""
        return self.segments[-1].next_seq

    def holding(self, seq: int) -> Segment:
        """The segment of the record ``seq``, which must be from ``first`` to below ``next``."""
        return self.segments[bisect_right(self.segments, seq, key=lambda segment: segment.first_seq) - 1]


def lane_names(spool: Path) -> list[str]:
    """The lanes of a spool, in order; empty where the folder is not there."""
    try:
        with os.scandir(spool / layout.LANES_FOLDER) as entries:
            return sorted(entry.name for entry in entries if layout.is_lane_name(entry.name) and entry.is_dir())
    except FileNotFoundError:
        return []


def segment_seqs(lane: Path) -> list[int]:
    """The first numbers of the segments of a lane that have an index, in order; what is no file of ours is left out."""
    with os.scandir(lane) as entries:
        return sorted(seq for entry in entries if (seq := layout.index_seq(entry.name)) is not None and entry.is_file())


def list_lane(spool_id: str, lane: Path) -> LaneFiles | None:
    """Look at a lane: names, sizes and the end of the newest index; no data is read. None where it has no segment yet.

    Raises ``FilesVanishedError`` where retention was at work meanwhile (look again), ``OSError`` where the operating
    system refuses.
    """
    seqs = segment_seqs(lane)
    while seqs:
        newest = _newest(spool_id, lane, seqs[-1])
        if newest is not None:
            break
        seqs.pop()
    else:
        return None
    older = tuple(
        Segment(spool_id, lane, first, following, _size(lane, first), newest=False)
        for first, following in pairwise(seqs)
    )
    return LaneFiles((*older, newest))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file open for reading; ``FilesVanishedError`` where it is not there (any more)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FilesVanishedError from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _newest(spool_id: str, lane: Path, first_seq: int) -> Segment | None:
    """The newest segment as far as it can be trusted; None while its header is not whole."""
    path = layout.index_path(lane, first_seq)
    with opened(path) as index:
        size = os.fstat(index).st_size  # before the data's size: data is written first
        if size < layout.HEADER_BYTES:
            return None
        count = layout.whole_entries(size)
        data_size = _size(lane, first_seq)
        last = layout.unpack_entries(os.pread(index, 2 * layout.ENTRY_BYTES, layout.index_size(max(0, count - 2))))
        tail = min(count, 2)
        if layout.fitting_prefix(last.ends[:tail], data_size, 0) == tail:
            return Segment(
                spool_id, lane, first_seq, first_seq + count, last.ends[tail - 1] if count else 0, newest=True
            )
        columns = layout.unpack_entries(os.pread(index, count * layout.ENTRY_BYTES, layout.HEADER_BYTES))
    count = layout.fitting_prefix(columns.ends, data_size)
    return Segment(spool_id, lane, first_seq, first_seq + count, columns.ends[count - 1] if count else 0, newest=True)


def _size(lane: Path, first_seq: int) -> int:
    """The size of a data file; 0 where only its index is there, which whoever reads it will report."""
    try:
        return layout.data_path(lane, first_seq).stat().st_size
    except FileNotFoundError:
        if layout.index_path(lane, first_seq).exists():
            return 0
        raise FilesVanishedError from None  # retention removes the index first
