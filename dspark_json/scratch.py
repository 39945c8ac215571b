"""Folders that last as long as the process that made them, and what killed processes have left of such."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SHARED_MEMORY", "orphans", "scratch_folder"]

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where the hook's spool is by default
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def scratch_folder(prefix: str, *, in_memory: bool = False) -> Iterator[Path]:
    """A new folder, which is removed at the end; ``in_memory``: in shared memory where there is any.

    It is locked meanwhile, so that what a killed process has left is told apart: that goes with the next folder of the
    same prefix, be it in memory or not.
    """
    usual = Path(tempfile.gettempdir())
    for place in {usual, SHARED_MEMORY}:
        for left in orphans(place, re.compile(re.escape(prefix) + r"\w+"), lambda _: True, starting_s=-math.inf):
            _remove_unless_locked(left)
    beside = SHARED_MEMORY if in_memory and SHARED_MEMORY.is_dir() else usual
    while True:
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=True) as name,
            _locked(Path(name)) as is_there,
        ):
            if is_there:
                yield Path(name)
                return


def orphans(
    place: Path, name: re.Pattern[str], is_left: Callable[[Path], bool], *, starting_s: float
) -> Iterator[Path]:
    """The folders in ``place`` that nobody uses any more, as ``is_left`` tells; what can't be looked at is none.

    Only those of this user and for it alone are asked about, of such a name and older than ``starting_s``: a younger
    one may be of a process that starts.
    """
    with contextlib.suppress(OSError):
        for folder in place.iterdir():
            with contextlib.suppress(OSError):
                if name.fullmatch(folder.name) and _is_ours(folder, starting_s) and is_left(folder):
                    yield folder


def _is_ours(folder: Path, starting_s: float) -> bool:
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
    return is_private and found.st_uid == os.geteuid() and time.time() - found.st_mtime >= starting_s


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder just made; whether it is there: before it was locked, another process may have taken it
    for one that was left, and then has removed it before the lock is had.
    """
    try:
        lock = os.open(folder, _FOLDER)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder.exists()
    finally:
        os.close(lock)


def _remove_unless_locked(folder: Path) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(folder, _FOLDER)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held meanwhile, see ``_locked``
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
