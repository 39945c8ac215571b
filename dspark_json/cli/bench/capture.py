"""What the hook costs a server: CPU, latency and throughput, with it and without it in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from dspark_json.cli.bench.load import Load, LoadGenerator, Yield
from dspark_json.cli.bench.measured import BenchServer, Spent, bench_server, joined, touch_memory
from dspark_json.cli.bench.server import STREAM_EVENTS
from dspark_json.cli.bench.statistics import (
    Estimate,
    added_quantile,
    added_undisturbed,
    ratio_undisturbed,
    undisturbed,
)

# A paced run asks at this share of what the slower server manages at most: busy, never swamped.
_PACED_SHARE: Final = 0.4
_WARM_UP: Final = {False: 300, True: 40}
# Servers take turns this often, so that what slows the machine down for a second meets all of them.
_SLICE_SECONDS: Final = 0.25
# The control is a server without the hook as well: what it "adds" is what this measurement can't tell from nothing.
_MODES: Final = ("hook", "none", "control")
_BASE: Final = "none"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure: each measurement takes ``requests`` answers or, without that, ``seconds``, in slices."""

    rounds: int
    clients: int
    seconds: float
    requests: int | None
    durability: str

    @property
    def slices(self) -> int:
        """How many times the servers take turns in a measurement."""
        return 1 if self.requests else max(1, round(self.seconds / _SLICE_SECONDS))


Slices = Mapping[str, Sequence[Spent]]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one kind of answer: by mode, what slices at full speed took, and paced ones."""

    full: Slices
    paced: Slices


def measure_capture(plan: Plan, say: Say) -> list[dict[str, Any]]:
    """Measure answers that are not streamed, then streamed ones; returns a result of each for ``--json``."""
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for number in range(plan.rounds):
        say(f"round {number + 1} of {plan.rounds}")
        touch_memory()
        with contextlib.ExitStack() as running:
            # New processes each round: how one happens to lie in memory must not count as the hook's doing.
            servers = {
                mode: running.enter_context(bench_server(hook=mode == "hook", durability=plan.durability))
                for mode in _MODES
            }
            for stream, kept in rounds.items():
                measured = measured_round(plan, servers, stream=stream, seed=number, warm_up=_WARM_UP[stream])
                kept.append(Round(*measured))
    return [result(kept, stream=stream) for stream, kept in rounds.items()]


def measured_round(
    plan: Plan, servers: Mapping[str, BenchServer], *, stream: bool, seed: int, warm_up: int
) -> tuple[dict[str, list[Spent]], dict[str, list[Spent]]]:
    """What each server, by its name, took at full speed and then paced; ``warm_up`` requests go before."""
    with LoadGenerator() as generator:

        def measured(server: BenchServer, requests: int | None, rate: float | None, seed: int) -> Spent:
            seconds = None if requests else plan.seconds / plan.slices
            load = Load(server.host, server.port, stream, plan.clients, requests, seconds, rate, seed)
            return server.measure(load, generator)

        def in_turn(rate: float | None) -> dict[str, list[Spent]]:
            taken: dict[str, list[Spent]] = {name: [] for name in servers}
            for turn in range(plan.slices):
                # Each is the first one at times: what follows a pause may be slower.
                order = list(servers)[turn % len(servers) :] + list(servers)[: turn % len(servers)]
                for name in order if seed % 2 else reversed(order):
                    taken[name].append(measured(servers[name], plan.requests, rate, plan.slices * seed + turn))
            return taken

        for server in servers.values():
            measured(server, warm_up, None, seed)
        full = in_turn(None)
        rate = _PACED_SHARE * min(joined(slices).answers_per_second for slices in full.values())
        return full, in_turn(rate)


def result(rounds: list[Round], *, stream: bool) -> dict[str, Any]:
    """The figures of one kind of answer; ``…_ci`` are 95 % confidence intervals, ``control_…`` those of the control."""
    spent = [s for r in rounds for s in (*r.full["hook"], *r.paced["hook"])]
    return {
        "mode": "hook",
        "stream": stream,
        **_added(rounds, "hook", "", stream=stream),
        **_added(rounds, "control", "control_", stream=stream),
        "server_cpu_us_per_answer": _by_mode(lambda mode: undisturbed(_costs(rounds, mode)), 1),
        "answers_per_second": _by_mode(lambda mode: 1 / undisturbed(_times(rounds, mode)), 1),
        "p50_ms": _by_mode(lambda mode: median(median(joined(r.paced[mode]).got.latencies_ms) for r in rounds), 3),
        "answers": sum(s.got.answers for s in spent),
        "unrecorded": sum(s.unrecorded for s in spent),
        "rounds": len(rounds),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan for ``--json``."""
    return asdict(plan)


def _added(rounds: list[Round], mode: str, prefix: str, *, stream: bool) -> dict[str, Any]:
    """What ``mode`` adds to the server without the hook."""

    def pairs(values: Callable[[Sequence[Spent]], list[float]], kind: str) -> list[tuple[list[float], list[float]]]:
        slices: list[Slices] = [getattr(r, kind) for r in rounds]
        return [(values(one[mode]), values(one[_BASE])) for one in slices]

    def later(times: Callable[[Yield], list[float]], quantile: float) -> Estimate:
        return added_quantile(pairs(lambda slices: sorted(times(joined(slices).got)), "paced"), quantile)

    cpu = added_undisturbed(pairs(_cpu, "full"))
    return {
        **_figure(f"{prefix}cpu_us_per_answer", cpu),
        **_figure(f"{prefix}cpu_us_per_event", cpu.scaled(1 / STREAM_EVENTS) if stream else None),
        **_figure(f"{prefix}paced_cpu_us_per_answer", added_undisturbed(pairs(_cpu, "paced"))),
        **_figure(f"{prefix}added_p50_ms", later(lambda got: got.latencies_ms, 0.50)),
        **_figure(f"{prefix}added_p99_ms", later(lambda got: got.latencies_ms, 0.99)),
        **_figure(f"{prefix}added_first_p50_ms", later(lambda got: got.first_ms, 0.50)),
        **_figure(f"{prefix}added_first_p99_ms", later(lambda got: got.first_ms, 0.99)),
        **_figure(f"{prefix}throughput_ratio", ratio_undisturbed([(b, a) for a, b in pairs(_seconds, "full")])),
    }


def _cpu(slices: Sequence[Spent]) -> list[float]:
    return [spent.cpu_us_per_answer for spent in slices]


def _seconds(slices: Sequence[Spent]) -> list[float]:
    return [1 / spent.answers_per_second for spent in slices]


def _costs(rounds: list[Round], mode: str) -> list[float]:
    return [cost for r in rounds for cost in _cpu(r.full[mode])]


def _times(rounds: list[Round], mode: str) -> list[float]:
    return [seconds for r in rounds for seconds in _seconds(r.full[mode])]


def _by_mode(value: Callable[[str], float], digits: int) -> dict[str, float]:
    return {mode: round(value(mode), digits) for mode in _MODES}


def _figure(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {name: None}
    return {
        name: round(estimate.value, 4),
        f"{name}_ci": [round(estimate.low, 4), round(estimate.high, 4)],
    }
