"""Tallies, and the window of time they are over."""

from __future__ import annotations

import math
import random

from dspark_json.monitor.figures import METRICS, figures_of
from dspark_json.monitor.tally import Answer, Speculation, Tally
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


def window_of(*answers: Answer, longest_s: float = 60) -> Window:
    window = Window(longest_s)
    for one in answers:
        window.count(one)
    return window


def test_only_the_answers_of_the_window_count() -> None:
    window = window_of(*(answer(-age) for age in range(100)))
    assert figures_of(window, NOW, 60, since_start=Speculation()).total.answers == 60
    assert figures_of(window, NOW, 10, since_start=Speculation()).total.answers == 10
    window.forget(NOW + 30 * SECOND)
    assert figures_of(window, NOW + 30 * SECOND, 60, since_start=Speculation()).total.answers == 30


def test_what_another_machines_clock_has_ahead_of_now_counts() -> None:
    assert figures_of(window_of(answer(3600)), NOW, 60, since_start=Speculation()).total.answers == 1


def test_a_long_window_has_no_more_slices_than_a_short_one() -> None:
    window = window_of(*(answer(-age) for age in range(0, 7 * 86_400, 60)), longest_s=7 * 86_400)
    window.forget(NOW)
    assert len(window._slices) <= 602


def test_rates_are_over_the_window_and_shares_over_what_there_is() -> None:
    window = window_of(
        answer(), answer(status="fenced"), answer(status="invalid"), answer(status=None, failed=True, tokens=None)
    )
    figures = figures_of(window, NOW, 60, since_start=Speculation())
    assert figures.value("answers_per_s") == 4 / 60
    assert figures.value("tokens_per_s") == 30 / 60
    assert figures.value("validity") == 2 / 3
    assert figures.value("error_rate") == 1 / 4
    assert figures.total.untold == 1


def test_figures_that_nothing_tells_are_none() -> None:
    figures = figures_of(Window(60), NOW, 60, since_start=Speculation())
    assert {metric.name: figures.value(metric.name) for metric in METRICS} == {
        **dict.fromkeys([metric.name for metric in METRICS]),
        "answers_per_s": 0,
        "tokens_per_s": 0,
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
    assert figures_of(window, NOW, 60, since_start=Speculation()).acceptance_from is None
    figures = figures_of(window, NOW, 60, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("server since its start", 0.9)
    window.count_server(NOW, Speculation(30, 60, 20))
    figures = figures_of(window, NOW, 60, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("server", 0.5)
    assert figures.value("acceptance_length") == 2.5
    window.count(answer(speculation=Speculation(1, 4, 2)))
    figures = figures_of(window, NOW, 60, since_start=since_start)
    assert (figures.acceptance_from, figures.value("acceptance_rate")) == ("answers", 0.25)
    assert figures.value("acceptance_length") == 1.5


def test_clients_can_not_make_more_than_some_groups() -> None:
    window = window_of(*(answer(schema=f"s{number}") for number in range(1_000)))
    groups = window.groups(NOW, 60)
    assert len(groups) == 101
    assert groups[OTHERS].answers == 900
