"""Who may use a spool's files: the server's user alone, or the group of the folder too; the world never.

The modes of ``lanes/`` and ``schemas/`` are set from the setting when a writer starts; what is made inside them takes
after the folder that it is made in, whatever the process's umask. The folders are setgid, so that everything has the
group of the spool's folder, whoever of it made it.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolPermissionError
from dspark_json.spool import layout

if TYPE_CHECKING:
    from pathlib import Path

_LOGGER = logging.getLogger("dspark_json.spool")
_GROUP: Final = 0o070
_GROUP_OF_FILE: Final = 0o060
_WORLD_WRITABLE: Final = 0o002
_warned: set[tuple[Path, str]] = set()


class Sharing(Enum):
    """What the group of the spool's folder may do: nothing, read, or write too (servers of several users)."""

    USER = "user"
    GROUP_READ = "group-read"
    GROUP_WRITE = "group-write"

    @property
    def folder_mode(self) -> int:
        """The mode of folders."""
        return {Sharing.USER: layout.FOLDER_MODE, Sharing.GROUP_READ: 0o2750, Sharing.GROUP_WRITE: 0o2770}[self]

    @property
    def file_mode(self) -> int:
        """The mode of files."""
        return layout.FILE_MODE | (self.folder_mode & _GROUP_OF_FILE)


def share_like_folder(descriptor: int, folder: Path) -> None:
    """Give a file just made in ``folder`` the access that its folder gives."""
    wanted = layout.FILE_MODE | (folder.stat().st_mode & _GROUP_OF_FILE)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != wanted:
        with suppress(PermissionError):  # somebody else's of the group: it is as that one left it
            os.fchmod(descriptor, wanted)


def make_shared_folder(folder: Path) -> None:
    """Make a folder with the access of the one that it is in; ``FileExistsError`` where it is there already."""
    folder.mkdir(mode=layout.FOLDER_MODE)
    parent = folder.parent.stat().st_mode
    if parent & _GROUP:
        folder.chmod(layout.FOLDER_MODE | (parent & (_GROUP | stat.S_ISGID)))


def check_owner(spool: Path, sharing: Sharing) -> None:
    """Raise ``SpoolPermissionError`` where the folder belongs to somebody who could read and replace the records.

    With ``GROUP_WRITE`` that may be anybody of the folder's group, if this process is one of it. A folder that
    everybody may write or list is warned about.
    """
    found = spool.stat()
    if found.st_mode & _WORLD_WRITABLE and not found.st_mode & stat.S_ISVTX:
        _warn_once(
            spool,
            "DSpark JSON: everybody on this machine may write the folder %s, and so replace the spool in it; take that "
            "right away (chmod o-w), or set DSPARK_SPOOL to a folder inside it",
        )
    elif found.st_mode & stat.S_IROTH:
        _warn_once(
            spool,
            "DSpark JSON: everybody on this machine may list the folder %s, though not read the records in it; take "
            "that right away (chmod o-rx), or set DSPARK_SPOOL to a folder that the server makes itself",
        )
    if found.st_uid in {0, os.geteuid()}:
        return
    if sharing is Sharing.GROUP_WRITE and found.st_gid in {os.getegid(), *os.getgroups()}:
        return
    raise SpoolPermissionError(
        f"{spool} belongs to another user (uid {found.st_uid}), who could read and replace the records",
        remedy="Remove the folder, give it to the user of the server, set DSPARK_SPOOL to another, or share it within "
        "a group that both users are of (DSPARK_SPOOL_ACCESS=group-write).",
    )


def _warn_once(spool: Path, text: str) -> None:
    """Say it once per process: a spool that can't be opened is tried again and again."""
    if (spool, text) not in _warned:
        _warned.add((spool, text))
        _LOGGER.warning(text, spool)


def apply_sharing(spool: Path, sharing: Sharing) -> None:
    """Set the modes of what this user owns of a spool; only a folder whose mode is another is looked into."""
    if sharing is not Sharing.USER:  # its own folder may be an administrator's; without the group's it stays as it is
        _set_mode(spool, stat.S_IMODE(spool.stat().st_mode) | sharing.folder_mode)
    for folder in (spool / layout.LANES_FOLDER, spool / layout.SCHEMAS_FOLDER):
        if not folder.is_dir() or not _set_mode(folder, sharing.folder_mode):
            continue
        for path in sorted(folder.rglob("*")):
            with suppress(FileNotFoundError):  # retention of another process
                _set_mode(path, sharing.folder_mode if path.is_dir() else sharing.file_mode)


def _set_mode(path: Path, mode: int) -> bool:
    """Set a mode where it is another and the file is this user's; whether it was set."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or stat.S_IMODE(found.st_mode) == mode:
        return False
    if os.geteuid() not in {0, found.st_uid}:
        return False
    path.chmod(mode)
    return True
