"""Which segments have to go: whole ones, oldest first, by age and by the bytes of the whole spool (DESIGN §3)."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolError
from dspark_json.spool import layout
from dspark_json.spool.claim import claim
from dspark_json.spool.lane import HeldLane
from dspark_json.spool.lane_files import lane_names, segment_seqs
from dspark_json.spool.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from dspark_json.spool.stats import Counters

DEFAULT_BYTES: Final = 512 << 20
_LOGGER = logging.getLogger("dspark_json.spool")
_WARN_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as retention sees it.

    ``bytes`` is of data and index; ``newest_at`` is the time of its last record (µs, 0 without records; where that
    can't be true, when the index was last written), which is its age. ``newest`` marks the last segment of its lane:
    that one is only deleted after another was begun.
    """

    lane: str
    first_seq: int
    records: int
    bytes: int
    newest_at: int
    newest: bool


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """``bytes`` that the whole spool may have; ``age_us``: age above which records go, None for never."""

    bytes: int
    age_us: int | None


def default_bytes(spool: Path) -> int:
    """The size of a spool where none was set: 512 MiB, or a quarter of its file system if that is less."""
    space = os.statvfs(spool)
    return min(DEFAULT_BYTES, space.f_blocks * space.f_frsize // 4)


def survey(spool: Path, left_out: Callable[[str, OSError], None] | None = None) -> list[SegmentFacts]:
    """All segments of all lanes; those that vanish meanwhile are left out.

    A lane or segment that can't be looked at is left out too, and its lane told to ``left_out``; without that the
    error is raised.
    """
    facts: list[SegmentFacts] = []

    @contextmanager
    def looking_at(lane: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            pass
        except OSError as error:
            if left_out is None:
                raise
            left_out(lane, error)

    for lane in lane_names(spool):
        folder = layout.lane_folder(spool, lane)
        seqs: list[int] = []
        with looking_at(lane):
            seqs = segment_seqs(folder)
        for seq in seqs:
            with looking_at(lane):
                facts.append(_facts(folder, seq, newest=seq == seqs[-1]))
    return facts


def oldest_first(segments: Iterable[SegmentFacts]) -> list[SegmentFacts]:
    """The segments that hold records, in the order in which they have to go."""
    return sorted((s for s in segments if s.records), key=lambda s: (s.newest_at, s.lane, s.first_seq))


class Retention:
    """Deletes what a spool may no longer keep, as far as one writer may: its own lane, and lanes without a writer.

    Another lane that is damaged, or that the operating system refuses, is left as it is, with a warning a minute; what
    can be seen of it counts all the same. Counts ``retention_deleted_records`` and ``retention_deleted_bytes``.
    """

    def __init__(self, spool: Path, lane: str, boot_id: str, settings: RetentionSettings, counters: Counters) -> None:
        self._spool = spool
        self._lane = lane
        self._boot_id = boot_id
        self._settings = settings
        self._counters = counters
        self._warned: dict[str, float] = {}

    def run(self, now_us: int) -> int:
        """Delete by age, then by bytes; returns how many lanes the spool has. Raises ``OSError`` for the own lane."""
        segments = survey(self._spool, self._left_alone)
        total = sum(segment.bytes for segment in segments)
        left = []
        for segment in oldest_first(segments):
            is_old = self._settings.age_us is not None and segment.newest_at < now_us - self._settings.age_us
            freed = self._delete(segment, now_us) if is_old else 0
            if not freed:
                left.append(segment)
            total -= freed or 0
        for segment in left:
            if total <= self._settings.bytes:
                break
            freed = self._delete(segment, now_us)
            if freed == 0 and not segment.newest:
                break  # its writer deletes it; going on would take younger records before older ones
            total -= freed or 0
        return len({segment.lane for segment in segments})

    def _delete(self, segment: SegmentFacts, now_us: int) -> int | None:
        """Delete a segment if this writer may; returns the bytes freed, None where a lane without a writer refuses."""
        if segment.lane == self._lane:
            if segment.newest:
                return 0
            self._unlink(layout.lane_folder(self._spool, segment.lane), segment)
            return segment.bytes
        try:
            return self._delete_elsewhere(segment, now_us)
        except (OSError, SpoolError) as error:
            self._left_alone(segment.lane, error)
            return None

    def _delete_elsewhere(self, segment: SegmentFacts, now_us: int) -> int:
        with claim(self._spool, patience=0) as got:  # else a writer that starts now would find the lane taken
            held = HeldLane.take(layout.lane_folder(self._spool, segment.lane)) if got else None
            if held is None:
                return 0
            with held:
                if segment.newest and not self._begin_next(held, segment, now_us):
                    return 0
                self._unlink(held.folder, segment)
                return segment.bytes - (layout.HEADER_BYTES if segment.newest else 0)

    def _begin_next(self, held: HeldLane, segment: SegmentFacts, now_us: int) -> bool:
        """Begin a segment behind the newest one of a lane without a writer; its name keeps the next number."""
        state, _ = held.recover(self._boot_id, now_us)
        if state is None or state.first_seq != segment.first_seq or not state.count:
            return False
        following = OpenSegment.create(held.folder, state.first_seq + state.count, state.newest_at)
        try:
            following.publish()
        except OSError:
            following.discard()
            raise
        following.close()
        return True

    def _unlink(self, lane: Path, segment: SegmentFacts) -> None:
        layout.index_path(lane, segment.first_seq).unlink(missing_ok=True)
        layout.data_path(lane, segment.first_seq).unlink(missing_ok=True)
        self._counters.add("retention_deleted_records", segment.records)
        self._counters.add("retention_deleted_bytes", segment.bytes)

    def _left_alone(self, lane: str, error: OSError | SpoolError) -> None:
        now = time.monotonic()
        if now - self._warned.get(lane, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned[lane] = now
            _LOGGER.warning(
                "DSpark JSON: retention leaves lane %s alone, whose records stay: %s",
                layout.lane_folder(self._spool, lane),
                error,
            )


def _facts(folder: Path, first_seq: int, *, newest: bool) -> SegmentFacts:
    path = layout.index_path(folder, first_seq)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        held = os.fstat(descriptor)
        size = held.st_size
        records = layout.whole_entries(size)
        newest_at = 0
        if records:
            last = os.pread(descriptor, layout.ENTRY_BYTES, layout.index_size(records - 1))
            columns = layout.unpack_entries(last)
            newest_at = columns.appended_at[0] if len(columns) else 0
            if not layout.is_plausible_time(newest_at):
                newest_at = held.st_mtime_ns // 1000
    finally:
        os.close(descriptor)
    data = layout.data_path(folder, first_seq).stat().st_size
    return SegmentFacts(folder.name, first_seq, records, size + data, newest_at, newest)
