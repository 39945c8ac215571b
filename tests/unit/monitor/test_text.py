"""What people are shown: figures in their units, and nothing that a terminal would obey."""

from __future__ import annotations

import io

from rich.console import Console
from unit.monitor.test_window import NOW, answer, window_of

from dspark_json.monitor.alerts import AlertWatch, parse_alert
from dspark_json.monitor.figures import METRICS, Figures, Lag, figures_of
from dspark_json.monitor.page import rendered
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.text import shown, summary_lines

EVIL = "\x1b[31m[red]\u202e"
METRIC = {metric.name: metric for metric in METRICS}


def looked() -> Figures:
    window = window_of(
        answer(model=EVIL, schema=EVIL, speculation=Speculation(3, 6, 2)),
        answer(status="truncated"),
        answer(tokens=None),
    )
    return figures_of(
        window, NOW, since_start=Speculation(), lag=Lag(12, 90.0), lost=4, notes=(EVIL,), down={"x": EVIL}
    )


def test_figures_have_their_units_and_what_nothing_tells_is_a_dash() -> None:
    for name, value, said in (
        ("validity", 0.5, "50.0 %"),
        ("latency_p50", 0.25, "250 ms"),
        ("latency_p99", 12.34, "12.34 s"),
        ("lag", 4000.0, "4,000 s"),
        ("answers_per_s", 1234.0, "1,234"),
        ("tokens_per_s", 0.25, "0.25"),
    ):
        assert shown(METRIC[name], value) == said
    assert {shown(metric, None) for metric in METRICS} == {"–"}


def test_text_and_page_tell_the_same_and_obey_nobody() -> None:
    watch = AlertWatch(parse_alert("lag > 30s"))
    watch.look(90, NOW)
    text = "\n".join(summary_lines(EVIL, looked(), [watch]))
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(rendered(EVIL, looked(), [watch]))
    assert isinstance(console.file, io.StringIO)
    for said in (text, console.file.getvalue()):
        assert "\x1b" not in said
        assert "\u202e" not in said
        assert said.count(r"\x1b[31m[red]\u202e") == 5
        assert "DOWN: " in said
        assert "1 of 3 answers" in said
        assert "alert lag > 30s: FIRING (90.00 s)" in said
        assert "3 answers in the last 1m" in said
        assert "truncated=1" in said
        assert "50.0 %" in said
