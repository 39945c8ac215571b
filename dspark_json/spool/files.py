"""Writing files so that a reader, a kill or a full disk never meets half of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dspark_json.spool import layout
from dspark_json.spool.sharing import share_like_folder

if TYPE_CHECKING:
    from pathlib import Path


def write_at(descriptor: int, raw: bytes, position: int) -> None:
    """Write all of ``raw`` at ``position``, however many calls that takes."""
    view = memoryview(raw)
    while view:
        written = os.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


def replace_file(path: Path, raw: bytes, *, durable: bool = False, mode: int | None = None) -> None:
    """Write a file under another name and rename it into place, so that nobody sees half of it.

    ``mode``: its access; None: that of its folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{layout.TEMPORARY_SUFFIX}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, layout.FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            if mode is None:
                share_like_folder(descriptor, path.parent)
            else:
                os.fchmod(descriptor, mode)
            file.write(raw)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
