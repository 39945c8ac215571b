"""How fast answers become rows of a sink, by this source and by what Spark has for JSON, in turn."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.answers import MEGABYTE
from dspark_json.cli.bench.cpu_times import PYTHON, CpuClock, CpuTimes
from dspark_json.cli.bench.spark_answers import prepare_answers
from dspark_json.cli.bench.spark_pipelines import BASELINE, Pipeline, pipelines, stream
from dspark_json.cli.bench.spark_session import collect_garbage, jvm_pid, local_spark
from dspark_json.cli.bench.statistics import median_over_rounds, quantile_of
from dspark_json.errors import DSparkJsonError
from dspark_json.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from dspark_json.cli.bench.spark_answers import SparkAnswers
    from dspark_json.cli.bench.statistics import Estimate

SINKS: Final = ("noop", "delta")
REMEDY: Final = "Delta's packages are got at the first start; without them: --sinks noop."

_TIMEOUT_SEC: Final = 600
_WARM_UP: Final = 2  # rounds: the JIT compiler is not done after one

Say = Callable[[str], None]
Key = tuple[str, Pipeline]


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What to measure."""

    megabytes: float
    batches: int
    rounds: int
    cores: int
    sinks: tuple[str, ...]
    columns: tuple[str, ...]
    adapters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One stream from start to end: seconds on the clock, CPU, the time of each micro-batch, what it counted."""

    wall_s: float
    cpu: CpuTimes
    batches_ms: Sequence[float]
    rows: int
    metrics: Mapping[str, str]


def measure_streams(plan: StreamPlan, say: Say) -> list[dict[str, Any]]:
    """Measure all pipelines into all sinks; returns a result of each for ``--json``."""
    with scratch_folder("dspark-bench-") as folder:
        answers = prepare_answers(folder, plan.megabytes, plan.batches)
        say(f"{answers.records} answers, {answers.bytes / MEGABYTE:.0f} MB, in {answers.batches} micro-batches")
        delta = "delta" in plan.sinks
        with local_spark(folder, cores=plan.cores, connector=True, delta=delta, remedy=REMEDY) as spark:
            runs = _measured(spark, plan, answers, folder, say)
    return [_result(key, runs, answers) for key in runs]


def _measured(
    spark: SparkSession, plan: StreamPlan, answers: SparkAnswers, folder: Path, say: Say
) -> dict[Key, list[Run]]:
    groups = [(s, pipelines(c, plan.adapters)) for s in plan.sinks for c in plan.columns]
    runs: dict[Key, list[Run]] = {(sink, one): [] for sink, group in groups for one in group}
    # The first rounds are to warm up: code is compiled, pages are read, the worker is started.
    for number in range(1 - _WARM_UP, plan.rounds + 1):
        say(f"round {number} of {plan.rounds}" if number > 0 else "warming up")
        for sink, group in groups:
            # The order changes from round to round, so that a machine that gets slower or faster favours none.
            for pipeline in group if number % 2 else reversed(group):
                run = _run(spark, pipeline, sink, answers, plan.cores, folder)
                if run.rows != answers.records:
                    raise DSparkJsonError(f"{pipeline.label} gave {run.rows} rows for {answers.records} answers")
                runs[sink, pipeline] += [run] if number > 0 else []
    return runs


def _run(spark: SparkSession, pipeline: Pipeline, sink: str, answers: SparkAnswers, cores: int, folder: Path) -> Run:
    collect_garbage(spark)
    place = folder / "run"
    writer = (
        stream(spark, pipeline, answers, cores)
        .writeStream.format(sink)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
    )
    clock, started = CpuClock.of(jvm_pid(spark)), time.perf_counter()
    query = writer.start(str(place / "table")) if sink == "delta" else writer.start()
    done = query.awaitTermination(_TIMEOUT_SEC)
    wall_s, cpu = time.perf_counter() - started, clock.spent()
    if not done:
        query.stop()
        raise DSparkJsonError(f"{pipeline.label} took more than {_TIMEOUT_SEC} s", remedy="Take fewer --megabytes.")
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    shutil.rmtree(place)
    rows = sum(one["numInputRows"] for one in progress)
    metrics = progress[-1]["sources"][0].get("metrics") or {}
    return Run(wall_s, cpu, [one["durationMs"]["triggerExecution"] for one in progress], rows, metrics)


def _result(key: Key, runs: Mapping[Key, list[Run]], answers: SparkAnswers) -> dict[str, Any]:
    sink, pipeline = key
    mine = runs[key]
    cpu_s = median_over_rounds([run.cpu.total for run in mine])
    wall_s = median_over_rounds([run.wall_s for run in mine])
    times = sorted(time_ms for run in mine for time_ms in run.batches_ms)
    result: dict[str, Any] = {
        "sink": sink,
        "columns": pipeline.columns,
        "adapter": pipeline.adapter,
        "narrow": pipeline.narrow,
        "records_per_cpu_s": round(answers.records / cpu_s.value),
        "records_per_s": round(answers.records / wall_s.value),
        "mb_per_s": round(answers.bytes / MEGABYTE / wall_s.value, 4),
        **_figure("cpu_s", cpu_s),
        **_figure("wall_s", wall_s),
        "batch_p50_ms": round(quantile_of(times, 0.5)),
        "batch_p99_ms": round(quantile_of(times, 0.99)),
    }
    for name, narrow in (("", False), ("_narrow", True)):
        baseline = runs.get((sink, Pipeline(BASELINE, pipeline.columns, narrow)))
        if baseline is not None:
            pairs = list(zip(baseline, mine, strict=True))
            result |= _figure(f"ratio{name}_cpu", median_over_rounds([b.cpu.total / m.cpu.total for b, m in pairs]))
            result |= _figure(f"ratio{name}_wall", median_over_rounds([b.wall_s / m.wall_s for b, m in pairs]))
    return {**result, "spent_s": _spent(mine), "rounds": len(mine), "records": answers.records}


def _spent(runs: Sequence[Run]) -> dict[str, float]:
    """Median CPU seconds by part, and beside them the times that reads measured themselves, on the clock."""

    def seconds(part: str, *modes: int) -> float:
        return median(sum(run.cpu.parts[part][mode] for mode in modes) for run in runs)

    spent = {
        "python_user": seconds(PYTHON, 0),
        "python_system": seconds(PYTHON, 1),
        "tasks_user": seconds("tasks", 0),
        "tasks_system": seconds("tasks", 1),
        **{part: seconds(part, 0, 1) for part in ("compiler", "memory", "helpers", "others")},
    }
    for name in ("parse_time_ms", "serialize_time_ms", "send_time_ms", "wait_time_ms"):
        if all(name in run.metrics for run in runs):
            spent[f"{name.removesuffix('_ms')}_s"] = median(float(run.metrics[name]) for run in runs) / 1000
    return {name: round(value, 3) for name, value in spent.items()}


def _figure(name: str, estimate: Estimate) -> dict[str, Any]:
    return {name: round(estimate.value, 3), f"{name}_ci": [round(estimate.low, 3), round(estimate.high, 3)]}
