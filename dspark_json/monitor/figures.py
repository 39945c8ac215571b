"""The figures of a look at a server's answers: what is shown, exported, and what alerts are about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.tally import summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark_json.monitor.tally import Tally
    from dspark_json.monitor.window import Group, Window

__all__ = ["METRICS", "AcceptanceSource", "Figures", "Lag", "Metric", "figures_of"]

Unit = Literal["share", "seconds", "number"]
AcceptanceSource = Literal["answers", "server", "server since its start"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that an alert can be about; ``doc`` ends the sentence "it is …"."""

    name: str
    unit: Unit
    doc: str


METRICS: Final = (
    Metric("answers_per_s", "number", "answers a second"),
    Metric("tokens_per_s", "number", "tokens a second that the model wrote, of the answers that tell their usage"),
    Metric("validity", "share", "the share of contents that are values of their schema's type, repaired or not"),
    Metric("error_rate", "share", "the share of answers with an error or an error status"),
    Metric("acceptance_rate", "share", "the share of drafted tokens that the model accepted"),
    Metric("acceptance_length", "number", "tokens a step of speculation, the model's own included"),
    Metric("latency_p50", "seconds", "the median time from request to end of the answers that came whole"),
    Metric("latency_p99", "seconds", "the 99th percentile of that"),
    Metric("lag", "seconds", "the age of the oldest record that the stream of --checkpoint has yet to write"),
    Metric("lag_records", "number", "how many records that stream has yet to write"),
    Metric(
        "servers_down",
        "number",
        "how many of the servers do not answer, can't be read, or have left their folder",
    ),
)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a stream is behind its servers."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One look. ``window_s`` is what the figures are over; the lag is that of now, None where no stream is watched.

    ``acceptance_from`` says who told of drafts: the answers themselves, or the server's counters.
    ``down`` says of each address whose server is down, or whose records can't be read, why and what that means for the
    figures.
    ``read_us`` is when a look last could read all that there was to read, without a note; before that, when the watch
    began.
    """

    at_us: int
    window_s: float
    total: Tally
    speculation: Speculation
    acceptance_from: AcceptanceSource | None
    read_us: int
    groups: Mapping[Group, Tally] = field(default_factory=dict)
    lag: Lag | None = None
    lost: int = 0
    notes: Sequence[str] = ()
    down: Mapping[str, str] = field(default_factory=dict)

    def value(self, metric: str) -> float | None:
        """A figure by its name in ``METRICS``; None where nothing tells it."""
        total = self.total
        values: dict[str, float | None] = {
            "answers_per_s": total.answers / self.window_s,
            "tokens_per_s": total.tokens / self.window_s,
            "validity": total.validity,
            "error_rate": total.error_rate,
            "acceptance_rate": self.speculation.rate,
            "acceptance_length": self.speculation.length,
            "latency_p50": total.latency(0.5),
            "latency_p99": total.latency(0.99),
            "lag": None if self.lag is None else self.lag.seconds,
            "lag_records": None if self.lag is None else self.lag.records,
            "servers_down": len(self.down),
        }
        return values[metric]

    @property
    def acceptance_told_by(self) -> str | None:
        """Who told of drafts, in words: of the answers, how many; None where nobody did."""
        if self.acceptance_from == "answers":
            return f"{self.total.speculating:,} of {self.total.answers:,} answers"
        return None if self.acceptance_from is None else f"the {self.acceptance_from}"

    def document(self) -> dict[str, Any]:
        """The look as JSON: times in seconds, shares from 0 to 1, null where nothing tells."""
        return {
            "at": self.at_us / 1_000_000,
            "window_s": self.window_s,
            **{metric.name: self.value(metric.name) for metric in METRICS},
            "acceptance_from": self.acceptance_from,
            "answers": self.total.answers,
            "answers_with_drafts": self.total.speculating,
            "answers_without_usage": self.total.untold,
            "answers_judged_as_json": self.total.untyped,
            "lost_records": self.lost,
            "parse_status": dict(sorted(self.total.statuses.items())),
            "groups": [
                {
                    "model": model,
                    "schema": schema,
                    "answers": tally.answers,
                    "error_rate": tally.error_rate,
                    "validity": tally.validity,
                    "answers_with_drafts": tally.speculating,
                    "acceptance_rate": tally.speculation.rate,
                    "acceptance_length": tally.speculation.length,
                    "latency_p50": tally.latency(0.5),
                    "latency_p99": tally.latency(0.99),
                    "parse_status": dict(sorted(tally.statuses.items())),
                }
                for (model, schema), tally in self.groups.items()
            ],
            "down": dict(self.down),
            "notes": list(self.notes),
        }


def figures_of(
    window: Window,
    now_us: int,
    *,
    since_start: Speculation,
    lag: Lag | None = None,
    lost: int = 0,
    notes: Sequence[str] = (),
    read_us: int | None = None,
    down: Mapping[str, str] | None = None,
) -> Figures:
    """The figures of a window.

    Where no answer tells of drafts the server's counters do: what they grew by, or (``since_start``) all they count
    where there was no second look yet. ``read_us`` is None where this look could read all.
    """
    groups = window.groups(now_us)
    total = summed(groups.values())
    if total.untyped:
        notes = [
            *notes,
            f"{total.untyped:,} answers are judged as JSON alone: their schema is not registered or has no type",
        ]
    source: AcceptanceSource | None
    if total.speculating:
        speculation, source = total.speculation, "answers"
    elif (server := window.server(now_us)).drafts > 0:
        speculation, source = server, "server"
    elif since_start.drafts > 0:
        speculation, source = since_start, "server since its start"
    else:
        speculation, source = Speculation(), None
    return Figures(
        now_us,
        window.seconds,
        total,
        speculation,
        source,
        now_us if read_us is None else read_us,
        groups,
        lag,
        lost,
        tuple(notes),
        dict(down or {}),
    )
