"""Figures as plain text, for people."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from dspark_json.monitor.alerts import shown_seconds
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark_json.monitor.alerts import AlertWatch
    from dspark_json.monitor.figures import Figures, Metric
    from dspark_json.monitor.tally import Tally

__all__ = ["GROUP_HEAD", "alert_line", "group_cells", "headline", "shown", "summary_lines"]

GROUP_HEAD: Final = (
    "model",
    "schema",
    "answers",
    "errors",
    "valid",
    "accepted",
    "length",
    "p50",
    "p99",
    "parse_status",
)
NOTHING: Final = "–"
_NAME_CHARACTERS: Final = 40


def shown(metric: Metric, value: float | None) -> str:
    """A figure in its unit; a dash where nothing tells it."""
    if value is None:
        return NOTHING
    if metric.unit == "share":
        return _share(value)
    return _seconds(value) if metric.unit == "seconds" else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def headline(target: str, figures: Figures) -> str:
    """What the figures are of, and over what time."""
    at = dt.datetime.fromtimestamp(figures.at_us / 1_000_000).astimezone()
    answers = f"{figures.total.answers:,} answers in the last {shown_seconds(figures.window_s)}"
    return f"{printable(target)}  {at:%H:%M:%S}  {answers}"


def summary_lines(target: str, figures: Figures, alerts: Sequence[AlertWatch]) -> Iterator[str]:
    """The whole look, a line each."""
    from dspark_json.monitor.figures import METRICS

    yield headline(target, figures)
    for metric in METRICS:
        told = (
            f"  (told by {figures.acceptance_told_by})"
            if metric.name.startswith("acc") and figures.acceptance_told_by
            else ""
        )
        yield f"  {metric.name:<18}{shown(metric, figures.value(metric.name)):>10}{told}"
    if figures.total.untold:
        yield f"  {figures.total.untold:,} answers do not tell their usage"
    if figures.lost:
        yield f"  {figures.lost:,} records were gone before they were read"
    if figures.groups:
        rows = [GROUP_HEAD, *(group_cells(*group, tally) for group, tally in figures.groups.items())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(GROUP_HEAD))]
        for row in rows:
            yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
    for alert in alerts:
        yield f"  {alert_line(alert)}"
    for why in figures.down.values():
        yield f"  DOWN: {printable(why)}"
    for note in figures.notes:
        yield f"  note: {printable(note)}"


def group_cells(model: str, schema: str, tally: Tally) -> tuple[str, ...]:
    """The cells of one model and schema, under ``GROUP_HEAD``."""
    length = tally.speculation.length
    return (
        printable(model, _NAME_CHARACTERS),
        printable(schema, _NAME_CHARACTERS),
        f"{tally.answers:,}",
        _share(tally.error_rate),
        _share(tally.validity),
        _share(tally.speculation.rate),
        NOTHING if length is None else f"{length:.2f}",
        _seconds(tally.latency(0.5)),
        _seconds(tally.latency(0.99)),
        " ".join(f"{status}={count:,}" for status, count in tally.statuses.most_common()) or NOTHING,
    )


def alert_line(watch: AlertWatch) -> str:
    """An alert, and how it stands."""
    value = shown(watch.alert.metric, watch.value)
    state = "FIRING" if watch.firing else "no figure" if watch.value is None else "crossed" if watch.since_us else "ok"
    return f"alert {printable(watch.alert.text)}: {state} ({value})"


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value * 100:.1f} %"


def _seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"
