"""The folder of a worker's socket, and what workers that were killed have left beside it."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING, Final

from dspark_json.scratch import orphans

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["remove_folder", "remove_orphans"]

_NAME: Final = re.compile(r"dspark-json-\d+")  # as the connector names it (Worker.java)
_STARTING_SEC: Final = 120.0  # a folder without a socket, or whose socket does not answer, may be of one that starts
_DIAL_SEC: Final = 1.0


def remove_folder(path: Path) -> None:
    """Remove the socket at ``path`` and its folder, as far as they are there."""
    with contextlib.suppress(OSError):
        if path.is_socket():
            path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def remove_orphans(path: Path, *, starting_s: float = _STARTING_SEC) -> None:
    """Remove the folders beside that of the socket at ``path`` where nobody listens any more.

    A worker removes its own folder when its JVM ends; one that is killed with it (the whole process group, the
    container, for want of memory) can't. Touched are only folders of this user, named as the connector does, that hold
    a socket alone or nothing, and are older than ``starting_s``.
    """
    for folder in orphans(path.parent.parent, _NAME, _is_left, starting_s=starting_s):
        if folder != path.parent:
            remove_folder(next(folder.iterdir(), folder / path.name))


def _is_left(folder: Path) -> bool:
    entries = list(folder.iterdir())
    return not entries or (len(entries) == 1 and entries[0].is_socket() and not _is_answered(entries[0]))


def _is_answered(path: Path) -> bool:
    """Whether somebody listens on a socket; also where that can't be told."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_DIAL_SEC)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
    return True
