"""Counts of answers that add up: over time, over models and over schemas."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.monitor.speculation import Speculation

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VALID", "Answer", "Tally", "summed"]

VALID: Final = frozenset({"ok", "leading_text", "fenced", "control_chars", "trailing_text"})
"""The statuses of a content that is a value of its type (DESIGN §6), repaired or not."""

_GROWTH: Final = math.log(1.01)  # a latency is known to 1 %


@dataclass(frozen=True, slots=True)
class Answer:
    """What one record tells the monitor.

    ``tokens`` are those the model wrote (None: the record has no usage), ``statuses`` the ``parse_status`` of each
    choice that has one, ``latency_s`` is None unless the answer came whole, ``speculation`` None unless it tells,
    ``untyped`` that its contents were judged as JSON alone though a schema was asked for.
    """

    at_us: int
    model: str
    schema: str
    failed: bool
    tokens: int | None
    statuses: tuple[str, ...]
    latency_s: float | None
    speculation: Speculation | None
    untyped: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of some answers. ``untold`` have no usage; ``speculating`` told of their drafts.

    ``untyped`` have contents that were judged as JSON alone though a schema was asked for.
    """

    answers: int = 0
    failed: int = 0
    tokens: int = 0
    untold: int = 0
    speculating: int = 0
    untyped: int = 0
    speculation: Speculation = field(default_factory=Speculation)
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    latencies: collections.Counter[int] = field(default_factory=collections.Counter)

    def count(self, answer: Answer) -> None:
        """One more answer."""
        self.answers += 1
        self.failed += answer.failed
        self.tokens += answer.tokens or 0
        self.untold += answer.tokens is None
        self.untyped += answer.untyped and bool(answer.statuses)
        self.statuses.update(answer.statuses)
        if answer.latency_s is not None:
            self.latencies[_bucket(answer.latency_s)] += 1
        if answer.speculation is not None:
            self.speculating += 1
            self.speculation += answer.speculation

    def add(self, other: Tally) -> None:
        """Adds other answers to these."""
        self.answers += other.answers
        self.failed += other.failed
        self.tokens += other.tokens
        self.untold += other.untold
        self.speculating += other.speculating
        self.untyped += other.untyped
        self.speculation += other.speculation
        self.statuses.update(other.statuses)
        self.latencies.update(other.latencies)

    @property
    def error_rate(self) -> float | None:
        """The share of answers with an error or an error status; None where there are no answers."""
        return self.failed / self.answers if self.answers else None

    @property
    def validity(self) -> float | None:
        """The share of contents that are values of their type, of those that were to be JSON; None without any."""
        contents = self.statuses.total()
        return sum(self.statuses[status] for status in VALID) / contents if contents else None

    def latency(self, quantile: float) -> float | None:
        """A quantile of the time from request to end of the answers that came whole, in seconds, to 1 %."""
        left = math.ceil(quantile * self.latencies.total())
        for bucket in sorted(self.latencies):
            left -= self.latencies[bucket]
            if left <= 0:
                return math.exp(bucket * _GROWTH)
        return None


def summed(tallies: Iterable[Tally]) -> Tally:
    """The counts of all of them together."""
    total = Tally()
    for one in tallies:
        total.add(one)
    return total


def _bucket(seconds: float) -> int:
    return round(math.log(max(seconds, 1e-6)) / _GROWTH)
