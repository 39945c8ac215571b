"""The read side of a spool folder (DESIGN §3): extents, index and records, without a lock and without a copy.

Damage is an error of the records it meets, and of nothing else: see ``lane_files``.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import time
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dspark_json.errors import (
    BeyondEndError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.spool import layout
from dspark_json.spool.access import (
    DEFAULT_CHUNK_BYTES,
    Chunk,
    IndexSlice,
    LaneExtent,
    SpoolAccess,
    SpoolOffsets,
)
from dspark_json.spool.checksums import first_damaged
from dspark_json.spool.data_range import DataRange, first_bad
from dspark_json.spool.lane_files import FilesVanishedError, LaneFiles, Segment, lane_names, list_lane, opened
from dspark_json.spool.os_errors import reading_failed
from dspark_json.spool.schema_uses import documents_with_uses, sum_schema_uses
from dspark_json.spool.schemas import SchemaStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Chunk", "IndexSlice", "LaneExtent", "SpoolAccess", "SpoolOffsets", "SpoolReader", "StoredLines"]

_ATTEMPTS: Final = 50
_EMPTY_ATTEMPTS: Final = 3
_MAX_CHUNK_RECORDS: Final = 65_536

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StoredLines:
    """The lines of consecutive records up to below ``next_seq``, still in their file."""

    next_seq: int
    data: DataRange


class SpoolReader:
    """Reads a spool through its folder; safe from any thread, holds nothing open between calls."""

    def __init__(self, folder: Path, *, spool_id: str | None = None) -> None:
        """Look at the spool in ``folder``.

        Raises ``SpoolNotFoundError``, ``SpoolPermissionError`` or ``SpoolFormatError``; ``SpoolReplacedError`` where
        it is not the spool ``spool_id``.
        """
        self.folder = folder
        self.identity = layout.read_identity(folder)
        if spool_id is not None and self.identity.spool_id != spool_id:
            raise _replaced(folder, spool_id, self.identity.spool_id)

    def offsets(self) -> SpoolOffsets:
        """The extents of all lanes; lanes in which nothing was begun yet are left out."""
        try:
            names = lane_names(self.folder)
        except OSError as error:
            raise reading_failed(self.folder, error) from error
        lanes = {}
        for name in names:
            try:
                lanes[name] = self._look(name, _extent)
            except LaneNotFoundError:
                continue
        self._check_identity()
        return SpoolOffsets(self.identity.spool_id, lanes)

    def index(self, lane: str, start: int, stop: int) -> IndexSlice:
        """The index entries of the records from ``start`` to below ``stop`` (or the end of the lane).

        Errors as in ``SpoolAccess``; ``SpoolCorruptError`` where an older segment is not whole.
        """
        return self._look(lane, lambda files: _index(files, start, _clamped(files, start, stop)))

    def read(self, lane: str, start: int, stop: int, *, max_bytes: int = DEFAULT_CHUNK_BYTES) -> Chunk:
        """At least one record of a range, its checksums verified; the buffer is the mapped file.

        Ends before ``stop`` at ``max_bytes``, at the end of a segment, and after 65,536 records. Errors as in
        ``SpoolAccess``; ``SpoolCorruptError`` names a record that is damaged. A file that something else than the hook
        makes shorter later kills the process that touches the buffer; a server takes ``lines``.
        """
        return self._look(lane, lambda files: _chunk(_span(files, start, stop, max_bytes)))

    def lines(self, lane: str, start: int, stop: int, *, max_bytes: int = DEFAULT_CHUNK_BYTES) -> StoredLines:
        """The same records as ``read`` gives, their checksums verified, without mapping a file or holding the bytes."""
        return self._look(lane, lambda files: _lines(_span(files, start, stop, max_bytes)))

    def probe(self, lane: str) -> None:
        """Read the first record of each segment of a lane: what can't be opened there is the error of ``read``."""
        self._look(lane, _probe)

    def seek_time(self, lane: str, timestamp_us: int) -> int:
        """The number of the first record appended at or after a time (µs); the next number where there is none.

        Damage is no error here: where only a damaged segment can hold that record, the number is its first one.
        """
        return self._look(lane, lambda files: _seek(files, timestamp_us))

    def schemas(self) -> list[dict[str, Any]]:
        """The documents of the schema registry with ``count`` and ``last_used``, see ``SpoolAccess``."""
        found = documents_with_uses(SchemaStore(self.folder).list(), sum_schema_uses(self.folder))
        self._check_identity()
        return found

    def _look(self, lane: str, use: Callable[[LaneFiles], _T]) -> _T:
        """List a lane and use its files; again while retention takes files away between the two."""
        if not layout.is_lane_name(lane):
            raise _no_lane(self.folder, lane)
        folder = layout.lane_folder(self.folder, lane)
        empty = 0
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(0.0002 * attempt)
            try:
                files = list_lane(self.identity.spool_id, folder)
                if files is None:
                    empty += 1
                    if empty == _EMPTY_ATTEMPTS:
                        break
                    continue
                result = use(files)
            except FilesVanishedError:
                continue
            except (FileNotFoundError, NotADirectoryError):
                break
            except OSError as error:
                raise reading_failed(folder, error) from error
            except (SpoolCorruptError, RecordsExpiredError, BeyondEndError):
                self._check_identity()  # a folder made anew is not damage
                raise
            # The folder may have been made anew: lanes come after spool.json, so a look at it afterwards is enough.
            self._check_identity()
            return result
        self._check_identity()
        raise _no_lane(self.folder, lane)

    def _check_identity(self) -> None:
        try:
            found = layout.read_identity(self.folder).spool_id
        except SpoolNotFoundError:
            raise SpoolNotFoundError(
                f"the spool {self.identity.spool_id} in {self.folder} was removed while it was read",
                remedy="Check that the server runs; it makes a new spool with its next record.",
            ) from None
        if found != self.identity.spool_id:
            raise _replaced(self.folder, self.identity.spool_id, found)


def _extent(files: LaneFiles) -> LaneExtent:
    return LaneExtent(files.first, files.next, sum(segment.end for segment in files.segments))


def _clamped(files: LaneFiles, start: int, stop: int) -> int:
    """The end of a range within a lane; the errors of a range that is not there."""
    lane = files.segments[0].lane
    if stop <= start:
        raise ValueError(f"a range of records from {start} to below {stop} is empty")
    if start < files.first:
        raise RecordsExpiredError(
            f"lane {lane}: record {start} is no longer kept, the oldest one is {files.first}",
            first=files.first,
            remedy="Read sooner or raise DSPARK_RETENTION_MB; failOnDataLoss=false goes on with the oldest one.",
        )
    if start >= files.next:
        raise BeyondEndError(
            f"lane {lane}: record {start} is not written yet, the next one is {files.next}",
            next_seq=files.next,
            remedy="Ask again from the next one on.",
        )
    return min(stop, files.next)


def _index(files: LaneFiles, start: int, stop: int) -> IndexSlice:
    ends: list[int] = []
    appended_at: list[int] = []
    crcs: list[int] = []
    seq = start
    while seq < stop:
        segment = files.holding(seq)
        columns = segment.entries(seq, min(stop, segment.next_seq))
        shift = (ends[-1] if ends else 0) - segment.end_before(seq)
        ends.extend(end + shift for end in columns.ends)
        appended_at.extend(columns.appended_at)
        crcs.extend(columns.crcs)
        seq += len(columns)
    return IndexSlice(start, ends, appended_at, crcs)


@dataclass(frozen=True, slots=True)
class _Span:
    """Records of one segment as its index has them; ``ends`` counts from the first one, which lies at ``begin``."""

    segment: Segment
    first_seq: int
    begin: int
    ends: list[int]
    crcs: list[int]
    appended_at: list[int]

    @property
    def end(self) -> int:
        """The position in the data file after the last record."""
        return self.begin + self.ends[-1]

    def damage(self, position: int, what: str) -> SpoolCorruptError:
        """The error for the record at a position in the span."""
        return self.segment.damage(self.first_seq + position, self.segment.data, what)


def _span(files: LaneFiles, start: int, stop: int, max_bytes: int) -> _Span:
    """What one read of a range gives: at least one record, none beyond the segment, the bytes or 65,536 records."""
    stop = _clamped(files, start, stop)
    segment = files.holding(start)
    stop = min(stop, segment.next_seq, start + _MAX_CHUNK_RECORDS)
    columns = segment.entries(start, stop)
    begin = segment.end_before(start)
    count = max(1, bisect_right(columns.ends, begin + max_bytes))
    appended_at = columns.appended_at[:count].tolist()
    if not layout.is_plausible_time(max(appended_at)):
        bad = next(i for i, moment in enumerate(appended_at) if not layout.is_plausible_time(moment))
        what = f"says that it was written {appended_at[bad]} µs after 1970, which can't be"
        raise segment.damage(start + bad, segment.index, what)
    ends = [end - begin for end in columns.ends[:count]]
    return _Span(segment, start, begin, ends, columns.crcs[:count].tolist(), appended_at)


def _chunk(span: _Span) -> Chunk:
    buffer = _mapped(span)
    bad = first_damaged(buffer, span.ends, span.crcs)
    if bad is not None:
        raise span.damage(bad, "does not match its checksum")
    segment = span.segment
    return Chunk(segment.spool_id, segment.lane.name, span.first_seq, buffer, span.ends, span.appended_at)


def _lines(span: _Span) -> StoredLines:
    with _data_of(span) as descriptor:
        bad = first_bad(descriptor, span.begin, [span.begin + end for end in span.ends], span.crcs)
        if bad is not None:
            raise span.damage(bad, "does not match its checksum")
        return StoredLines(span.first_seq + len(span.ends), DataRange(os.dup(descriptor), span.begin, span.end))


def _probe(files: LaneFiles) -> None:
    for segment in files.segments:
        if segment.first_seq < segment.next_seq:
            _chunk(_span(files, segment.first_seq, segment.first_seq + 1, 1))


def _mapped(span: _Span) -> memoryview:
    """The bytes of a span in its data file, mapped from the page that they begin in."""
    with _data_of(span) as descriptor:
        base = span.begin // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        mapped = _map(descriptor, base, span.end - base)
    return memoryview(mapped)[span.begin - base :]


@contextmanager
def _data_of(span: _Span) -> Iterator[int]:
    """The data file of a span, open, and long enough."""
    segment = span.segment
    try:
        with opened(segment.data) as descriptor:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise span.damage(0, "is not a file")
            if not span.begin < span.end <= found.st_size:
                raise span.damage(0, f"has {found.st_size} bytes, and its index says {span.end} at least")
            yield descriptor
    except FilesVanishedError:
        if segment.index.exists():  # retention removes the index first
            raise span.damage(0, "is missing") from None
        raise


def _map(descriptor: int, offset: int, length: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):  # a chunk then holds no descriptor
        return mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=offset, trackfd=False)
    return mmap.mmap(descriptor, length, access=mmap.ACCESS_READ, offset=offset)


def _seek(files: LaneFiles, timestamp_us: int) -> int:
    damaged: int | None = None  # where the damaged segments right before the one at hand begin
    for segment in files.segments:
        if segment.next_seq == segment.first_seq:
            continue
        try:
            if segment.entries(segment.next_seq - 1, segment.next_seq).appended_at[0] < timestamp_us:
                damaged = None
                continue
            columns = segment.entries(segment.first_seq, segment.next_seq)
        except SpoolCorruptError:
            damaged = segment.first_seq if damaged is None else damaged
            continue
        found = segment.first_seq + bisect_left(columns.appended_at, timestamp_us)
        return found if damaged is None or found > segment.first_seq else damaged
    return files.next if damaged is None else damaged


def _no_lane(folder: Path, lane: str) -> LaneNotFoundError:
    return LaneNotFoundError(
        f"the spool in {folder} has no lane {lane!r}", remedy="Ask for the offsets to see which lanes there are."
    )


def _replaced(folder: Path, wanted: str, found: str) -> SpoolReplacedError:
    return SpoolReplacedError(
        f"{folder} holds the spool {found}, not {wanted}",
        remedy="The folder was made anew (the server's container restarted, or somebody removed it).",
    )
