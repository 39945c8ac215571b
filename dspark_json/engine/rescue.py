"""What found no column: the values of ``_rescued_data`` and the paths they go by (DESIGN §6)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dspark_json.engine.json_spans import Value

__all__ = ["Path", "Rescue"]

_PLAIN_STEP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Path:
    """A place inside a record: the place it is in, and a member's name or an array's index. ``None`` is the root."""

    parent: Path | None
    step: str | int

    def __str__(self) -> str:
        steps: list[str] = []
        place: Path | None = self
        while place is not None:
            steps.append(_written(place.step, first=place.parent is None))
            place = place.parent
        return "".join(reversed(steps))


def _written(step: str | int, *, first: bool) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_STEP.fullmatch(step):
        return step if first else f".{step}"
    return f"['{json.dumps(step, ensure_ascii=False)[1:-1]}']"


class Rescue:
    """Collects the values of one record that found no column, and counts the mismatches among them.

    Without ``keeps_unknown`` only the mismatches are kept (``schemaEvolutionMode=none``).
    """

    __slots__ = ("_entries", "_keeps_unknown", "mismatches")

    def __init__(self, *, keeps_unknown: bool = True) -> None:
        self._entries: list[tuple[int, int, str, str]] = []  # place in the text, place inside a content, path, JSON
        self._keeps_unknown = keeps_unknown
        self.mismatches = 0

    def for_content(self) -> Rescue:
        """An empty one for a content of this record, to be absorbed after it is read."""
        return Rescue(keeps_unknown=self._keeps_unknown)

    def unknown(self, path: Path | None, value: Value) -> None:
        """Keeps the value of a member that no column has; a null says nothing and is not kept."""
        if self._keeps_unknown and not value.is_null:
            self._entries.append((value.start, 0, _text(path), value.raw()))

    def mismatch(self, path: Path | None, value: Value) -> None:
        """Keeps a value of another type than its column has."""
        self.mismatches += 1
        self._entries.append((value.start, 0, _text(path), value.raw()))

    def absorb(self, content: Rescue, position: int) -> None:
        """Takes over what a content kept; the content's text stands at ``position`` of the record."""
        self.mismatches += content.mismatches
        self._entries.extend((position, inner, path, raw) for inner, _, path, raw in content._entries)

    def text(self) -> str | None:
        """``{"<path>": <value as written>, …}`` in the order of the values in the record; ``None``: there are none."""
        if not self._entries:
            return None
        members = (
            f"{json.dumps(path, ensure_ascii=False)}: {raw}" for _, _, path, raw in sorted(self._entries, key=_place)
        )
        return "{" + ", ".join(members) + "}"


def _place(entry: tuple[int, int, str, str]) -> tuple[int, int]:
    return entry[0], entry[1]


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
