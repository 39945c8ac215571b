"""Medians over rounds, quantiles, and how sure they are (bootstrap)."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RESAMPLES: Final = 2000
_TAIL: Final = 0.025  # 95 % between the two tails
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """The figure in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def median_over_rounds(values: Sequence[float]) -> Estimate:
    """The median of one value a round; the interval resamples rounds."""
    source = random.Random(_SEED)  # noqa: S311 - no secret
    resampled = [statistics.median(source.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return _estimate(statistics.median(values), resampled)


def undisturbed(values: Sequence[float]) -> float:
    """The lower quartile: what work costs while nothing else slows the core down.

    The cores of a virtual machine run at half their speed for a second now and again, when the hardware's other guests
    are busy, and CPU time goes up with that. Such slices of a measurement lie above the others, never below.
    """
    return sorted(values)[(len(values) - 1) // 4]


def added_undisturbed(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Estimate:
    """How much more the first samples cost than the second ones, both undisturbed.

    ``rounds`` has the two samples of each round, one value a slice of time. The interval resamples rounds, and slices
    within each.
    """
    return _compared(rounds, lambda one, other: undisturbed(one) - undisturbed(other))


def ratio_undisturbed(rounds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Estimate:
    """The same as a ratio."""
    return _compared(rounds, lambda one, other: undisturbed(one) / undisturbed(other))


def _compared(
    rounds: Sequence[tuple[Sequence[float], Sequence[float]]],
    compare: Callable[[Sequence[float], Sequence[float]], float],
) -> Estimate:
    source = random.Random(_SEED)  # noqa: S311 - no secret

    def pooled(drawn: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
        return compare([value for one, _ in drawn for value in one], [value for _, other in drawn for value in other])

    resampled = [
        pooled(
            [
                (source.choices(a, k=len(a)), source.choices(b, k=len(b)))
                for a, b in source.choices(rounds, k=len(rounds))
            ]
        )
        for _ in range(_RESAMPLES)
    ]
    return _estimate(pooled(rounds), resampled)


def pooled_rate(blocks: Sequence[tuple[float, float]]) -> Estimate:
    """The amounts of all blocks over their seconds; the interval resamples blocks. ``blocks`` are such pairs."""
    source = random.Random(_SEED)  # noqa: S311 - no secret
    resampled = [_rate(source.choices(blocks, k=len(blocks))) for _ in range(_RESAMPLES)]
    return _estimate(_rate(blocks), resampled)


def ratio_of_rates(blocks: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> Estimate:
    """One pooled rate divided by another one, not 0; the interval resamples the blocks of each for itself.

    Blocks of either may have an amount of 0: beside a resample of nothing but those anything is infinitely fast, and
    another such one as fast.
    """
    source = random.Random(_SEED)  # noqa: S311 - no secret

    def resampled(sample: Sequence[tuple[float, float]]) -> float:
        return _rate(source.choices(sample, k=len(sample)))

    def ratio(rate: float, other: float) -> float:
        return rate / other if other else (math.inf if rate else 1.0)

    ratios = [ratio(resampled(blocks), resampled(others)) for _ in range(_RESAMPLES)]
    return _estimate(_rate(blocks) / _rate(others), ratios)


def added_quantile(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], quantile: float) -> Estimate:
    """The median over rounds of how much higher a quantile of the first sample is than of the second.

    ``pairs`` has the two samples of each round, sorted, none empty. The interval resamples rounds, and answers within
    each: a quantile of a resample of a sorted sample is the member at a Beta distributed place, so nothing is drawn
    but that place.
    """
    source = random.Random(_SEED)  # noqa: S311 - no secret

    def difference(pair: tuple[Sequence[float], Sequence[float]], place: Callable[[int], int]) -> float:
        return pair[0][place(len(pair[0]))] - pair[1][place(len(pair[1]))]

    def fixed(size: int) -> int:
        return _place(size, quantile)

    def drawn(size: int) -> int:
        rank = fixed(size) + 1
        return min(int(size * source.betavariate(rank, size - rank + 1)), size - 1)

    resampled = [
        statistics.median(difference(pair, drawn) for pair in source.choices(pairs, k=len(pairs)))
        for _ in range(_RESAMPLES)
    ]
    return _estimate(statistics.median(difference(pair, fixed) for pair in pairs), resampled)


def quantile_of(ordered: Sequence[float], quantile: float) -> float:
    """The smallest value of a sorted sample, not empty, that at least this share of all do not exceed."""
    return ordered[_place(len(ordered), quantile)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least squares line through at least two points."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def _place(size: int, quantile: float) -> int:
    return max(math.ceil(quantile * size) - 1, 0)


def _rate(blocks: Sequence[tuple[float, float]]) -> float:
    return math.fsum(amount for amount, _ in blocks) / math.fsum(seconds for _, seconds in blocks)


def _estimate(value: float, resampled: list[float]) -> Estimate:
    resampled.sort()
    cut = int(_TAIL * len(resampled))
    return Estimate(value, resampled[cut], resampled[-1 - cut])
