"""What the operating system refused, said as an error of this package: which file, why, and what to do."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from dspark_json.errors import SpoolError, SpoolNotFoundError, SpoolPermissionError, SpoolWriteError

if TYPE_CHECKING:
    from pathlib import Path

_WRITE_REMEDIES = {
    errno.ENOSPC: "Free space on that file system, or set DSPARK_SPOOL to a larger one.",
    errno.EDQUOT: "Raise the quota of this user, or set DSPARK_SPOOL to another file system.",
    errno.EROFS: "The file system is read-only; set DSPARK_SPOOL to one that can be written.",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f), or lower DSPARK_SEGMENT_MB.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n) of the server.",
    errno.ENOENT: "The folder was removed while the server runs; it is made anew by the next attempt.",
}


def reason(error: OSError) -> str:
    """The operating system's own words, such as ``No space left on device``."""
    return os.strerror(error.errno) if error.errno else str(error)


def reading_failed(path: Path, error: OSError) -> SpoolError:
    """The error for a file or folder of a spool that could not be read."""
    if isinstance(error, PermissionError):
        return SpoolPermissionError(
            f"{error.filename or path} may not be read by this user ({reason(error)})",
            remedy="Run the reader as the user of the server, or give vllm_api_key so that it reads over HTTP.",
        )
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return SpoolNotFoundError(
            f"{path} is not there", remedy="The spool was removed while it was read; check that the server runs."
        )
    return SpoolError(
        f"{error.filename or path} could not be read ({reason(error)})", remedy="Check the file system it is on."
    )


def opening_failed(path: Path, error: OSError) -> SpoolError:
    """The error for a spool that a writer could not open or make."""
    if isinstance(error, PermissionError):
        return SpoolPermissionError(
            f"{error.filename or path} may not be written by this user ({reason(error)})",
            remedy="Give the folder to the user of the server, or set DSPARK_SPOOL to a folder that can be written.",
        )
    if isinstance(error, (FileNotFoundError, FileExistsError, NotADirectoryError)):
        return SpoolWriteError(f"the folder {path} can't be created ({reason(error)})", remedy="Check DSPARK_SPOOL.")
    return writing_failed(path, error)


def writing_failed(path: Path, error: OSError) -> SpoolWriteError:
    """The error for a record that could not be written; ``path`` is the spool or the lane."""
    remedy = _WRITE_REMEDIES.get(error.errno or 0, "Check the file system it is on, or set DSPARK_SPOOL to another.")
    return SpoolWriteError(f"{error.filename or path} could not be written ({reason(error)})", remedy=remedy)
