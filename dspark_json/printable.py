"""Text from outside (a server, a file, a record), made safe to show."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, most: int | None = None) -> str:
    """``text`` with all that a terminal could obey escaped: control and format characters, line breaks, surrogates.

    Of a text longer than ``most`` characters only so many are taken, the last one an ellipsis.
    """
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
