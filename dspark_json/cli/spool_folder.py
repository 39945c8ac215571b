"""The folder that a command is to make a spool in, or to add to."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolError, SpoolFormatError
from dspark_json.spool.surroundings import other_things

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_REMEDY: Final = "Name the folder of a spool, an empty folder, or one that is yet to be made."
_SETTING: Final = re.compile(r"\bDSPARK_SPOOL\b")


def require_spool_or_empty(folder: Path) -> None:
    """Raise ``SpoolFormatError`` where ``folder`` is a file, or holds other things than a spool: somebody's slip.

    A server's hook takes any folder of its user, with a warning: it may be started with nobody there to read an error,
    and answers that are not kept are lost for good.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        try:
            os.scandir(folder).close()
        except NotADirectoryError:
            raise SpoolFormatError(f"{folder} is no folder", remedy=_REMEDY) from None
    others = other_things(folder)
    if others:
        raise SpoolFormatError(
            f"{folder} is no spool and holds other things ({others})",
            remedy=_REMEDY,
        )


@contextlib.contextmanager
def named_by(option: str) -> Iterator[None]:
    """Errors of a spool that ``option`` of the command line names speak of that, not of ``DSPARK_SPOOL``."""
    try:
        yield
    except SpoolError as error:
        error.remedy = _SETTING.sub(option, error.remedy)
        raise
