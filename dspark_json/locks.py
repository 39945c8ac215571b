"""Locks that say that a process is alive: they end with it, however it ends."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_locked(path: Path, *, flags: int = 0) -> bool:
    """Whether somebody holds the exclusive lock (``flock``) of a file or a folder, which several may ask at once.

    ``flags`` are for opening it. Raises ``OSError`` where it can't be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
