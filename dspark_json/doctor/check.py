"""What a check says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Check", "Verdict", "failed", "fine", "is_failure", "skipped", "to_document", "warned"]

Verdict = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``name`` is stable, ``evidence`` is what was found, ``remedy`` what to do (empty where nothing is)."""

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""


def fine(name: str, evidence: str) -> Check:
    """All is well."""
    return Check(name, "ok", evidence)


def warned(name: str, evidence: str, remedy: str) -> Check:
    """It works, but not as well as it could, or not for long."""
    return Check(name, "warn", evidence, remedy)


def failed(name: str, evidence: str, remedy: str) -> Check:
    """It does not work."""
    return Check(name, "fail", evidence, remedy)


def skipped(name: str, why: str, remedy: str = "") -> Check:
    """It was not looked at, or it is not needed here."""
    return Check(name, "skipped", why, remedy)


def is_failure(checks: Sequence[Check]) -> bool:
    """Whether one of the checks failed."""
    return any(check.verdict == "fail" for check in checks)


def to_document(checks: Sequence[Check]) -> dict[str, object]:
    """The checks for ``--json``: ``{"checks":[{"name","verdict","evidence","remedy"}]}``."""
    return {"checks": [asdict(check) for check in checks]}
