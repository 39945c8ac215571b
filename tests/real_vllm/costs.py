"""What the hook costs a real vLLM: two servers, with it and without, asked the same questions in turn."""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from real_vllm.asking import receive
from real_vllm.questions import CHAT, question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def first_bytes(servers: Mapping[str, Vllm], request: Mapping[str, object], count: int) -> dict[str, list[float]]:
    """The seconds until the first byte of an answer's body, of each server; they are asked one after the other."""
    connections = {name: HTTPConnection("127.0.0.1", server.port, timeout=60) for name, server in servers.items()}
    taken: dict[str, list[float]] = {name: [] for name in servers}
    names = list(servers)
    for number in range(count):
        body = json.dumps({**request, "model": "tiny", "seed": number})
        random.Random(number).shuffle(names)
        for name in names:
            connection = connections[name]
            began = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read(1)
            taken[name].append(time.perf_counter() - began)
            assert answer.status == 200
            answer.read()
    for connection in connections.values():
        connection.close()
    return taken


def report_first_bytes(form: str, taken: Mapping[str, Sequence[float]], base: str) -> str:
    """One line: the median of each server, and by how much the others are later than ``base`` (median of pairs)."""
    parts = [f"{base} {statistics.median(taken[base]) * 1e3:.2f} ms"]
    draws = random.Random(1)
    for name in taken:
        if name != base:
            later = [(a - b) * 1e3 for a, b in zip(taken[name], taken[base], strict=True)]
            again = sorted(statistics.median(draws.choices(later, k=len(later))) for _ in range(2_000))
            parts.append(f"{name} {statistics.median(later):+.3f} ms ({again[50]:+.3f} to {again[-51]:+.3f})")
    return f"first byte, {form}, {len(taken[base])} times: {', '.join(parts)}"


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
