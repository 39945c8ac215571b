"""A server's own counters of speculative decoding, from its Prometheus text (vLLM: ``vllm/v1/spec_decode/metrics.py``).

A counter begins at 0 again when its process does, and counts of a process that went away are gone: what they grew by
is summed over the series, and a series that is smaller than before, or whose process started anew, grew by all of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.monitor.speculation import Speculation

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ACCEPTED", "DRAFTED", "DRAFTS", "Counters", "Growth", "SpeculationCounters", "series_of"]

ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
_STARTED: Final = "process_start_time_seconds"

# Name, labels, value and perhaps a time (exposition format 0.0.4); a label's value holds any character.
_SAMPLE: Final = re.compile(r'([A-Za-z_:][\w:]*)((?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?)[ \t]+(\S+)(?:[ \t]+-?\d+)?\s*')


def series_of(text: str, *names: str) -> dict[tuple[str, str], float]:
    """The values of all series of these names, by name and labels; a line that can't be read is left out."""
    found: dict[tuple[str, str], float] = {}
    for line in text.split("\n"):  # a label's value may hold any other line break
        if not line.startswith(names):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None or match[1] not in names:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if 0 <= value < math.inf:  # not so for NaN
            found[match[1], match[2]] = value
    return found


@dataclass(frozen=True, slots=True)
class Growth:
    """How counters grew. ``reset``: some began anew meanwhile; what they had counted before that is not known."""

    counted: Speculation
    reset: bool


@dataclass(frozen=True, slots=True)
class Counters:
    """What a server's counters stood at, by name and labels; empty where it has none.

    ``started``: when its processes did.
    """

    values: Mapping[tuple[str, str], float]
    started: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Counters:
        """Read them off the text of ``GET /metrics``."""
        return cls(series_of(text, ACCEPTED, DRAFTED, DRAFTS), series_of(text, _STARTED))

    @property
    def total(self) -> Speculation:
        """All that they have counted."""
        return _sum(self.values)

    def since(self, before: Counters) -> Growth | None:
        """What was added since ``before``; None where there are no such counters."""
        if not self.values:
            return None
        anew = any(before.started.get(key, value) != value for key, value in self.started.items())
        fell = {key for key, value in self.values.items() if value < before.values.get(key, 0.0)}
        grown = {
            key: value if anew or key in fell else value - before.values.get(key, 0.0)
            for key, value in self.values.items()
        }
        return Growth(_sum(grown), reset=anew or bool(fell))


class SpeculationCounters:
    """The counters of one server, from one look to the next."""

    def __init__(self) -> None:
        self._last: Counters | None = None

    @property
    def since_start(self) -> Speculation:
        """What they stood at when they were last looked at."""
        return Speculation() if self._last is None else self._last.total

    def advance(self, text: str) -> Speculation:
        """What the counters grew by since the last look; nothing at the first one."""
        before, self._last = self._last, Counters.of(text)
        growth = None if before is None else self._last.since(before)
        return Speculation() if growth is None else growth.counted


def _sum(values: Mapping[tuple[str, str], float]) -> Speculation:
    def total(name: str) -> float:
        return sum(value for key, value in values.items() if key[0] == name)

    return Speculation(total(ACCEPTED), total(DRAFTED), total(DRAFTS))
