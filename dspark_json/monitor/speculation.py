"""How many drafted tokens a model accepted, as vLLM counts it (``vllm/v1/spec_decode/metrics.py``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Speculation"]


@dataclass(frozen=True, slots=True)
class Speculation:
    """Tokens that drafts proposed and the model accepted, in ``drafts`` steps of speculation."""

    accepted: float = 0
    drafted: float = 0
    drafts: float = 0

    def __add__(self, other: Speculation) -> Speculation:
        return Speculation(self.accepted + other.accepted, self.drafted + other.drafted, self.drafts + other.drafts)

    @property
    def rate(self) -> float | None:
        """The share of drafted tokens that was accepted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted > 0 else None

    @property
    def length(self) -> float | None:
        """The mean acceptance length: accepted tokens a step and the one the model adds; None without a step."""
        return 1 + self.accepted / self.drafts if self.drafts > 0 else None
