"""Folders that last as long as the process that made them, and what killed processes have left of such."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.locks import is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["orphans", "scratch_folder"]

_STARTING_SEC: Final = 10.0  # from when a folder is made until it is locked, with much to spare


@contextlib.contextmanager
def scratch_folder(prefix: str, place: Path | None = None, *, starting_s: float = _STARTING_SEC) -> Iterator[Path]:
    """A new folder in ``place`` (default: the system's for temporary files), which is removed at the end.

    The folder is locked meanwhile, so that those of the same prefix whose process was killed are told apart, which are
    removed first.
    """
    beside = place or Path(tempfile.gettempdir())
    for orphan in orphans(beside, re.compile(re.escape(prefix) + r"\w+"), _is_unlocked, starting_s=starting_s):
        shutil.rmtree(orphan, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=True) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


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


def _is_unlocked(folder: Path) -> bool:
    return not is_locked(folder, flags=os.O_DIRECTORY | os.O_NOFOLLOW)
