"""Numbers of the command line, as types for ``argparse``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number above 0')
    return int(text)


def seconds_up_to(most: float) -> Callable[[str], float]:
    """The type of a number of seconds above 0, at most ``most``."""

    def seconds(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = 0.0
        if not 0 < found <= most:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds above 0')
        return found

    return seconds
