"""Names of the command line, as types for ``argparse``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """The type of names separated by commas, each one of ``known``; doubles are dropped."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(text.split(",")))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f'"{name}" is none of {", ".join(known)}')
        return found

    return names
