"""What the hook costs a real vLLM: two servers, with it and without, asked the same questions in turn."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from real_vllm.asking import receive
from real_vllm.questions import CHAT, question

if TYPE_CHECKING:
    from real_vllm.questions import Question
    from real_vllm.server import Vllm

# Lines for the end of the run.
COSTS: Final[list[str]] = []
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Round:
    """One server's answers to one set of questions."""

    rate: float  # answers a second
    cpu: float  # seconds of CPU of the serving process per answer
    latency: float  # seconds, median


def some(number: int, form: str, count: int) -> list[Question]:
    """Questions whose seeds make both servers' models say the same."""
    call, arguments, _ = CHAT[form]
    return [
        question(f"{form} {number} {seed}", call, {**arguments, "seed": 1000 * number + seed}) for seed in range(count)
    ]


def measure(server: Vllm, wanted: list[Question], clients: int) -> Round:
    """Ask, and look at the clock and at the process's CPU."""
    before = _cpu(server.pid)
    received = receive(server, wanted, clients=clients)
    spent = _cpu(server.pid) - before
    assert {one["outcome"] for one in received} == {"complete"}
    seconds = max(one["ended"] for one in received) - min(one["began"] for one in received)
    latency = statistics.median(one["ended"] - one["began"] for one in received)
    return Round(len(received) / seconds, spent / len(received), latency)


def report(form: str, with_hook: list[Round], without: list[Round]) -> str:
    """One line: medians of both, and of the differences of the pairs."""
    pairs = list(zip(with_hook, without, strict=True))

    def both(name: str, unit: str, scale: float = 1.0) -> str:
        """A figure with the hook and without it, and the median of the pairs' differences."""
        hooked, bare = ([getattr(one, name) * scale for one in rounds] for rounds in (with_hook, without))
        added = statistics.median(a - b for a, b in zip(hooked, bare, strict=True))
        return f"{statistics.median(hooked):.2f} and {statistics.median(bare):.2f} {unit} ({added:+.2f})"

    ratio = statistics.median(a.rate / b.rate for a, b in pairs)
    return (
        f"{form}, {len(pairs)} rounds, with the hook and without it: {both('rate', 'answers/s')}, ratio {ratio:.3f}; "
        f"CPU of the serving process {both('cpu', 'ms an answer', 1e3)}; latency {both('latency', 'ms', 1e3)}"
    )


def _cpu(pid: int) -> float:
    """CPU seconds of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
