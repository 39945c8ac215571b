"""Keys kept in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["UnreadableError", "first_line"]


class UnreadableError(Exception):
    """A key file can't be read; the text says why. Callers make an error of theirs of it."""


def first_line(file: Path) -> str:
    """The first line of a text file (UTF-8), without blanks around it; raises ``UnreadableError``."""
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline().strip()
    except OSError as error:
        raise UnreadableError(error.strerror) from None
    except UnicodeDecodeError:
        raise UnreadableError("it is not UTF-8 text") from None
