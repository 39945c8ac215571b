"""What a folder that is to be a spool holds already: a slip of who named it shows there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.spool.layout import IDENTITY_FILE, LANES_FOLDER, SCHEMAS_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["other_things"]

# What a spool is made of before it has its identity (a writer may just be at it), and what mkfs leaves in a volume.
_OURS: Final = frozenset({LANES_FOLDER, SCHEMAS_FOLDER, "lost+found"})
_SHOWN: Final = 3


def other_things(folder: Path) -> str:
    """What a folder that is no spool holds but a spool does not, some of the names, for people; else empty."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:  # it is not there, or whoever makes the spool will say what is the matter with it
        return ""
    if IDENTITY_FILE in names:
        return ""
    # The identity is written under another name first, which begins with a dot.
    others = sorted(name for name in names - _OURS if not name.lstrip(".").startswith(IDENTITY_FILE))
    return ", ".join(f'"{name}"' for name in others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
