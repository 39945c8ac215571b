"""Who writes a lane: the lock, and which lane a starting writer takes.

The text of ``<lane>/lock`` is the boot id of the host when the lane's last writer started. A free lane that was
written under another boot id lost its writer together with the host: records that a reader has seen may be gone, so
its next numbers may have been given out already, and the lane is never written again. Once verified, the word
``retired`` stands behind the boot id.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

from dspark_json.errors import SpoolFormatError, SpoolWriteError
from dspark_json.locks import is_locked
from dspark_json.spool import layout
from dspark_json.spool.claim import claim
from dspark_json.spool.files import sync_folder
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.recovery import LaneState, recover_lane
from dspark_json.spool.sharing import make_shared_folder, share_like_folder

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_LOGGER = logging.getLogger("dspark_json.spool")
_LOCK_FILE: Final = "lock"
_RETIRED: Final = "retired"
_CLAIM_PATIENCE_S: Final = 2.0
_MOST_AHEAD_US: Final = 86_400_000_000  # what a clock may have been set back by


class HeldLane:
    """A lane whose lock this process holds."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.name = folder.name
        self._lock = lock

    @classmethod
    def take(cls, folder: Path) -> HeldLane | None:
        """Take the lane's lock without waiting; None where another process has it."""
        lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, layout.FILE_MODE)
        try:
            share_like_folder(lock, folder)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        return cls(folder, lock)

    @property
    def identity(self) -> tuple[int, int]:
        """What tells this lane from one that is made in its place, see ``lane_identity``."""
        return _identity(os.fstat(self._lock))

    def recover(self, boot_id: str, now_us: int) -> tuple[LaneState | None, bool]:
        """Put the lane in order. Returns its state, and whether it may be written under the boot id given.

        A time in the lane that is more than a day ahead of ``now_us`` is damage or a clock gone wrong, which later
        records must not take over: the state's ``newest_at`` is ``now_us`` then.
        """
        state, writable = self._recovered(boot_id)
        if state is not None and state.newest_at > now_us + _MOST_AHEAD_US:
            _LOGGER.warning(
                "DSpark JSON: a time in the index of lane %s is %d µs after 1970, more than a day ahead of the clock; "
                "it is not taken over, so the times of this lane may go down once",
                self.folder,
                state.newest_at,
            )
            state = replace(state, newest_at=now_us)
        return state, writable

    def _recovered(self, boot_id: str) -> tuple[LaneState | None, bool]:
        owner, *marks = os.pread(self._lock, 256, 0).decode("ascii", "replace").split() or [""]
        if _RETIRED in marks:
            return recover_lane(self.folder, verify_all=False, retired=True), False
        if owner == boot_id:
            state = recover_lane(self.folder, verify_all=False)
            if state is None or state.intact:
                return state, True
        else:
            state = recover_lane(self.folder, verify_all=True)
            if state is None and not owner:
                return None, True  # made by a process that ended before it wrote here
        self._mark(f"{owner or 'unknown'} {_RETIRED}")
        _LOGGER.warning(
            "DSpark JSON: the writer of lane %s ended with the host, or its files were damaged; it is kept for readers "
            "as far as it is good (below record %d) and not written again",
            self.folder,
            0 if state is None else state.first_seq + state.count,
        )
        return state, False

    def own(self, boot_id: str) -> None:
        """Note that this lane is written under this boot id from now on, on the disk before the first record is."""
        self._mark(boot_id)
        sync_folder(self.folder)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _mark(self, text: str) -> None:
        raw = text.encode() + b"\n"
        os.pwrite(self._lock, raw, 0)
        os.ftruncate(self._lock, len(raw))
        os.fsync(self._lock)


def take_lane(spool: Path, boot_id: str, now_us: int, *, again: str | None = None) -> tuple[HeldLane, LaneState | None]:
    """Take the first lane that is free and may be written, or make one. The caller holds the spool's claim.

    ``again``: the lane to take if it is free, where it was removed, too: only who had it knows which numbers it gave.
    """
    if again is not None:
        folder = layout.lane_folder(spool, again)
        with suppress(FileExistsError):
            make_shared_folder(folder)
        taken = _taken(folder, boot_id, now_us) if folder.is_dir() else None
        if taken is not None:
            return taken
    names = lane_names(spool)
    for name in names:
        taken = _taken(layout.lane_folder(spool, name), boot_id, now_us)
        if taken is not None:
            return taken
    folder = _new_folder(spool, names)
    sync_folder(folder.parent)
    held = HeldLane.take(folder)
    if held is None:
        raise SpoolWriteError(f"{folder} was locked by another process as it was made", remedy="Try again.")
    return held, None


def lane_identity(folder: Path) -> tuple[int, int] | None:
    """What tells a lane from one that is made in its place: device and inode of its lock; None where it has none."""
    try:
        return _identity((folder / _LOCK_FILE).stat())
    except OSError:
        return None


def is_written(spool: Path) -> bool | None:
    """Whether some process holds a lane of the spool, which whoever reads it may ask; None where that can't be told.

    Asked under the spool's claim, so that a writer that starts meanwhile does not find its lane taken. A file system
    that does not tell this machine of the locks of others gives False.
    """
    try:
        with claim(spool, patience=0) as got:
            return not got or any(is_held(layout.lane_folder(spool, name)) for name in lane_names(spool))
    except OSError:
        return None


def written_lanes(spool: Path) -> dict[str, float]:
    """The lanes that some process holds, each with when its writer began (s since 1970); asked as ``is_written`` is.

    Raises ``OSError`` where that can't be told.
    """
    with claim(spool, patience=_CLAIM_PATIENCE_S) as got:
        if not got:
            raise TimeoutError("another process holds the folder")
        folders = [layout.lane_folder(spool, name) for name in lane_names(spool)]
        return {folder.name: (folder / _LOCK_FILE).stat().st_mtime for folder in folders if is_held(folder)}


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def is_held(folder: Path) -> bool:
    """Whether some process writes a lane; raises ``OSError`` where that can't be told."""
    try:
        return is_locked(folder / _LOCK_FILE)
    except FileNotFoundError:
        return False


def _taken(folder: Path, boot_id: str, now_us: int) -> tuple[HeldLane, LaneState | None] | None:
    """A lane that is there, taken and put in order; None where somebody has it or it may not be written."""
    held = None
    try:
        held = HeldLane.take(folder)
        if held is None:
            return None
        state, writable = held.recover(boot_id, now_us)
        if writable:
            taken, held = held, None
            return taken, state
    except (SpoolFormatError, IsADirectoryError) as error:
        _LOGGER.warning("DSpark JSON: lane %s is left alone: %s", folder, error)
    finally:
        if held is not None:
            held.release()
    return None


def _new_folder(spool: Path, names: list[str]) -> Path:
    """Make the folder of a new lane.

    Its number is the one after the highest, since a gap may be a lane that somebody removed, whose records had numbers
    that must not be given twice. Only where the highest number is taken, the lowest free one is used.
    """
    following = int(names[-1]) + 1 if names else 0
    for number in chain(range(following, layout.MAX_LANES), range(following)):
        folder = layout.lane_folder(spool, layout.lane_name(number))
        try:
            make_shared_folder(folder)
        except FileExistsError:
            continue
        return folder
    raise SpoolWriteError(
        f"{spool} has no free lane and no number left for a new one",
        remedy="Stop the servers that write it and remove the folder, or set DSPARK_SPOOL to another.",
    )
