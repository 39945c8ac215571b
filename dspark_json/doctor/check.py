"""What a check says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "Check",
    "Verdict",
    "attempted",
    "attempted_all",
    "failed",
    "fine",
    "is_failure",
    "skipped",
    "to_document",
    "warned",
]

_NOT_ALLOWED: Final = "Run dspark-json doctor as a user who may look at it, such as the server's."
_NOT_POSSIBLE: Final = "Check the file system it is on."

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


def attempted(name: str, look: Callable[[], Check]) -> Check:
    """What ``look`` finds; what the operating system refuses fails this check, and no other one."""
    try:
        return look()
    except OSError as error:
        return _refused(name, error)


def attempted_all(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """The checks of ``look``; where the operating system refuses, the last one is called ``name`` and fails."""
    try:
        yield from look()
    except OSError as error:
        yield _refused(name, error)


def is_failure(checks: Sequence[Check]) -> bool:
    """Whether one of the checks failed."""
    return any(check.verdict == "fail" for check in checks)


def to_document(checks: Sequence[Check]) -> dict[str, object]:
    """The checks for ``--json``: ``{"checks":[{"name","verdict","evidence","remedy"}]}``."""
    return {"checks": [asdict(check) for check in checks]}


def _refused(name: str, error: OSError) -> Check:
    what = f"{error.filename} can't be looked at" if error.filename else "it can't be looked at"
    return failed(
        name, f"{what}: {reason(error)}", _NOT_ALLOWED if isinstance(error, PermissionError) else _NOT_POSSIBLE
    )
