"""How long it takes from the end of an answer until Spark hands its row to a sink, and where that time goes."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.answers import content_type
from dspark_json.cli.bench.cpu_times import PYTHON, CpuClock, CpuTimes, machine_busy_s
from dspark_json.cli.bench.load import Load
from dspark_json.cli.bench.measured import BenchServer, Spent, bench_server
from dspark_json.cli.bench.spark_session import jvm_pid, local_spark
from dspark_json.cli.bench.statistics import quantile_of
from dspark_json.errors import DSparkJsonError
from dspark_json.schema.ddl import to_ddl
from dspark_json.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STEPS: Final = ("recording", "waiting", "latestOffset", "walCommit", "getBatch", "queryPlanning", "execution")

# In the order in which Spark does them; what it does before the tasks, by its names in `durationMs`.
_BEFORE_TASKS: Final = ("latestOffset", "walCommit", "getBatch", "queryPlanning")
_DRAIN_SEC: Final = 60
_CLIENTS: Final = 32
_TIMES: Final = "times"
_WORKER: Final = "wait_time_ms"
_FINISHED: Final = "unix_micros(_dspark.received_at) + CAST(1000 * _dspark.duration_ms AS BIGINT)"
_APPENDED: Final = "unix_micros(_dspark.appended_at)"
# Asked once a row, in the task, as the last thing before the sink.
_NOW: Final = "1000 * CAST(java_method('java.lang.System', 'currentTimeMillis') AS BIGINT)"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """What to measure: ``rate`` answers a second for ``seconds``, a trigger every ``trigger_ms``.

    Before that ``warm_up`` seconds of the same load, whose answers are left out.
    """

    rate: float
    seconds: float
    warm_up: float
    trigger_ms: int
    cores: int
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowTimes:
    """When an answer was finished, when its record was in the spool, when its row reached the sink: µs since 1970."""

    finished: int
    appended: int
    handed: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: µs since 1970 of its beginning and its end, its steps in ms by Spark's names, its rows."""

    begin: int
    end: int
    steps_ms: Mapping[str, float]
    rows: Sequence[RowTimes]


def measure_latency(plan: LatencyPlan, say: Say, remedy: str) -> list[dict[str, Any]]:
    """A result for each sink (``noop``, ``delta``) for ``--json``.

    A server with the hook answers from memory, and a stream reads its spool, all columns with typed content. Each task
    notes when it hands each row over; Spark collects these notes with the progress of the micro-batch (``observe``).
    """
    with scratch_folder("dspark-bench-") as folder:
        delta = "delta" in plan.sinks
        with local_spark(folder, cores=plan.cores, connector=True, delta=delta, remedy=remedy) as spark:
            return [_measured(spark, plan, sink, folder, say) for sink in plan.sinks]


def _measured(spark: SparkSession, plan: LatencyPlan, sink: str, folder: Path, say: Say) -> dict[str, Any]:
    with bench_server(hook=True) as server:
        query = _start(spark, plan, server, sink, folder)
        say(f"{sink}: warming up for {plan.warm_up:g} s, then {plan.seconds:g} s with {plan.rate:g} answers/s")
        before = server.measure(_load(plan, server, plan.warm_up, seed=0)).got.answers
        _drain(query, before)
        clock, busy_s, started = CpuClock.of(jvm_pid(spark)), machine_busy_s(), time.perf_counter()
        spent = server.measure(_load(plan, server, plan.seconds, seed=1))
        cpu, busy_s, wall_s = clock.spent(), machine_busy_s() - busy_s, time.perf_counter() - started
        _drain(query, before + spent.got.answers)
        progresses = [progress for progress in query.recentProgress if progress["numInputRows"]]
        query.stop()
    batches = [
        _batch(one, last)
        for last, one in itertools.pairwise(progresses)
        if _total(one, "records") - one["numInputRows"] >= before
    ]
    rows = sum(len(batch.rows) for batch in batches)
    if rows != spent.got.answers:
        raise DSparkJsonError(f"{rows} rows came of the {spent.got.answers} answers that were measured")
    return {
        "sink": sink,
        **latency_result(batches),
        "left_out": before,
        "rate": plan.rate,
        "trigger_ms": plan.trigger_ms,
        "cores_used": _cores_used(cpu, spent, busy_s, wall_s),
        "cores": os.cpu_count(),
    }


def _load(plan: LatencyPlan, server: BenchServer, seconds: float, *, seed: int) -> Load:
    """An open loop: answers are asked for at random times, whether earlier ones have come or not."""
    return Load(server.host, server.port, stream=False, clients=_CLIENTS, seconds=seconds, rate=plan.rate, seed=seed)


def _start(spark: SparkSession, plan: LatencyPlan, server: BenchServer, sink: str, folder: Path) -> StreamingQuery:
    from pyspark.sql.functions import expr

    rows = (
        spark.readStream.format("dspark-json").option("contentSchema", to_ddl(content_type())).load(str(server.spool))
    )
    times = {"finished": _FINISHED, "appended": _APPENDED, "handed": _NOW}
    writer = (
        rows.selectExpr("*", *(f"{value} AS {name}" for name, value in times.items()))
        .observe(_TIMES, expr(f"collect_list(struct({', '.join(times)}))").alias(_TIMES))
        .writeStream.format(sink)
        .option("checkpointLocation", str(folder / "checkpoint" / sink))
        .trigger(processingTime=f"{plan.trigger_ms} milliseconds")
    )
    return writer.start(str(folder / "table")) if sink == "delta" else writer.start()


def _drain(query: StreamingQuery, answers: int) -> None:
    """Wait until the stream has read so many answers in all.

    Without that, what has piled up while Spark was cold would be measured, and not what it takes when it is warm.
    """
    deadline = time.monotonic() + _DRAIN_SEC
    while (progress := query.lastProgress) is None or _total(progress, "records") < answers:
        failure = query.exception()
        if failure is not None or time.monotonic() > deadline:
            raise DSparkJsonError(f"the stream did not read all {answers} answers: {failure or 'it is too slow'}")
        time.sleep(0.5)


def _total(progress: Mapping[str, Any], metric: str) -> int:
    """What all tasks of the stream have counted since it began."""
    return int(progress["sources"][0]["metrics"][metric])


def _batch(progress: Mapping[str, Any], last: Mapping[str, Any]) -> Batch:
    begin = round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000_000)
    durations = progress["durationMs"]
    rows = [RowTimes(**row) for row in progress["observedMetrics"][_TIMES][_TIMES]]
    worker_ms = _total(progress, _WORKER) - _total(last, _WORKER)
    return Batch(begin, begin + 1000 * durations["triggerExecution"], {**durations, "worker": worker_ms}, rows)


def latency_result(batches: Sequence[Batch]) -> dict[str, Any]:
    """Quantiles, and the mean of each step over rows: ``STEPS`` add up to the mean until a row is handed over.

    ``committed`` is until the end of the micro-batch, when the next one may begin. ``worker_ms``, a part of
    ``execution``, is what the tasks wait for the worker; ``commit_ms`` comes after the rows. Each micro-batch has rows.
    """
    pairs = [(row, batch) for batch in batches for row in batch.rows]
    handed = sorted((row.handed - row.finished) / 1000 for row, _ in pairs)
    committed = sorted((batch.end - row.finished) / 1000 for row, batch in pairs)
    steps = {
        "recording": fmean(row.appended - row.finished for row, _ in pairs) / 1000,
        "waiting": fmean(batch.begin - row.appended for row, batch in pairs) / 1000,
        **{step: fmean(batch.steps_ms.get(step, 0) for _, batch in pairs) for step in _BEFORE_TASKS},
    }
    steps["execution"] = fmean(handed) - sum(steps.values())
    aside = {
        name: round(fmean(batch.steps_ms.get(step, 0) for _, batch in pairs), 1)
        for name, step in (("worker_ms", "worker"), ("commit_ms", "commitOffsets"))
    }
    return {
        "p50_ms": round(quantile_of(handed, 0.5), 1),
        "p99_ms": round(quantile_of(handed, 0.99), 1),
        "committed_p50_ms": round(quantile_of(committed, 0.5), 1),
        "committed_p99_ms": round(quantile_of(committed, 0.99), 1),
        "mean_ms": round(fmean(handed), 1),
        "steps_ms": {step: round(steps[step], 1) for step in STEPS},
        **aside,
        "batch_p50_ms": round(quantile_of(sorted((b.end - b.begin) / 1000 for b in batches), 0.5), 1),
        "batches": len(batches),
        "answers": len(pairs),
    }


def _cores_used(cpu: CpuTimes, spent: Spent, busy_s: float, wall_s: float) -> dict[str, float]:
    """How many cores each took while the answers came: they all share the machine, with whatever else it does."""
    worker = sum(cpu.parts[PYTHON])
    seconds = {
        "spark": cpu.total - worker,
        "worker": worker,
        "server": spent.cpu_us / 1_000_000,
        "load_generator": spent.got.cpu_s,
    }
    seconds["other_work"] = max(0.0, busy_s - sum(seconds.values()))
    return {name: round(value / wall_s, 2) for name, value in seconds.items()}
