"""How many drafted tokens a model accepted, from an answer's own figures or from a server's counters.

The rate is accepted / drafted tokens, the length 1 + accepted tokens / steps with a draft, as vLLM has them
(``vllm/v1/spec_decode/metrics.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_json.cli.bench.serving.shares import rounded_share
from dspark_json.monitor.counters import ACCEPTED, DRAFTED, DRAFTS, series_of
from dspark_json.spool.http_answers import number

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Sums over steps in which a draft was made."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(self.steps + other.steps, self.drafted + other.drafted, self.accepted + other.accepted)

    @property
    def rate(self) -> float | None:
        """The share of drafted tokens that were accepted; None where none were drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def length(self) -> float | None:
        """Tokens that a step with a draft gave, on average; None where there was no step."""
        return 1 + self.accepted / self.steps if self.steps else None


def of_answer(metrics: object) -> Acceptance | None:
    """What an answer's ``metrics`` say of its own drafts; None where they say nothing."""
    told = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(told, dict):
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (number(told.get(name)) for name in names)
    if steps is None or drafted is None or accepted is None:
        return None
    return Acceptance(steps, drafted, accepted)


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
        counted = Acceptance(sums.get(DRAFTS, 0), sums.get(DRAFTED, 0), sums.get(ACCEPTED, 0))
        return Growth(counted, reset=reset)


@dataclass(frozen=True, slots=True)
class Growth:
    """How counters grew. ``reset``: they began anew meanwhile; what they had counted before that is not known."""

    counted: Acceptance
    reset: bool


def as_document(found: Acceptance) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "rate": None if found.rate is None else rounded_share(found.rate),
        "length": None if found.length is None else round(found.length, 3),
        "steps": found.steps,
        "draft_tokens": found.drafted,
        "accepted_tokens": found.accepted,
    }
