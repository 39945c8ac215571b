"""How many drafted tokens a model accepted, as an answer tells it and as ``--json`` does."""

from __future__ import annotations

from typing import Any

from dspark_json.cli.bench.serving.shares import rounded_share
from dspark_json.monitor.speculation import Speculation
from dspark_json.spool.http_answers import number


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


def as_document(found: Speculation) -> dict[str, Any]:
    """For ``--json``."""
    return {
        "rate": None if found.rate is None else rounded_share(found.rate),
        "length": None if found.length is None else round(found.length, 3),
        "steps": int(found.drafts),
        "draft_tokens": int(found.drafted),
        "accepted_tokens": int(found.accepted),
    }
