"""Alerts: a figure, a bound, and for how long the bound must be crossed."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.errors import InvalidOptionError
from dspark_json.monitor.figures import METRICS
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.monitor.figures import Metric

__all__ = ["FORM", "Alert", "AlertWatch", "duration", "parse_alert", "shown_seconds"]

FORM: Final = (
    "METRIC OPERATOR NUMBER [for DURATION], such as "
    '"acceptance_rate < 0.6 for 5m", "validity < 99%" or "latency_p99 > 2.5s for 90s"'
)

_METRICS: Final = {metric.name: metric for metric in METRICS}
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_S: Final = 7 * 86_400.0
_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_DURATION: Final = re.compile(rf"({_NUMBER})\s*(ms|s|m|h|d)")
# A number may have its unit behind a blank, as sizes of options have it.
_QUANTITY: Final = r"\S+(?:\s+(?!for\b)[A-Za-z%]+)?"
_ALERT: Final = re.compile(
    rf"(?P<metric>[^\s<>=!]+)\s*(?P<operator>[<>=!]+)\s*(?P<bound>{_QUANTITY})(?:\s+for\s+(?P<time>{_QUANTITY}))?"
)
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; ``text`` is how it was written, ``bound`` in the metric's unit (shares from 0 to 1, seconds)."""

    text: str
    metric: Metric
    operator: str
    bound: float
    for_s: float

    def is_crossed(self, value: float | None) -> bool:
        """Whether a figure is beyond the bound; one that nothing tells is not."""
        return value is not None and _OPERATORS[self.operator](value, self.bound)


@dataclass(slots=True)
class AlertWatch:
    """An alert from look to look: it fires once its bound has been crossed at every look for its time."""

    alert: Alert
    value: float | None = None
    firing: bool = False
    since_us: int | None = None

    def look(self, value: float | None, now_us: int) -> bool:
        """Take a figure; tells whether the alert began or ceased to fire by it."""
        self.value = value
        if not self.alert.is_crossed(value):
            self.since_us = None
        elif self.since_us is None:
            self.since_us = now_us
        fires = self.since_us is not None and now_us - self.since_us >= self.alert.for_s * 1_000_000
        changed, self.firing = fires != self.firing, fires
        return changed


def parse_alert(text: str) -> Alert:
    """The alert that a text means; ``InvalidOptionError`` says what it may be."""
    match = _ALERT.fullmatch(text.strip())
    if match is None:
        raise _refused(text, "it has not the form of one", FORM)
    name = match["metric"]
    metric = _METRICS.get(name)
    if metric is None:
        close = difflib.get_close_matches(name, _METRICS, n=1, cutoff=0.5)
        suggestion = f'Did you mean "{close[0]}"? ' if close else ""
        raise _refused(text, f'"{printable(name, _SHOWN)}" is not a metric', f"{suggestion}{', '.join(_METRICS)}")
    if match["operator"] not in _OPERATORS:
        raise _refused(text, f'"{match["operator"]}" is not an operator', ", ".join(_OPERATORS))
    bound = _bound(text, metric, match["bound"])
    for_s = 0.0
    if match["time"] is not None:
        found = duration(match["time"])
        if found is None:
            raise _refused(
                text, f'"{printable(match["time"], _SHOWN)}" is not a duration with its unit', "90s, 5m, 1h; 7d at most"
            )
        for_s = found
    return Alert(" ".join(text.split()), metric, match["operator"], bound, for_s)


def duration(text: str) -> float | None:
    """Seconds above 0 from a text such as ``90s``, ``5 m`` or ``1h``, a week at most; None where it is none."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    seconds = float(match[1]) * _UNITS[match[2]]
    return seconds if 0 < seconds <= _LONGEST_S else None


def shown_seconds(seconds: float) -> str:
    """A duration as it is written: ``5m``, ``90s``."""
    for unit in ("h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"


def _bound(text: str, metric: Metric, written: str) -> float:
    number = re.fullmatch(_NUMBER, written)
    if metric.unit == "share":
        if re.fullmatch(rf"{_NUMBER}\s*%", written):
            value = float(written[:-1]) / 100
        elif number is not None:
            value = float(written)
        else:
            value = -1.0
        if not 0 <= value <= 1:
            raise _refused(
                text, f'{metric.name} is a share, and "{printable(written, _SHOWN)}" is none', "0 to 1, 0% to 100%"
            )
        return value
    if number is not None:
        return float(written)
    seconds = duration(written) if metric.unit == "seconds" else None
    if seconds is None:
        wanted = "seconds, or a duration (500ms, 2s, 5m)" if metric.unit == "seconds" else "a number"
        raise _refused(text, f'"{printable(written, _SHOWN)}" is no bound for {metric.name}', wanted)
    return seconds


def _refused(text: str, why: str, allowed: str) -> InvalidOptionError:
    return InvalidOptionError(f'"{printable(text, _SHOWN)}" is not an alert: {why}', remedy=f"Allowed: {allowed}.")
