"""Numbers of the command line, as types for ``argparse``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number above 0')
    return int(text)


def from_zero(text: str) -> int:
    """A whole number, which may be 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number from 0 on')
    return int(text)


def real_above_zero(text: str) -> float:
    """A number above 0."""
    found = _real(text)
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number above 0')
    return found


def real_from_zero(text: str) -> float:
    """A number, which may be 0."""
    found = _real(text)
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number from 0 on')
    return found


def seconds_up_to(most: float) -> Callable[[str], float]:
    """The type of a number of seconds above 0, at most ``most``."""

    def seconds(text: str) -> float:
        found = _real(text)
        if not 0 < found <= most:
            raise argparse.ArgumentTypeError(
                f'"{text}" is not a number of seconds, without a unit, above 0 and at most {most:g}'
            )
        return found

    return seconds


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
