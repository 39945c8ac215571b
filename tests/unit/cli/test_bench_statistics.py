"""Estimates with their confidence intervals."""

from __future__ import annotations

import math
import random

import pytest

from dspark_json.cli.bench.server import STREAM_EVENTS, burst_body, burst_events
from dspark_json.cli.bench.statistics import (
    added_quantile,
    added_undisturbed,
    median_over_rounds,
    pooled_rate,
    quantile_of,
    ratio_of_rates,
    ratio_undisturbed,
    slope,
)


def test_the_median_lies_in_its_interval() -> None:
    estimate = median_over_rounds([1.0, 5.0, 2.0, 4.0, 3.0])
    assert estimate.value == 3.0
    assert 1.0 <= estimate.low <= 3.0 <= estimate.high <= 5.0


def test_one_round_has_no_spread() -> None:
    estimate = median_over_rounds([7.0])
    assert (estimate.low, estimate.value, estimate.high) == (7.0, 7.0, 7.0)


def test_a_quantile_is_a_value_that_so_many_do_not_exceed() -> None:
    assert [quantile_of(range(1, 101), q) for q in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert [quantile_of([3, 7], q) for q in (0.5, 0.51, 0.99)] == [3, 7, 7]
    assert quantile_of([4], 0.99) == 4


@pytest.mark.parametrize("quantile", [0.5, 0.99])
def test_a_shift_of_the_whole_sample_is_found(quantile: float) -> None:
    source = random.Random(3)
    rounds = []
    for _ in range(5):
        without = sorted(source.expovariate(1.0) for _ in range(2000))
        rounds.append((sorted(value + 2.0 for value in without), without))
    estimate = added_quantile(rounds, quantile)
    assert estimate.value == pytest.approx(2.0)
    assert estimate.low < 2.0 < estimate.high
    assert estimate.high - estimate.low < 1.5


def test_a_machine_at_half_its_speed_at_times_changes_no_cost() -> None:
    source = random.Random(5)

    def slices(cost: float) -> list[float]:
        return [source.gauss(cost, 2.0) * (1.9 if source.random() < 0.4 else 1.0) for _ in range(12)]

    rounds = [(slices(160.0), slices(110.0)) for _ in range(5)]
    estimate = added_undisturbed(rounds)
    assert estimate.low < 50.0 < estimate.high
    assert estimate.value == pytest.approx(50.0, abs=3.0)
    assert estimate.high - estimate.low < 15.0
    assert ratio_undisturbed(rounds).value == pytest.approx(160 / 110, rel=0.03)


def test_a_ratio_of_rates_allows_for_blocks_that_gave_nothing() -> None:
    ratio = ratio_of_rates([(10.0, 1.0), (0.0, 1.0), (0.0, 1.0)], [(10.0, 1.0), (0.0, 1.0), (0.0, 1.0)])
    assert (ratio.value, ratio.low, ratio.high) == (1.0, 0.0, math.inf)


def test_a_pooled_rate_is_that_of_all_blocks_together() -> None:
    estimate = pooled_rate([(10.0, 1.0), (30.0, 1.0), (20.0, 3.0)])
    assert estimate.value == 12.0
    assert 20 / 3 <= estimate.low <= estimate.value <= estimate.high <= 30.0


def test_rates_that_differ_by_more_than_their_blocks_do_have_a_ratio_apart_from_one() -> None:
    slow, fast = ([(rate + shift, 1.0) for shift in (-2.0, 0.0, 1.0, 1.0, 2.0)] for rate in (100.0, 110.0))
    ratio = ratio_of_rates(fast, slow)
    assert 1 < ratio.low <= ratio.value <= ratio.high < 1.2
    same = ratio_of_rates(slow, slow)
    assert same.low < 1 == same.value < same.high


def test_the_slope_is_that_of_the_line() -> None:
    assert slope([(0, 1), (10, 21), (20, 41)]) == pytest.approx(2.0)


def test_the_measured_answers_have_the_size_they_are_said_to_have() -> None:
    assert len(burst_body()) == 1500
    events = burst_events()
    assert len(events) == STREAM_EVENTS
    assert 200 < sum(map(len, events)) / len(events) < 240
