"""Shares, rounded for people and programs so that 0 and 1 stand for none and all alone."""

from __future__ import annotations

from typing import Final

UNTOLD: Final = "–"


def rounded_share(share: float) -> float:
    """A share with four digits after its point, with more where those would make it 0 or 1, which it is not."""
    rounded = round(share, 4)
    return share if rounded in {0, 1} else rounded


def percent(share: float | None) -> str:
    """A share as a percentage."""
    if share is None:
        return UNTOLD
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"
