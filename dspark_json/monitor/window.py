"""The last minutes of a server's answers, in slices of time that are dropped when they are too old."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.tally import Tally

if TYPE_CHECKING:
    from dspark_json.monitor.tally import Answer

__all__ = ["OTHERS", "Group", "Window"]

Group = tuple[str, str]
"""Model and schema, by the names that are shown."""

OTHERS: Final[Group] = ("(others)", "(others)")

_SLICES: Final = 240  # of any window: its edge is known to half a slice, 0.2 %
_MOST_GROUPS: Final = 100  # of a slice and of the window: clients choose the names of schemas
_US: Final = 1_000_000


@dataclass(slots=True)
class _Slice:
    groups: dict[Group, Tally] = field(default_factory=dict)
    server: Speculation = field(default_factory=Speculation)


class Window:
    """Tallies by model and schema over the last ``seconds``, in slices of 1/240 of them.

    A moment is in µs since 1970. What lies ahead of "now" counts as now: the clocks of two machines differ.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._width_us = max(round(seconds * _US), 1)
        self._slice_us = max(math.ceil(self._width_us / _SLICES), 1)
        self._slices: dict[int, _Slice] = {}

    def count(self, answer: Answer, now_us: int) -> None:
        """One more answer, unless it is too old; names beyond the first hundred of a slice are not told apart."""
        key = min(answer.at_us, now_us) // self._slice_us
        if key < self._first(now_us):
            return
        groups = self._slices.setdefault(key, _Slice()).groups
        group = (answer.model, answer.schema)
        if group not in groups and len(groups) >= _MOST_GROUPS:
            group = OTHERS
        groups.setdefault(group, Tally()).count(answer)

    def count_server(self, now_us: int, more: Speculation) -> None:
        """Drafts that the server's own counters told of now."""
        self._slices.setdefault(now_us // self._slice_us, _Slice()).server += more

    def forget(self, now_us: int) -> None:
        """Drop what is too old."""
        first = self._first(now_us)
        for key in [key for key in self._slices if key < first]:
            del self._slices[key]

    def groups(self, now_us: int) -> dict[Group, Tally]:
        """The tallies by model and schema, in order of their names; all but the hundred largest are the others."""
        found: dict[Group, Tally] = {}
        for part in self._parts(now_us):
            for group, tally in part.groups.items():
                found.setdefault(group, Tally()).add(tally)
        others = found.pop(OTHERS, Tally())
        largest = set(heapq.nlargest(_MOST_GROUPS, found, key=lambda group: (found[group].answers, group)))
        for group in found.keys() - largest:
            others.add(found.pop(group))
        if others.answers:
            found[OTHERS] = others
        return dict(sorted(found.items()))

    def server(self, now_us: int) -> Speculation:
        """What the server's counters told."""
        total = Speculation()
        for part in self._parts(now_us):
            total += part.server
        return total

    def _first(self, now_us: int) -> int:
        """The oldest slice: the first whose middle is in the window, since its edge cuts a slice in two."""
        return math.ceil((now_us - self._width_us) / self._slice_us - 0.5)

    def _parts(self, now_us: int) -> list[_Slice]:
        first = self._first(now_us)
        return [part for key, part in self._slices.items() if key >= first]
