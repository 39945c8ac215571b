"""Alerts: their grammar, and when they fire."""

from __future__ import annotations

import pytest

from dspark_json.errors import InvalidOptionError
from dspark_json.monitor.alerts import AlertWatch, duration, parse_alert, shown_seconds
from dspark_json.monitor.figures import METRICS

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "metric", "operator", "bound", "for_s"),
    [
        ("acceptance_rate < 0.6 for 5m", "acceptance_rate", "<", 0.6, 300),
        ("validity<99%", "validity", "<", 0.99, 0),
        ("  error_rate >= 5%   for 90s ", "error_rate", ">=", 0.05, 90),
        ("latency_p99 > 2.5s for 1h", "latency_p99", ">", 2.5, 3600),
        ("latency_p50 > 500ms", "latency_p50", ">", 0.5, 0),
        ("lag > 2m", "lag", ">", 120, 0),
        ("lag > 2 m for 90 s", "lag", ">", 120, 90),
        ("validity < 99 % for 5 m", "validity", "<", 0.99, 300),
        ("lag > 30", "lag", ">", 30, 0),
        ("lag_records <= 1000", "lag_records", "<=", 1000, 0),
        ("answers_per_s < 1 for 1d", "answers_per_s", "<", 1, 86_400),
        ("acceptance_length < 2.5", "acceptance_length", "<", 2.5, 0),
    ],
)
def test_an_alert_is_a_metric_a_bound_and_perhaps_a_time(
    text: str, metric: str, operator: str, bound: float, for_s: float
) -> None:
    alert = parse_alert(text)
    assert (alert.metric.name, alert.operator, alert.bound, alert.for_s) == (metric, operator, bound, for_s)
    assert alert.text == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has not the form of one"),
        ("acceptance_rate", "METRIC OPERATOR NUMBER [for DURATION]"),
        ("acceptance_rate < 0.6 since 5m", "it has not the form of one"),
        ("acceptance_rat < 0.6", 'Did you mean "acceptance_rate"?'),
        ("latency > 2s", "latency_p99"),
        ("validity = 1", '"=" is not an operator'),
        ("validity <> 1", '"<>" is not an operator'),
        ("validity < 99", "validity is a share"),
        ("validity < 101%", "0 to 1, 0% to 100%"),
        ("validity < -1", "validity is a share"),
        ("error_rate > 1s", "error_rate is a share"),
        ("answers_per_s < 5s", '"5s" is no bound for answers_per_s'),
        ("lag > nan", '"nan" is no bound for lag'),
        ("lag > 5 for ever", '"ever" is not a duration'),
        ("lag > 5 for 0s", '"0s" is not a duration'),
        ("lag > 5 for 2", '"2" is not a duration with its unit'),
        ("lag > 5 for 2 min", '"2 min" is not a duration with its unit'),
        ("lag > 5 for", "it has not the form of one"),
        ("lag > 5 minutes for 2m", '"5 minutes" is no bound for lag'),
        ("answers_per_s < 5 s", '"5 s" is no bound for answers_per_s'),
        ("validity < 990 %", '"990 %" is none'),
        ("lag > 5 for 8d", "7d at most"),
        ("lag > \x1b[31m", r"\x1b[31m"),
    ],
)
def test_what_is_no_alert_is_refused_with_what_is(text: str, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_alert(text)
    assert said in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_every_metric_can_be_asked_about() -> None:
    for metric in METRICS:
        assert parse_alert(f"{metric.name} > 0.5").metric is metric


def test_an_alert_fires_when_all_looks_of_its_time_have_crossed_the_bound() -> None:
    watch = AlertWatch(parse_alert("acceptance_rate < 0.6 for 10s"))
    changes = [
        watch.look(value, at * SECOND)
        for at, value in [(0, 0.5), (5, 0.4), (8, 0.7), (9, 0.5), (18, 0.5), (19, 0.5), (30, 0.1), (31, 0.6), (32, 0.6)]
    ]
    assert changes == [False, False, False, False, False, True, False, True, False]
    assert not watch.firing


def test_a_figure_that_nothing_tells_crosses_no_bound() -> None:
    watch = AlertWatch(parse_alert("validity < 50%"))
    assert not watch.look(None, 0)
    assert watch.look(0.1, 1)
    assert watch.look(None, 2)
    assert not watch.firing


def test_durations_are_shown_as_they_are_written() -> None:
    for text in ("90s", "5m", "1h", "2.5s"):
        seconds = duration(text)
        assert seconds is not None
        assert shown_seconds(seconds) == text
    assert duration("5") is None
