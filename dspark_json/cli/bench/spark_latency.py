"""How long it takes from the end of an answer until Spark hands its row to a sink, and where that time goes."""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.answers import content_type
from dspark_json.cli.bench.load import Load
from dspark_json.cli.bench.measured import BenchServer, bench_server
from dspark_json.cli.bench.spark_session import local_spark
from dspark_json.errors import DSparkJsonError
from dspark_json.schema.ddl import to_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STEPS: Final = ("recording", "waiting", "latestOffset", "walCommit", "getBatch", "queryPlanning", "execution")

# In the order in which Spark does them; what it does before the tasks, by its names in `durationMs`.
_BEFORE_TASKS: Final = ("latestOffset", "walCommit", "getBatch", "queryPlanning")
_WARM_UP_SEC: Final = 10.0
_DRAIN_SEC: Final = 60
_CLIENTS: Final = 32
_FINISHED: Final = "unix_micros(_dspark.received_at) + CAST(1000 * _dspark.duration_ms AS BIGINT)"
# Asked once a row, in the task, as the last thing before the sink.
_NOW: Final = "1000 * CAST(java_method('java.lang.System', 'currentTimeMillis') AS BIGINT)"
_TABLE: Final = "dspark_json_latency"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """What to measure: ``rate`` answers a second for ``seconds``, a trigger every ``trigger_ms``."""

    rate: float
    seconds: float
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
    """A micro-batch: µs since 1970 of its beginning and its end, and its steps in ms by Spark's names."""

    begin: int
    end: int
    steps_ms: Mapping[str, float]


def measure_latency(plan: LatencyPlan, say: Say, remedy: str) -> list[dict[str, Any]]:
    """A result for each sink (``memory``, ``delta``) for ``--json``.

    A server with the hook answers from memory, and a stream reads its spool, all columns with typed content. Its rows
    bear the time at which they were handed over.
    """
    with tempfile.TemporaryDirectory(prefix="dspark-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        delta = "delta" in plan.sinks
        with local_spark(folder, cores=plan.cores, connector=True, delta=delta, remedy=remedy) as spark:
            return [_measured(spark, plan, sink, folder, say) for sink in plan.sinks]


def _measured(spark: SparkSession, plan: LatencyPlan, sink: str, folder: Path, say: Say) -> dict[str, Any]:
    with bench_server(hook=True) as server:
        query = _start(spark, plan, server, sink, folder)
        say(f"{sink}: warming up, then {plan.seconds:g} s with {plan.rate:g} answers/s")
        sent = 0
        for number, seconds in enumerate((_WARM_UP_SEC, plan.seconds)):
            load = Load(server.host, server.port, stream=False, clients=_CLIENTS, seconds=seconds, rate=plan.rate)
            before, sent = sent, sent + server.measure(load).got.answers
            if not number:
                say(f"{sink}: {sent} answers to warm up")
        _drain(query, sent)
        batches = [_batch(progress) for progress in query.recentProgress if progress["numInputRows"]]
        query.stop()
    rows = _rows(spark.table(_TABLE) if sink == "memory" else spark.read.format("delta").load(str(folder / "table")))
    return {"sink": sink, **latency_result(rows[before:], batches), "rate": plan.rate, "trigger_ms": plan.trigger_ms}


def _start(spark: SparkSession, plan: LatencyPlan, server: BenchServer, sink: str, folder: Path) -> StreamingQuery:
    rows = (
        spark.readStream.format("dspark-json").option("contentSchema", to_ddl(content_type())).load(str(server.spool))
    )
    writer = (
        rows.selectExpr("*", f"{_FINISHED} AS finished", f"{_NOW} AS handed")
        .writeStream.format(sink)
        .queryName(_TABLE)
        .option("checkpointLocation", str(folder / "checkpoint" / sink))
        .trigger(processingTime=f"{plan.trigger_ms} milliseconds")
    )
    return writer.start(str(folder / "table")) if sink == "delta" else writer.start()


def _drain(query: StreamingQuery, answers: int) -> None:
    import time

    deadline = time.monotonic() + _DRAIN_SEC
    while sum(progress["numInputRows"] for progress in query.recentProgress) < answers:
        failure = query.exception()
        if failure is not None or time.monotonic() > deadline:
            raise DSparkJsonError(f"the stream did not read all {answers} answers: {failure or 'it is too slow'}")
        time.sleep(0.5)


def _rows(table: DataFrame) -> list[RowTimes]:
    """The rows in the order of their records."""
    times = table.selectExpr("_dspark.seq", "finished", "unix_micros(_dspark.appended_at)", "handed").collect()
    return [RowTimes(*row[1:]) for row in sorted(times)]


def _batch(progress: Mapping[str, Any]) -> Batch:
    begin = round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000_000)
    durations = progress["durationMs"]
    return Batch(begin, begin + 1000 * durations["triggerExecution"], durations)


def latency_result(rows: Sequence[RowTimes], batches: Sequence[Batch]) -> dict[str, Any]:
    """Quantiles, and the mean of each step over rows: ``STEPS`` add up to the mean until a row is handed over.

    ``committed`` is until the end of the micro-batch, when the next one may begin.
    """
    begins = [batch.begin for batch in batches]
    found = [batches[max(0, bisect.bisect_right(begins, row.handed) - 1)] for row in rows]
    handed = sorted((row.handed - row.finished) / 1000 for row in rows)
    committed = sorted((batch.end - row.finished) / 1000 for row, batch in zip(rows, found, strict=True))
    steps = {
        "recording": fmean(row.appended - row.finished for row in rows) / 1000,
        "waiting": fmean(batch.begin - row.appended for row, batch in zip(rows, found, strict=True)) / 1000,
        **{step: fmean(batch.steps_ms.get(step, 0) for batch in found) for step in _BEFORE_TASKS},
    }
    steps["execution"] = fmean(handed) - sum(steps.values())
    return {
        "p50_ms": round(_quantile(handed, 0.5), 1),
        "p99_ms": round(_quantile(handed, 0.99), 1),
        "committed_p50_ms": round(_quantile(committed, 0.5), 1),
        "committed_p99_ms": round(_quantile(committed, 0.99), 1),
        "mean_ms": round(fmean(handed), 1),
        "steps_ms": {step: round(steps[step], 1) for step in STEPS},
        "batch_p50_ms": round(_quantile(sorted((b.end - b.begin) / 1000 for b in batches), 0.5), 1),
        "batches": len(batches),
        "answers": len(rows),
    }


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    return ordered[int(quantile * (len(ordered) - 1))]
