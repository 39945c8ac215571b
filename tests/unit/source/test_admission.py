"""How limits are shared among lanes."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from dspark_json.source.admission import ReadLimits, Waiting, admit, share

if TYPE_CHECKING:
    from collections.abc import Sequence

Sizes = list[list[int]]


def ends_of(sizes: Sizes, slice_of: int = 3):  # type: ignore[no-untyped-def]
    def ends(i: int, start: int, stop: int) -> Sequence[int]:
        return list(accumulate(sizes[i][start : min(stop, start + slice_of)]))

    return ends


def waiting(sizes: Sizes) -> list[Waiting]:
    return [Waiting(0, len(lane), sum(lane) / max(1, len(lane))) for lane in sizes]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 200))
def test_shares_sum_to_the_limit_one_for_each_that_waits_and_the_rest_in_proportion(
    weights: list[int], limit: int
) -> None:
    shares = share(weights, limit)
    assert sum(shares) == min(limit, sum(weights))
    one_each = 1 if limit >= sum(weight > 0 for weight in weights) else 0
    first = [min(weight, one_each) for weight in weights]
    total, rest = sum(weights) - sum(first), limit - sum(first)
    for weight, part, one in zip(weights, shares, first, strict=True):
        assert one <= part <= weight
        if sum(weights) > limit:
            assert abs(part - one - rest * (weight - one) / total) < 1


def test_ties_go_to_the_first_lane() -> None:
    assert share([5, 5, 5], 2) == [1, 1, 0]
    assert share([1, 100], 1) == [0, 1]


@given(
    st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 60)
)
def test_both_limits_hold_and_at_least_one_record_goes(sizes: Sizes, records: int, size: int) -> None:
    counts = admit(waiting(sizes), ReadLimits(records, size), ends_of(sizes))
    total = sum(sum(lane[:count]) for lane, count in zip(sizes, counts, strict=True))
    assert all(0 <= count <= len(lane) for lane, count in zip(sizes, counts, strict=True))
    assert sum(counts) <= records
    assert total <= size or sum(counts) == 1
    assert sum(counts) >= 1 or not any(sizes)


def test_bytes_a_lane_leaves_over_go_to_the_others() -> None:
    sizes = [[10] * 10, [10] * 2]
    counts = admit(waiting(sizes), ReadLimits(None, 100), ends_of(sizes))
    assert sum(counts) == 10


def test_a_record_larger_than_the_limit_goes_alone_and_does_not_wait_for_ever() -> None:
    sizes = [[10] * 10, [500, 10]]
    assert admit(waiting(sizes), ReadLimits(None, 100), ends_of(sizes)) == [0, 1]


def test_no_limit_takes_all_without_a_look_at_sizes() -> None:
    def never(i: int, start: int, stop: int) -> Sequence[int]:
        raise AssertionError

    assert admit([Waiting(3, 9, 1.0), Waiting(0, 0, 0.0)], ReadLimits(), never) == [6, 0]
