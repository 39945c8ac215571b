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
from typing import TYPE_CHECKING, Final, Self

from dspark_json.errors import SpoolFormatError, SpoolWriteError
from dspark_json.spool import layout
from dspark_json.spool.files import sync_folder
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.recovery import LaneState, recover_lane

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_LOGGER = logging.getLogger("dspark_json.spool")
_LOCK_FILE: Final = "lock"
_RETIRED: Final = "retired"


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
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        return cls(folder, lock)

    def recover(self, boot_id: str) -> tuple[LaneState | None, bool]:
        """Put the lane in order. Returns its state, and whether it may be written under the boot id given."""
        owner, *marks = os.pread(self._lock, 256, 0).decode("ascii", "replace").split() or [""]
        if _RETIRED in marks:
            return recover_lane(self.folder, verify_all=False), False
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


def take_lane(spool: Path, boot_id: str) -> tuple[HeldLane, LaneState | None]:
    """Take the first lane that is free and may be written, or make one. The caller holds the spool's claim."""
    names = lane_names(spool)
    for name in names:
        held = HeldLane.take(layout.lane_folder(spool, name))
        if held is None:
            continue
        try:
            state, writable = held.recover(boot_id)
        except (SpoolFormatError, IsADirectoryError) as error:
            _LOGGER.warning("DSpark JSON: lane %s is left alone: %s", held.folder, error)
            held.release()
            continue
        except BaseException:
            held.release()
            raise
        if writable:
            return held, state
        held.release()
    number = int(names[-1]) + 1 if names else 0
    if number >= layout.MAX_LANES:
        raise SpoolWriteError(
            f"{spool} has no free lane and no number left for a new one",
            remedy="Stop the servers that write it and remove the folder, or set DSPARK_SPOOL to another.",
        )
    folder = layout.lane_folder(spool, layout.lane_name(number))
    folder.mkdir(mode=layout.FOLDER_MODE)
    sync_folder(folder.parent)
    held = HeldLane.take(folder)
    if held is None:
        raise SpoolWriteError(f"{folder} was locked by another process as it was made", remedy="Try again.")
    return held, None
