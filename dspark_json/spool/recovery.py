"""Putting a lane in order after its writer ended, however it ended (DESIGN §3, "Recovery").

A process that is killed leaves the page cache whole: at most the last write is cut short, and a look at the end of the
newest segment is enough. After a crash of the host any page may be missing, so every checksum of the lane is verified.

Where damaged records are cut, good ones behind them go too. A reader may have those mapped, and a mapped file that
shrinks kills the reader, so only their index entries are cut away: without these the lines don't exist. Their bytes
stay as long as the segment, since such a lane is never written again (see ``lane``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolFormatError
from dspark_json.spool import layout
from dspark_json.spool.data_range import first_bad
from dspark_json.spool.files import replace_file, sync_folder
from dspark_json.spool.lane_files import segment_seqs
from dspark_json.spool.sharing import share_like_folder

if TYPE_CHECKING:
    from pathlib import Path

LAST_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane after recovery: its newest segment and what it holds.

    ``count`` and ``end`` (bytes) are of the newest segment; ``newest_at`` (µs) is the latest time in the lane.
    ``intact`` is False where records that a reader may have seen are gone: the lane's next numbers may have been
    given before, and must not be given again.
    """

    first_seq: int
    count: int
    end: int
    newest_at: int
    intact: bool


@dataclass(frozen=True, slots=True)
class _Segment:
    first_seq: int
    index: Path
    data: Path


def recover_lane(lane: Path, *, verify_all: bool, retired: bool = False) -> LaneState | None:
    """Cut a lane back to its longest good prefix; None where it holds no segment.

    The caller holds the lane's lock. ``verify_all`` is for a lane whose writer ended with the host, ``retired`` for one
    that was damaged before and is only kept for readers. Raises ``SpoolFormatError`` (the lane is left alone) for an
    index of another format, ``OSError`` where files can't be cut.
    """
    segments = _sweep(lane, keep_torn=verify_all)
    if not segments:
        return None
    if not verify_all:
        return _cut(lane, segments[-1], last=LAST_ENTRIES, retired=retired)
    state = _cut(lane, segments[0], last=None)
    for position, segment in enumerate(segments[1:], start=1):
        if not state.intact or segment.first_seq != state.first_seq + state.count:
            for later in reversed(segments[position:]):  # newest first: a kill in between leaves no gap
                _remove(later)
            state = replace(state, intact=False)
            break
        before, state = state, _cut(lane, segment, last=None)
        state = replace(state, newest_at=max(before.newest_at, state.newest_at))
    sync_folder(lane)
    return state


def _sweep(lane: Path, *, keep_torn: bool) -> list[_Segment]:
    """The lane's segments, oldest first; what a kill left half made or half deleted is removed.

    A segment whose index has no whole header never existed for a reader. After a crash of the host it may have
    (``keep_torn``), and its name still says which numbers are taken.
    """
    names = {path.name for path in lane.iterdir()}
    segments = []
    for name in sorted(names):
        first_seq = layout.index_seq(name)
        if first_seq is None:
            continue
        segment = _Segment(first_seq, lane / name, layout.data_path(lane, first_seq))
        if segment.index.stat().st_size < layout.HEADER_BYTES and not keep_torn:
            _remove(segment)
        else:
            segments.append(segment)
    kept = {segment.data.name for segment in segments}
    for name in names:
        orphan = layout.data_seq(name) is not None and name not in kept
        if orphan or (name.startswith(".") and name.endswith(layout.TEMPORARY_SUFFIX)):
            (lane / name).unlink(missing_ok=True)
    return segments


def _remove(segment: _Segment) -> None:
    segment.index.unlink(missing_ok=True)
    segment.data.unlink(missing_ok=True)


def _cut(lane: Path, segment: _Segment, *, last: int | None, retired: bool = False) -> LaneState:
    """Cut one segment to its longest good prefix; ``last`` is how many of its last checksums to verify (None: all)."""
    raw = segment.index.read_bytes()
    try:
        created = layout.unpack_header(raw[: layout.HEADER_BYTES], segment.index, segment.first_seq)
    except SpoolFormatError:
        if last is not None:
            raise
        return _emptied(lane, segment)
    columns = layout.unpack_entries(raw[layout.HEADER_BYTES :])
    data = os.open(segment.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, layout.FILE_MODE)
    try:
        share_like_folder(data, lane)
        size = os.fstat(data).st_size
        count = _good(data, columns, layout.fitting_prefix(columns.ends, size), last)
        end = columns.ends[count - 1] if count else 0
        if len(raw) != layout.index_size(count):
            os.truncate(segment.index, layout.index_size(count))
        intact = count == len(columns)
        if size != end and intact and not retired:
            os.ftruncate(data, end)  # a line that was never committed
        if last is None:
            os.fsync(data)
            with segment.index.open("rb") as index:
                os.fsync(index.fileno())
    finally:
        os.close(data)
    newest_at = columns.appended_at[count - 1] if count else _newest_before(lane, segment.first_seq)
    return LaneState(segment.first_seq, count, end, max(newest_at, created), intact)


def _emptied(lane: Path, segment: _Segment) -> LaneState:
    """A segment whose index did not survive the host: nothing in it can be trusted but its name."""
    created = _newest_before(lane, segment.first_seq)
    replace_file(segment.index, layout.pack_header(segment.first_seq, created), durable=True)
    replace_file(segment.data, b"", durable=True)
    return LaneState(segment.first_seq, 0, 0, created, intact=False)


def _good(data: int, columns: layout.IndexColumns, count: int, last: int | None) -> int:
    """How many of the first ``count`` records are good: looks at the last ones, further back while bad ones show."""
    while count:
        start = 0 if last is None else max(0, count - last)
        begin = columns.ends[start - 1] if start else 0
        bad = first_bad(data, begin, columns.ends[start:count], columns.crcs[start:count])
        if bad is None:
            return count
        if last is None:
            return bad
        count = start + bad
    return 0


def _newest_before(lane: Path, first_seq: int) -> int:
    """The time of the last record before ``first_seq`` that is still there; 0 where there is none."""
    for seq in reversed(segment_seqs(lane)):
        if seq >= first_seq:
            continue
        with layout.index_path(lane, seq).open("rb") as file:
            raw = file.read()
        columns = layout.unpack_entries(raw[layout.HEADER_BYTES :])
        if len(columns):
            return columns.appended_at[-1]
    return 0
