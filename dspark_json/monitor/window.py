"""The last minutes of a server's answers, in slices of time that are dropped when they are too old."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.monitor.tally import Speculation, Tally

if TYPE_CHECKING:
    from dspark_json.monitor.tally import Answer

__all__ = ["OTHERS", "Group", "Window"]

Group = tuple[str, str]
"""Model and schema, by the names that are shown."""

OTHERS: Final[Group] = ("(others)", "(others)")

_SLICES: Final = 600
_MOST_GROUPS: Final = 100  # of a slice: clients choose the names of schemas
_US: Final = 1_000_000


@dataclass(slots=True)
class _Slice:
    groups: dict[Group, Tally] = field(default_factory=dict)
    server: Speculation = field(default_factory=Speculation)


class Window:
    """Tallies by model and schema over up to ``longest_s`` seconds, in at most some hundred slices.

    A moment is in µs since 1970. What lies ahead of "now" counts as now: the clocks of two machines differ.
    """

    def __init__(self, longest_s: float) -> None:
        self._slice_us = math.ceil(max(longest_s / _SLICES, 1.0) * _US)
        self._longest = math.ceil(longest_s * _US / self._slice_us) + 1
        self._slices: dict[int, _Slice] = {}

    def count(self, answer: Answer) -> None:
        """One more answer; the names of groups beyond the first hundred of a slice are not told apart."""
        groups = self._at(answer.at_us).groups
        group = (answer.model, answer.schema)
        if group not in groups and len(groups) >= _MOST_GROUPS:
            group = OTHERS
        groups.setdefault(group, Tally()).count(answer)

    def count_server(self, at_us: int, more: Speculation) -> None:
        """Drafts that the server's own counters told of."""
        self._at(at_us).server.add(more)

    def forget(self, now_us: int) -> None:
        """Drop what is too old."""
        oldest = now_us // self._slice_us - self._longest
        for key in [key for key in self._slices if key < oldest]:
            del self._slices[key]

    def groups(self, now_us: int, seconds: float) -> dict[Group, Tally]:
        """The tallies of the last ``seconds``, by model and schema in order of their names."""
        found: dict[Group, Tally] = {}
        for part in self._since(now_us, seconds):
            for group, tally in part.groups.items():
                found.setdefault(group, Tally()).add(tally)
        return dict(sorted(found.items()))

    def server(self, now_us: int, seconds: float) -> Speculation:
        """What the server's counters told in the last ``seconds``."""
        total = Speculation()
        for part in self._since(now_us, seconds):
            total.add(part.server)
        return total

    def _at(self, at_us: int) -> _Slice:
        return self._slices.setdefault(at_us // self._slice_us, _Slice())

    def _since(self, now_us: int, seconds: float) -> list[_Slice]:
        first = (now_us - round(seconds * _US)) // self._slice_us + 1
        return [part for key, part in self._slices.items() if key >= first]
