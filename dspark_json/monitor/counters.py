"""A server's own counters of speculative decoding, from its Prometheus text (vLLM: ``vllm/v1/spec_decode/metrics.py``).

A counter begins at 0 again when its process does, and counts of a process that went away are gone: what they grew by
is summed over the series, and a series that is smaller than before, or whose process started anew, grew by all of it.
"""

from __future__ import annotations

import re
from typing import Final

from dspark_json.monitor.speculation import Speculation

__all__ = ["ACCEPTED", "DRAFTED", "DRAFTS", "SpeculationCounters", "series_of"]

ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
_STARTED: Final = "process_start_time_seconds"

# Name, labels, value and perhaps a time (exposition format 0.0.4); a label's value holds any character.
_SAMPLE: Final = re.compile(r'([A-Za-z_:][\w:]*)((?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?)[ \t]+(\S+)(?:[ \t]+-?\d+)?\s*')


def series_of(text: str, *names: str) -> dict[tuple[str, str], float]:
    """The values of all series of these names, by name and labels; a line that can't be read is left out."""
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if not line.startswith(names):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None or match[1] not in names:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if value >= 0:  # not so for NaN
            found[match[1], match[2]] = value
    return found


class SpeculationCounters:
    """The counters of one server, from one look to the next."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] | None = None
        self.since_start = Speculation()

    def advance(self, text: str) -> Speculation:
        """What the counters grew by since the last look; nothing at the first one."""
        now = series_of(text, ACCEPTED, DRAFTED, DRAFTS, _STARTED)
        before, self._last = self._last, now
        counters = {key: value for key, value in now.items() if key[0] != _STARTED}
        self.since_start = _sum(counters)
        if before is None:
            return Speculation()
        restarted = any(key[0] == _STARTED and before.get(key, value) != value for key, value in now.items())
        return _sum(
            {key: _growth(value, 0.0 if restarted else before.get(key, 0.0)) for key, value in counters.items()}
        )


def _growth(now: float, before: float) -> float:
    return now - before if now >= before else now


def _sum(values: dict[tuple[str, str], float]) -> Speculation:
    def total(name: str) -> float:
        return sum(value for key, value in values.items() if key[0] == name)

    return Speculation(total(ACCEPTED), total(DRAFTED), total(DRAFTS))
