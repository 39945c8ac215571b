"""Figures in units that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.cli.bench.serving.shares import UNTOLD

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTE_RATES: Final = (("MB/s", 1.0), ("kB/s", 1e3), ("B/s", 1e6))


def byte_rate(megabytes: Iterable[float | None]) -> tuple[str, float]:
    """The largest unit in which none of these MB/s is below 1 (0 aside), and what to multiply them by for it."""
    least = min((value for value in megabytes if value), default=1.0)
    return next(((name, factor) for name, factor in _BYTE_RATES if least * factor >= 1), _BYTE_RATES[-1])


def number(value: float | None) -> str:
    """A number with the three digits that say something, or all digits before its point."""
    if value is None:
        return UNTOLD
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
