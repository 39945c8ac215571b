"""The folder that a command is to make a spool in, or to add to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolFormatError
from dspark_json.spool.layout import IDENTITY_FILE, LANES_FOLDER, SCHEMAS_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

# What a spool is made of before it has its identity (a writer may just be at it), and what mkfs leaves in a volume.
_OURS: Final = frozenset({LANES_FOLDER, SCHEMAS_FOLDER, "lost+found"})
_SHOWN: Final = 3


def require_spool_or_empty(folder: Path) -> None:
    """Raise ``SpoolFormatError`` where ``folder`` is no spool and holds other things: a slip of who named it.

    A server's hook takes any folder of its user, since it may be started with nobody there to read an error.
    """
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:  # it is not there, or whoever makes the spool will say what is the matter with it
        return
    others = sorted(name for name in names - _OURS if not name.startswith(f"{IDENTITY_FILE}"))
    if IDENTITY_FILE in names or not others:
        return
    shown = ", ".join(f'"{name}"' for name in others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
    raise SpoolFormatError(
        f"{folder} is no spool and holds other things ({shown})",
        remedy="Name the folder of a spool, an empty folder, or one that is yet to be made.",
    )
