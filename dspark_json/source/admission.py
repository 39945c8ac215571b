"""How much of what waits goes into a micro-batch, and how it is shared among the lanes (DESIGN §4).

Everything here is deterministic: the same lanes, in the same order, get the same shares.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["ReadLimits", "Waiting", "admit", "share"]

# `ends(i, start, stop)`: cumulative bytes of the records of lane i from `start` on, for at least one and at most
# `stop - start` records.
Ends = Callable[[int, int, int], Sequence[int]]

_SLICE: Final = 65_536


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most records and bytes of a micro-batch; None is no limit. Both hold when both are given."""

    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records of a lane that have yet to be read: from ``begin`` (inclusive) to ``end`` (exclusive).

    ``mean_bytes`` is the lane's mean record size, used to guess and never relied on.
    """

    begin: int
    end: int
    mean_bytes: float

    @property
    def records(self) -> int:
        return self.end - self.begin


def share(weights: Sequence[int], limit: int) -> list[int]:
    """Split ``limit`` in proportion to ``weights``, none getting more than its weight.

    By largest remainders; ties go to the first. Where the limit allows, each lane that waits gets one at least, so that
    a long backlog in one lane never keeps another from moving.
    """
    total = sum(weights)
    if total <= limit:
        return list(weights)
    first = [min(weight, 1) for weight in weights]
    if sum(first) <= limit:
        rest = _in_proportion([weight - one for weight, one in zip(weights, first, strict=True)], limit - sum(first))
        return [one + more for one, more in zip(first, rest, strict=True)]
    return _in_proportion(weights, limit)


def _in_proportion(weights: Sequence[int], limit: int) -> list[int]:
    total = sum(weights)
    shares = [limit * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(limit * weights[i] % total), i))
    for i in by_remainder[: limit - sum(shares)]:
        shares[i] += 1
    return shares


def admit(lanes: Sequence[Waiting], limits: ReadLimits, ends: Ends) -> list[int]:
    """How many records of each lane go into the batch: at least one in all, where any waits."""
    counts = [lane.records for lane in lanes]
    if limits.max_records is not None:
        counts = share(counts, limits.max_records)
    if limits.max_bytes is not None and any(counts):
        counts = _within_bytes(lanes, counts, limits.max_bytes, ends)
    return counts


def _within_bytes(lanes: Sequence[Waiting], counts: Sequence[int], limit: int, ends: Ends) -> list[int]:
    """Cut ``counts`` to ``limit`` bytes in all; what a lane leaves of its part goes to the next ones.

    A record that is larger than the limit goes alone, as a batch of its own: else it could wait for ever.
    """
    guesses = [
        max(1, round(count * lane.mean_bytes)) if count else 0 for lane, count in zip(lanes, counts, strict=True)
    ]
    budgets = share(guesses, limit)
    if sum(guesses) <= limit:
        budgets = [limit] * len(lanes)
    taken = [0] * len(lanes)
    used = 0
    for fair in (True, False):  # each lane within its own part first, then the rest to whoever has records left
        for i, lane in enumerate(lanes):
            wanted = counts[i] - taken[i]
            budget = min(max(budgets[i], 1), limit - used) if fair else limit - used
            if not wanted or (budget <= 0 and not fair):
                continue
            found = _fitting(i, lane.begin + taken[i], wanted, budget, lane.mean_bytes, ends)
            if not taken[i] and found.blocked_by > limit:
                return [int(k == i) for k in range(len(lanes))]
            taken[i] += found.records
            used += found.bytes
    if not any(taken):
        raise AssertionError("a record within the limit fits into an empty batch")
    return taken


@dataclass(frozen=True, slots=True)
class _Fit:
    records: int
    bytes: int
    blocked_by: int  # size of the record that did not fit any more, 0 if none


def _fitting(i: int, start: int, wanted: int, budget: int, mean_bytes: float, ends: Ends) -> _Fit:
    """The records from ``start`` on that fit into ``budget`` bytes."""
    records = size = 0
    while records < wanted:
        guess = int(max(budget - size, 0) / max(mean_bytes, 1.0) * 1.25) + 16
        sizes = ends(i, start + records, start + records + min(wanted - records, guess, _SLICE))
        fit = bisect.bisect_right(sizes, budget - size)
        before = sizes[fit - 1] if fit else 0
        records += fit
        size += before
        if fit < len(sizes):
            return _Fit(records, size, sizes[fit] - before)
    return _Fit(records, size, 0)
