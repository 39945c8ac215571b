"""The folder that a command is to make a spool in, or to add to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_json.errors import SpoolFormatError
from dspark_json.spool.surroundings import other_things

if TYPE_CHECKING:
    from pathlib import Path


def require_spool_or_empty(folder: Path) -> None:
    """Raise ``SpoolFormatError`` where ``folder`` is no spool and holds other things: a slip of who named it.

    A server's hook takes any folder of its user, with a warning: it may be started with nobody there to read an error,
    and answers that are not kept are lost for good.
    """
    others = other_things(folder)
    if others:
        raise SpoolFormatError(
            f"{folder} is no spool and holds other things ({others})",
            remedy="Name the folder of a spool, an empty folder, or one that is yet to be made.",
        )
