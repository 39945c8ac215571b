"""The write side of a spool: one process appends to one lane, cares for retention and counts (DESIGN §3)."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from dspark_json.errors import SpoolWriteError
from dspark_json.spool import layout
from dspark_json.spool.claim import (
    claim,
    claim_refused,
    current_boot_id,
    ensure_identity,
    make_folders,
    restore_identity,
)
from dspark_json.spool.files import sync_folder
from dspark_json.spool.framing import frame
from dspark_json.spool.lane import take_lane
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.layout import now_us
from dspark_json.spool.os_errors import opening_failed, writing_failed
from dspark_json.spool.retention import Retention, RetentionSettings, default_bytes
from dspark_json.spool.schema_uses import SchemaUses, load_schema_uses
from dspark_json.spool.segment import OpenSegment
from dspark_json.spool.sharing import Sharing
from dspark_json.spool.stats import Counters, load_counters, save_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dspark_json.spool.framing import Part
    from dspark_json.spool.record import Record
    from dspark_json.spool.recovery import LaneState

__all__ = ["LaneWriter", "WriterSettings", "now_us"]

_LOGGER = logging.getLogger("dspark_json.spool")
_MAX_SEGMENT_BYTES: Final = 64 << 20
_SPACE_CHECK_SECONDS: Final = 0.25
_OPEN_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How much is kept, and in what pieces.

    ``segment_bytes``: size at which a segment is full (None: an eighth of the retention, 64 MiB at most).
    ``retention_bytes``: size of the whole spool (None: 512 MiB, or a quarter of the file system if that is less).
    ``retention_us``: age in µs above which records go (None: never). ``min_free_ratio``: the part of the file system
    that must be free for a record to be taken. ``sharing``: who may use the files.
    """

    segment_bytes: int | None = None
    retention_bytes: int | None = None
    retention_us: int | None = None
    min_free_ratio: float = 0.10
    sharing: Sharing = Sharing.USER


class LaneWriter:
    """Appends records to one lane of a spool; owned by one thread (``counters``, ``schema_uses`` may be used from any).

    The writer counts ``records``, ``bytes``, ``retention_deleted_records`` and ``retention_deleted_bytes`` itself;
    what an append refused is for the caller to count, who knows what became of it.
    """

    def __init__(
        self, folder: Path, settings: WriterSettings, clock: Callable[[], int], after: LaneWriter | None = None
    ) -> None:
        """Use ``LaneWriter.open``."""
        self.folder = folder
        self._settings = settings
        self._clock = clock
        self._boot_id = current_boot_id()
        self._limit = settings.retention_bytes or default_bytes(folder)
        self._space_checked = float("-inf")
        self._space_low = False
        self._newest_at = 0
        self._unsynced: list[int] = []
        self._names_unsynced = True
        self._segment: OpenSegment | None = None
        self._gone = False
        self._closed = False
        self._lanes = 1
        # Called with the first number and the lines of what an append stored, once readers see it; must not raise.
        self.after_append: Callable[[int, list[bytes]], None] | None = None
        with claim(folder) as got:
            if not got:
                raise claim_refused(folder)
            self._identity = ensure_identity(folder, self._boot_id, clock(), settings.sharing)
            self.spool_id = self._identity.spool_id
            had = after.lane if after is not None and after.spool_id == self.spool_id else None
            self._held, state = take_lane(folder, self._boot_id, clock(), again=had)
            try:
                self._held.own(self._boot_id)
                self.lane_identity = self._held.identity
                self._lanes = len(lane_names(folder))
                self._begin(state, after.next_seq if after is not None and had == self.lane else 0)
                self.counters: Counters = load_counters(self._held.folder)
                self.schema_uses: SchemaUses = load_schema_uses(self._held.folder)
                limits = RetentionSettings(self._limit, settings.retention_us)
                self._retention = Retention(folder, self._held.name, self._boot_id, limits, self.counters)
            except BaseException:
                self._release()
                raise

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: WriterSettings | None = None,
        *,
        clock: Callable[[], int] = now_us,
        after: LaneWriter | None = None,
    ) -> LaneWriter:
        """Make the spool if it is absent, take the first free lane and put it in order.

        ``clock`` gives µs since the epoch. Raises ``SpoolWriteError`` (disk full, read-only, …),
        ``SpoolPermissionError`` and ``SpoolFormatError`` (the folder holds a spool of another format). After the
        folder was removed under a writer (``gone``), close that writer and open again, ``after`` it: this makes a new
        spool, or, where only the lane was removed, goes on with its numbers, which must not be given twice.
        """
        settings = settings or WriterSettings()
        for _ in range(_OPEN_ATTEMPTS - 1):
            try:
                make_folders(folder, settings.sharing)
                return cls(folder, settings, clock, after)
            except (FileNotFoundError, FileExistsError):
                time.sleep(0.01)  # the folder was removed, or made anew, as we looked
            except OSError as error:
                raise opening_failed(folder, error) from error
        try:
            make_folders(folder, settings.sharing)
            return cls(folder, settings, clock, after)
        except OSError as error:
            raise opening_failed(folder, error) from error

    @property
    def lane(self) -> str:
        """The name of the lane, such as ``0000``."""
        return self._held.name

    @property
    def next_seq(self) -> int:
        """The number that the next record will get."""
        return self._next_seq if self._segment is None else self._segment.next_seq

    @property
    def gone(self) -> bool:
        """Whether the folder was removed or moved away; nothing is taken any more, see ``open``."""
        return self._gone

    def append(self, records: Sequence[Record]) -> None:
        """Store records under the next numbers, in order; readers see all of them when this returns.

        On failure ``SpoolWriteError`` is raised, nothing was stored, and the next append may be tried at any time. (One
        exception: records that a reader may have seen before the failure came stay, as when the index runs out of space
        in the middle of its entries or between two segments. ``next_seq`` says how far that is.)
        """
        if not records:
            return
        segment = self._ready()
        before, end = segment.next_seq, segment.end
        parts: list[Part] = []
        try:
            self._check_space()
            now = max(self._clock(), self._newest_at)
            parts = frame(records, before, self._held.name, end, self._segment_bytes(), now)
            in_place = self._store(segment, parts, now)
        except OSError as error:
            if self._lost_its_names():
                self._gone = True
                raise self._gone_error() from error
            self._note_what_stays(before, _lines(parts, end))
            raise writing_failed(self._held.folder, error) from error
        except BaseException:
            self._note_what_stays(before, _lines(parts, end))
            raise
        if not in_place:
            self._gone = True  # written, but into files that nobody can open any more
            raise self._gone_error()
        self.counters.add("records", len(records))
        self.counters.add("bytes", sum(len(part.data) for part in parts))
        if self.after_append is not None:
            self.after_append(before, _lines(parts, end))

    def sync(self) -> None:
        """Bring everything appended so far to the disk: data, index, then the names in the folder."""
        try:
            segment = self._ready()
            for first_seq in self._unsynced:
                self._sync_rolled(first_seq)
            self._unsynced.clear()
            segment.sync()
            if self._names_unsynced:
                sync_folder(self._held.folder)
                self._names_unsynced = False
        except OSError as error:
            raise writing_failed(self._held.folder, error) from error

    def maintain(self) -> None:
        """About once a second: notice a removed folder, begin new segments by age, delete old ones, save counters.

        Raises ``SpoolWriteError`` where the folder is gone or can't be written; records may be appended all the same
        unless it is gone.
        """
        try:
            segment = self._ready()
            if not segment.is_in_place():
                self._gone = True
                raise self._gone_error()
            if restore_identity(self.folder, self._identity, self._settings.sharing):
                removed = self.folder / layout.IDENTITY_FILE
                _LOGGER.warning("DSpark JSON: %s was removed under a running server; it is written again", removed)
            try:
                age = self._settings.retention_us
                if age is not None and segment.count and segment.oldest_at < self._clock() - age:
                    self._roll()
                self._lanes = max(1, self._retention.run(self._clock()))
            finally:
                self._save_counts()
        except OSError as error:
            raise writing_failed(self._held.folder, error) from error

    def close(self) -> None:
        """Save the counters and give the lane back; a second call does nothing, and nothing is raised."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._segment is not None and self._segment.is_in_place():
                self._save_counts()
        except OSError:
            pass  # the counters of the last second are not worth an error at the end
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the segment at hand ------------------------------------------------------------------------------------------

    def _begin(self, state: LaneState | None, least: int = 0) -> None:
        """Go on with the lane as it is found, at the number ``least`` or behind."""
        if state is None or state.first_seq + state.count < least:
            self._newest_at = 0 if state is None else state.newest_at
            segment = OpenSegment.create(self._held.folder, least, max(self._clock(), self._newest_at))
            try:
                segment.publish()
            except OSError:
                segment.discard()
                raise
            self._segment = segment
        else:
            self._newest_at = max(self._newest_at, state.newest_at)
            self._segment = OpenSegment.reopen(self._held.folder, state.first_seq, state.count, state.end)
        self._next_seq = self._segment.next_seq

    def _ready(self) -> OpenSegment:
        """The open segment; recovers the lane where an earlier failure could not be undone."""
        if self._closed:
            raise SpoolWriteError(f"the writer of {self._held.folder} is closed", remedy="Open another one.")
        if self._gone:
            raise self._gone_error()
        if self._segment is None:
            try:
                state, writable = self._held.recover(self._boot_id, self._clock())
                if not writable or state is None or state.first_seq + state.count < self._next_seq:
                    self._gone = True
                    raise self._gone_error()
                self._begin(state)
            except OSError as error:
                raise writing_failed(self._held.folder, error) from error
            assert self._segment is not None
        return self._segment

    def _store(self, segment: OpenSegment, parts: Sequence[Part], now: int) -> bool:
        """Write all data and prepare all new segments before the first entry makes a record exist.

        Whether the files still have their names.
        """
        fresh: list[OpenSegment] = []
        try:
            if len(parts) == 1:
                in_place = segment.append(parts[0].data, parts[0].entries)
                self._newest_at = now
                return in_place
            segment.write_data(parts[0].data)
            create = OpenSegment.create
            fresh.extend(create(self._held.folder, part.first_seq, now, part.data, part.entries) for part in parts[1:])
            segment.commit(parts[0].entries)
            while fresh:
                fresh[0].publish()
                self._continue_with(fresh.pop(0))
        except BaseException:
            for unpublished in reversed(fresh):
                unpublished.discard()
            self._undo()
            raise
        self._newest_at = now
        assert self._segment is not None
        return self._segment.is_in_place()

    def _note_what_stays(self, before: int, lines: list[bytes]) -> None:
        """Count the lines that are stored although an append failed, and hand them on as any others."""
        stored = lines[: self.next_seq - before]
        self.counters.add("records", len(stored))
        self.counters.add("bytes", sum(map(len, stored)))
        if stored and self.after_append is not None:
            self.after_append(before, stored)

    def _lost_its_names(self) -> bool:
        """Whether the open segment's files were removed or moved away; False where that can't be told."""
        try:
            return self._segment is not None and not self._segment.is_in_place()
        except OSError:
            return False

    def _undo(self) -> None:
        assert self._segment is not None
        self._newest_at = max(self._newest_at, self._segment.newest_at)
        try:
            self._segment.rewind()
        except OSError:
            self._next_seq = self._segment.next_seq
            self._segment.close()
            self._segment = None  # recovered before the next append

    def _continue_with(self, segment: OpenSegment) -> None:
        assert self._segment is not None
        self._unsynced.append(self._segment.first_seq)
        self._names_unsynced = True
        self._segment.close()
        self._segment = segment

    def _roll(self) -> None:
        """Begin the next segment, so that the one at hand can be deleted; its name keeps the next number."""
        assert self._segment is not None
        created = max(self._clock(), self._newest_at)
        segment = OpenSegment.create(self._held.folder, self._segment.next_seq, created)
        try:
            segment.publish()
        except OSError:
            segment.discard()
            raise
        self._continue_with(segment)

    def _segment_bytes(self) -> int:
        """When a segment is full: the newest ones, which must stay, may take half of the whole spool's bytes."""
        chosen = self._settings.segment_bytes or min(_MAX_SEGMENT_BYTES, self._limit // 8)
        return max(1, min(chosen, self._limit // (2 * self._lanes)))

    def _sync_rolled(self, first_seq: int) -> None:
        for path in (layout.data_path(self._held.folder, first_seq), layout.index_path(self._held.folder, first_seq)):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return  # deleted by retention
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _save_counts(self) -> None:
        save_counters(self._held.folder, self.counters, self.schema_uses.to_member())

    def _release(self) -> None:
        if self._segment is not None:
            self._next_seq = self._segment.next_seq
            self._segment.close()
            self._segment = None
        self._held.release()

    # -- the folder ---------------------------------------------------------------------------------------------------

    def _check_space(self) -> None:
        moment = time.monotonic()
        if moment - self._space_checked >= _SPACE_CHECK_SECONDS:
            space = os.statvfs(self._held.folder)
            self._space_low = space.f_bavail < self._settings.min_free_ratio * space.f_blocks
            self._space_checked = moment
        if self._space_low:
            raise SpoolWriteError(
                f"the file system of {self.folder} has less than {self._settings.min_free_ratio:.0%} free space",
                remedy="Free space there, whatever fills it; lower DSPARK_RETENTION_MB where that is the spool; or "
                "give the spool a file system of its own (DSPARK_SPOOL).",
            )

    def _gone_error(self) -> SpoolWriteError:
        return SpoolWriteError(
            f"the files of {self._held.folder} were removed, moved or changed while the server runs",
            remedy=f"The records after this go to a new place in {self.folder}; leave a running server its folder.",
        )


def _lines(parts: Sequence[Part], end: int) -> list[bytes]:
    """The lines of all parts; ``end``: bytes of the segment in front of the first one's."""
    return [line for part in parts for line in part.lines(end if part is parts[0] else 0)]
