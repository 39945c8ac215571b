"""What the hook costs a server: CPU, latency and throughput, with it and without it in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from dspark_json.cli.bench.load import Load, Yield
from dspark_json.cli.bench.measured import BenchServer, Spent, bench_server
from dspark_json.cli.bench.server import STREAM_EVENTS
from dspark_json.cli.bench.statistics import Estimate, added_quantile, median_over_rounds

# A paced run asks at this share of what the slower server manages at most: busy, never swamped.
_PACED_SHARE: Final = 0.4
_WARM_UP: Final = {False: 300, True: 40}
_MODES: Final = ("hook", "none")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure: each measurement takes ``requests`` answers or, without that, ``seconds``."""

    rounds: int
    clients: int
    seconds: float
    requests: int | None
    durability: str


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one kind of answer: by mode, what a load at full speed took, and a paced one."""

    full: Mapping[str, Spent]
    paced: Mapping[str, Spent]


def measure_capture(plan: Plan, say: Say) -> list[dict[str, Any]]:
    """Measure answers that are not streamed, then streamed ones; returns a result of each for ``--json``."""
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for number in range(plan.rounds):
        say(f"round {number + 1} of {plan.rounds}")
        # The order changes from round to round, so that a machine that gets slower or faster favours neither.
        modes = _MODES if number % 2 else _MODES[::-1]
        with contextlib.ExitStack() as running:
            # New processes each round: how one happens to lie in memory must not count as the hook's doing.
            servers = {
                mode: running.enter_context(bench_server(hook=mode == "hook", durability=plan.durability))
                for mode in modes
            }
            for stream, kept in rounds.items():
                measured = measured_round(plan, servers, stream=stream, seed=number, warm_up=_WARM_UP[stream])
                kept.append(Round(*measured))
    return [result(kept, stream=stream) for stream, kept in rounds.items()]


def measured_round(
    plan: Plan, servers: Mapping[str, BenchServer], *, stream: bool, seed: int, warm_up: int
) -> tuple[dict[str, Spent], dict[str, Spent]]:
    """What each server, by its name, took at full speed and then paced; ``warm_up`` requests go before."""

    def load(server: BenchServer, requests: int | None, rate: float | None) -> Load:
        seconds = None if requests else plan.seconds
        return Load(server.host, server.port, stream, plan.clients, requests, seconds, rate, seed)

    for server in servers.values():
        server.measure(load(server, warm_up, None))
    full = {mode: server.measure(load(server, plan.requests, None)) for mode, server in servers.items()}
    rate = _PACED_SHARE * min(spent.answers_per_second for spent in full.values())
    return full, {mode: server.measure(load(server, plan.requests, rate)) for mode, server in servers.items()}


def result(rounds: list[Round], *, stream: bool) -> dict[str, Any]:
    """The figures of one kind of answer, medians over rounds; ``…_ci`` are 95 % confidence intervals."""
    cpu = _added_cpu([r.full for r in rounds])
    paced_cpu = _added_cpu([r.paced for r in rounds])
    pairs = [_sorted_pair(r, lambda got: got.latencies_ms) for r in rounds]
    firsts = [_sorted_pair(r, lambda got: got.first_ms) for r in rounds]
    ratio = median_over_rounds([r.full["hook"].answers_per_second / r.full["none"].answers_per_second for r in rounds])
    spent = [s for r in rounds for s in (r.full["hook"], r.paced["hook"])]
    return {
        "mode": "hook",
        "stream": stream,
        **_figure("cpu_us_per_answer", cpu),
        **(_figure("cpu_us_per_event", cpu.scaled(1 / STREAM_EVENTS)) if stream else {"cpu_us_per_event": None}),
        **_figure("paced_cpu_us_per_answer", paced_cpu),
        **_figure("added_p50_ms", added_quantile(pairs, 0.50)),
        **_figure("added_p99_ms", added_quantile(pairs, 0.99)),
        **_figure("added_first_p50_ms", added_quantile(firsts, 0.50)),
        **_figure("added_first_p99_ms", added_quantile(firsts, 0.99)),
        **_figure("throughput_ratio", ratio),
        "server_cpu_us_per_answer": {m: round(median(r.full[m].cpu_us_per_answer for r in rounds), 1) for m in _MODES},
        "answers_per_second": {m: round(median(r.full[m].answers_per_second for r in rounds), 1) for m in _MODES},
        "p50_ms": {m: round(median(median(r.paced[m].got.latencies_ms) for r in rounds), 3) for m in _MODES},
        "answers": sum(s.got.answers for s in spent),
        "unrecorded": sum(s.unrecorded for s in spent),
        "rounds": len(rounds),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan for ``--json``."""
    return asdict(plan)


def _added_cpu(spent: list[Mapping[str, Spent]]) -> Estimate:
    return median_over_rounds([s["hook"].cpu_us_per_answer - s["none"].cpu_us_per_answer for s in spent])


def _sorted_pair(measured: Round, times: Callable[[Yield], list[float]]) -> tuple[list[float], list[float]]:
    with_hook, without = (sorted(times(measured.paced[mode].got)) for mode in _MODES)
    return with_hook, without


def _figure(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        name: round(estimate.value, 4),
        f"{name}_ci": [round(estimate.low, 4), round(estimate.high, 4)],
    }
