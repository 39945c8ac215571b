"""Tallies, and the window of time they are over."""

from __future__ import annotations

import math
import random

import pytest

from dspark_json.monitor.figures import METRICS, figures_of
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.tally import Answer, Tally
from dspark_json.monitor.window import OTHERS, Window

NOW = 1_795_970_578_000_000
SECOND = 1_000_000


def answer(at_s: float = 0, *, schema: str = "order", status: str | None = "ok", **changes: object) -> Answer:
    given: dict[str, object] = {
        "at_us": NOW + round(at_s * SECOND),
        "model": "tiny",
        "schema": schema,
        "failed": False,
        "tokens": 10,
        "statuses": () if status is None else (status,),
        "latency_s": 1.0,
        "speculation": None,
        **changes,
    }
    return Answer(**given)  # type: ignore[arg-type]


def window_of(*answers: Answer, seconds: float = 60) -> Window:
    window = Window(seconds)
    for one in answers:
        window.count(one, NOW)
    return window


@pytest.mark.parametrize("seconds", [1, 7.3, 60, 3_600])
@pytest.mark.parametrize("late_us", [0, 1, 137_911, 499_999, 914_267])
def test_only_the_answers_of_the_window_count(seconds: float, late_us: int) -> None:
    now = NOW + late_us
    ages = [(number + 0.5) * seconds / 100 for number in range(200)]
    window = Window(seconds)
    for age in ages:
        window.count(answer(late_us / SECOND - age), now)
    for later in (0, 0.3, 0.8):  # of the window
        at = now + round(later * seconds * SECOND)
        window.forget(at)
        expected = round(100 * (1 - later))
        assert abs(figures_of(window, at, since_start=Speculation()).total.answers - expected) <= 1
    window.forget(now + round(1.1 * seconds * SECOND))
    assert not window._slices


def test_the_rate_of_a_short_window_does_not_hang_on_the_moment() -> None:
    for late_us in range(0, SECOND, 70_001):
        window = Window(1)
        for number in range(300):
            window.count(answer(late_us / SECOND - number / 100), NOW + late_us)
        assert 99 <= figures_of(window, NOW + late_us, since_start=Speculation()).value("answers_per_s") <= 101  # type: ignore[operator]


def test_what_another_machines_clock_has_ahead_of_now_counts_as_of_its_look() -> None:
    window = Window(60)
    for second in range(300):
        window.count(answer(600 + second), NOW + second * SECOND)
        window.forget(NOW + second * SECOND)
    at = NOW + 299 * SECOND
    assert figures_of(window, at, since_start=Speculation()).value("answers_per_s") == pytest.approx(1, abs=0.02)
    assert figures_of(window, at + 61 * SECOND, since_start=Speculation()).total.answers == 0


def test_a_long_window_has_no_more_slices_than_a_short_one() -> None:
    for seconds in (1, 60, 7 * 86_400):
        window = window_of(*(answer(-age * seconds / 5_000) for age in range(10_000)), seconds=seconds)
        assert 235 <= len(window._slices) <= 242


def test_rates_are_over_the_window_and_shares_over_what_there_is() -> None:
    window = window_of(
        answer(), answer(status="fenced"), answer(status="invalid"), answer(status=None, failed=True, tokens=None)
    )
    figures = figures_of(window, NOW, since_start=Speculation())
    assert figures.value("answers_per_s") == 4 / 60
    assert figures.value("tokens_per_s") == 30 / 60
    assert figures.value("validity") == 2 / 3
    assert figures.value("error_rate") == 1 / 4
    assert figures.total.untold == 1


def test_figures_that_nothing_tells_are_none() -> None:
    figures = figures_of(Window(60), NOW, since_start=Speculation())
    assert {metric.name: figures.value(metric.name) for metric in METRICS} == {
        **dict.fromkeys([metric.name for metric in METRICS]),
        "answers_per_s": 0,
        "tokens_per_s": 0,
        "servers_down": 0,
    }
    assert figures.acceptance_from is None


def test_latencies_are_known_to_one_percent() -> None:
    source = random.Random(7)
    values = sorted(source.lognormvariate(0, 2) for _ in range(2_000))
    tally = Tally()
    for value in values:
        tally.count(answer(latency_s=value))
    for quantile in (0.5, 0.99, 1.0):
        exact = values[math.ceil(quantile * len(values)) - 1]
        assert abs((tally.latency(quantile) or 0) / exact - 1) < 0.01


def test_answers_tell_of_drafts_before_the_server_does_and_its_growth_before_all_it_counts() -> None:
    window = window_of(answer())
    since_start = Speculation(90, 100, 50)
    assert figures_of(window, NOW, since_start=Speculation()).acceptance_from is None
    figures = figures_of(window, NOW, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("server since its start", 0.9)
    window.count_server(NOW, Speculation(30, 60, 20))
    figures = figures_of(window, NOW, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("server", 0.5)
    assert figures.value("acceptance_length") == 2.5
    window.count(answer(speculation=Speculation(1, 4, 2)), NOW)
    figures = figures_of(window, NOW, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("answers", 0.25)
    assert figures.value("acceptance_length") == 1.5


def test_clients_can_not_make_more_than_some_groups_at_once_or_over_time() -> None:
    at_once = window_of(*(answer(schema=f"s{number}") for number in range(1_000))).groups(NOW)
    assert len(at_once) == 101
    assert at_once[OTHERS].answers == 900
    names = (answer(-number / 200, schema=f"s{number}") for number in range(12_000))
    over_time = window_of(*names, *(answer(-second) for second in range(60))).groups(NOW)
    assert len(over_time) == 101
    assert over_time["tiny", "order"].answers == 60, "the largest keep their names"
    assert sum(tally.answers for tally in over_time.values()) == pytest.approx(12_060, abs=30)
