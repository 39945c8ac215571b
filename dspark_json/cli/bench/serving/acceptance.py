"""How many drafted tokens a model accepted, from an answer's own figures or from a server's counters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_json.cli.bench.serving.shares import rounded_share
from dspark_json.monitor.counters import ACCEPTED, DRAFTED, DRAFTS, series_of
from dspark_json.monitor.speculation import Speculation
from dspark_json.spool.http_answers import number

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_answer(metrics: object) -> Speculation | None:
    """What an answer's ``metrics`` say of its own drafts; None where they say nothing."""
    told = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(told, dict):
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (number(told.get(name)) for name in names)
    if steps is None or drafted is None or accepted is None:
        return None
    return Speculation(accepted, drafted, steps)


@dataclass(frozen=True, slots=True)
class Counters:
    """What a server's counters of speculative decoding stood at, by name and labels; empty where it has none."""

    values: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, text: str) -> Counters:
        """Read them off the Prometheus text of ``GET /metrics``."""
        return cls(
            {key: int(value) for key, value in series_of(text, DRAFTS, DRAFTED, ACCEPTED).items() if value < math.inf}
        )

    def since(self, before: Counters) -> Growth | None:
        """What was added since ``before``; None where there are no such counters."""
        if not self.values:
            return None
        sums: dict[str, int] = {}
        reset = False
        for (name, labels), value in self.values.items():
            earlier = before.values.get((name, labels), 0)
            if value < earlier:  # the server was started anew in between, and counts from 0
                reset, earlier = True, 0
            sums[name] = sums.get(name, 0) + value - earlier
        counted = Speculation(sums.get(ACCEPTED, 0), sums.get(DRAFTED, 0), sums.get(DRAFTS, 0))
        return Growth(counted, reset=reset)


@dataclass(frozen=True, slots=True)
class Growth:
    """How counters grew. ``reset``: they began anew meanwhile; what they had counted before that is not known."""

    counted: Speculation
    reset: bool


def as_document(found: Speculation) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "rate": None if found.rate is None else rounded_share(found.rate),
        "length": None if found.length is None else round(found.length, 3),
        "steps": found.drafts,
        "draft_tokens": found.drafted,
        "accepted_tokens": found.accepted,
    }
