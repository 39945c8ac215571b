"""What the proxy costs: beside the server alone, and beside itself without the hook, in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.capture import measured_round
from dspark_json.cli.bench.measured import BenchServer, Spent, bench_server, joined
from dspark_json.cli.bench.server import STREAM_EVENTS
from dspark_json.cli.bench.statistics import added_quantile, median_over_rounds
from dspark_json.replay.process import RunningServer
from dspark_json.scratch import scratch_folder

if TYPE_CHECKING:
    from dspark_json.cli.bench.capture import Plan, Say

_WARM_UP: Final = {False: 200, True: 30}
_MODES: Final = ("direct", "forward", "proxy")  # the server alone; through the proxy without the hook; with it

_Round = tuple[Mapping[str, Spent], Mapping[str, Spent]]


def measure_proxy(plan: Plan, say: Say) -> list[dict[str, Any]]:
    """Measure answers that are not streamed, then streamed ones; returns a result of each for ``--json``."""
    rounds: dict[bool, list[_Round]] = {False: [], True: []}
    for number in range(plan.rounds):
        say(f"round {number + 1} of {plan.rounds}")
        with _servers(plan.durability, backwards=bool(number % 2)) as servers:
            for stream, kept in rounds.items():
                full, paced = measured_round(plan, servers, stream=stream, seed=number, warm_up=_WARM_UP[stream])
                kept.append((_joined(full), _joined(paced)))
    return [_result(kept, stream=stream) for stream, kept in rounds.items()]


def _joined(slices: Mapping[str, Sequence[Spent]]) -> Mapping[str, Spent]:
    return {mode: joined(spent) for mode, spent in slices.items()}


@contextlib.contextmanager
def _servers(durability: str, *, backwards: bool) -> Iterator[Mapping[str, BenchServer]]:
    """The server, and the proxy before it without and with the hook; the order in which to measure them."""
    with (
        scratch_folder("dspark-bench-", in_memory=True) as folder,
        bench_server(hook=False) as direct,
    ):
        spool = folder / "spool"
        arguments = (f"http://{direct.host}:{direct.port}",)
        module = "dspark_json.cli.bench.proxied"
        settings = {"DSPARK_SPOOL": str(spool), "DSPARK_DURABILITY": durability}
        with (
            RunningServer(module, (*arguments, "--no-hook"), log=folder / "forward.log") as forward,
            RunningServer(module, arguments, settings=settings, log=folder / "proxy.log") as proxy,
        ):
            servers = {"direct": direct, "forward": BenchServer(forward, None), "proxy": BenchServer(proxy, spool)}
            yield {mode: servers[mode] for mode in (_MODES[::-1] if backwards else _MODES)}


def _result(rounds: list[_Round], *, stream: bool) -> dict[str, Any]:
    """The figures of one kind of answer, medians over rounds; ``…_ci`` are 95 % confidence intervals."""
    fulls, paced = [full for full, _ in rounds], [paced for _, paced in rounds]

    def added(above: str, below: str, quantile: float) -> dict[str, Any]:
        pairs = [(sorted(p[above].got.latencies_ms), sorted(p[below].got.latencies_ms)) for p in paced]
        estimate = added_quantile([(tuple(one), tuple(other)) for one, other in pairs], quantile)
        return {"value": round(estimate.value, 3), "ci": [round(estimate.low, 3), round(estimate.high, 3)]}

    hook = median_over_rounds([f["proxy"].cpu_us_per_answer - f["forward"].cpu_us_per_answer for f in fulls])
    ratio = median_over_rounds([f["proxy"].answers_per_second / f["forward"].answers_per_second for f in fulls])
    events = STREAM_EVENTS if stream else 1
    return {
        "mode": "proxy",
        "stream": stream,
        "cpu_us_per_answer": {m: round(median(f[m].cpu_us_per_answer for f in fulls), 1) for m in _MODES},
        "hook_cpu_us_per_answer": round(hook.value, 1),
        "hook_cpu_us_per_answer_ci": [round(hook.low, 1), round(hook.high, 1)],
        "hook_cpu_us_per_event": round(hook.value / events, 2) if stream else None,
        "hook_throughput_ratio": round(ratio.value, 3),
        "answers_per_second": {m: round(median(f[m].answers_per_second for f in fulls), 1) for m in _MODES},
        "p50_ms": {m: round(median(median(p[m].got.latencies_ms) for p in paced), 3) for m in _MODES},
        "proxy_added_p50_ms": added("proxy", "direct", 0.50),
        "proxy_added_p99_ms": added("proxy", "direct", 0.99),
        "hook_added_p50_ms": added("proxy", "forward", 0.50),
        "answers": sum(f["proxy"].got.answers + p["proxy"].got.answers for f, p in rounds),
        "unrecorded": sum(f["proxy"].unrecorded + p["proxy"].unrecorded for f, p in rounds),
        "rounds": len(rounds),
    }


def shown(results: list[dict[str, Any]]) -> list[str]:
    """The figures for people, a line each."""
    lines = []
    for result in results:
        lines.append("streamed" if result["stream"] else "not streamed")
        for title, name in (
            ("CPU per answer, µs", "cpu_us_per_answer"),
            ("answers/s", "answers_per_second"),
            ("p50 when paced, ms", "p50_ms"),
        ):
            lines.append(f"  {title}: " + ", ".join(f"{mode} {result[name][mode]}" for mode in _MODES))
        low, high = result["hook_cpu_us_per_answer_ci"]
        lines.append(f"  the hook's CPU per answer, µs: {result['hook_cpu_us_per_answer']} ({low} to {high})")
        for title, name in (("p50", "proxy_added_p50_ms"), ("p99", "proxy_added_p99_ms")):
            low, high = result[name]["ci"]
            lines.append(f"  the proxy adds to {title}, ms: {result[name]['value']} ({low} to {high})")
        lines.append(f"  answers without a record: {result['unrecorded']}")
    return lines
