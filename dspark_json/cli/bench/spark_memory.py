"""Whether a stream keeps its memory over many micro-batches: Arrow's allocator, the JVM's heap, the worker."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.answers import MEGABYTE
from dspark_json.cli.bench.cpu_times import descendants_memory
from dspark_json.cli.bench.spark_answers import prepare_answers
from dspark_json.cli.bench.spark_pipelines import Pipeline, stream
from dspark_json.cli.bench.spark_session import local_spark
from dspark_json.cli.bench.statistics import slope
from dspark_json.errors import DSparkJsonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SLICES: Final = 20
_MIB: Final = 1 << 20
_PER: Final = 10_000
_BATCH_MEGABYTES: Final = 0.006  # four answers
_CORES: Final = 2

Say = Callable[[str], None]


def measure_stream_memory(batches: int, say: Say) -> dict[str, Any]:
    """Run a stream of ``batches`` micro-batches into noop and look twenty times meanwhile.

    Each sample has the bytes that Arrow's allocator of Spark has given out, and in MiB the JVM's heap after a
    collection and the resident memory of the worker, and how many files the JVM has open. ``…_per_10000`` are slopes
    over the last three quarters: what comes before is caches filling up.
    """
    with tempfile.TemporaryDirectory(prefix="dspark-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        answers = prepare_answers(folder, batches * _BATCH_MEGABYTES, 1)
        each = max(1, answers.records // batches)
        say(f"{answers.records} answers, {answers.bytes / MEGABYTE:.0f} MB, {each} a micro-batch")
        with local_spark(folder, cores=_CORES, connector=True, remedy="See its log.") as spark:
            # Kept, the progress of all micro-batches would be a leak of its own.
            spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10")
            rows = stream(spark, Pipeline("jvm", "all"), answers, _CORES, batch_records=each)
            query = (
                rows.writeStream.format("noop")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            samples = _samples(spark, query, batches, say)
    later = samples[len(samples) // 4 :]
    return {
        "micro_batches": samples[-1]["micro_batches"],
        "arrow_bytes": max(sample["arrow_bytes"] for sample in samples[-1:]),
        **{
            f"{part}_mib_per_10000": round(slope([(s["micro_batches"], s[f"{part}_mib"]) for s in later]) * _PER, 2)
            for part in ("heap", "worker")
        },
        "samples": samples,
    }


def _samples(spark: SparkSession, query: StreamingQuery, batches: int, say: Say) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    while True:
        done = not query.isActive
        progress = query.lastProgress
        number = 0 if progress is None else progress["batchId"] + 1
        if number >= batches * (len(samples) + 1) // _SLICES or done:
            samples.append(_sample(spark, number))
            last = samples[-1]
            say(
                f"{number:>7} micro-batches: Arrow {last['arrow_bytes']} bytes, heap {last['heap_mib']} MiB, "
                f"worker {last['worker_mib']} MiB, {last['open_files']} files"
            )
        if done:
            break
        time.sleep(0.05)
    failure = query.exception()
    if failure is not None:
        raise DSparkJsonError(f"the stream failed: {failure}")
    return samples


def _sample(spark: SparkSession, number: int) -> dict[str, Any]:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - the only way to its memory
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    return {
        "micro_batches": number,
        "arrow_bytes": int(jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory()),
        "heap_mib": round((runtime.totalMemory() - runtime.freeMemory()) / _MIB, 1),
        "worker_mib": round(descendants_memory(pid) / _MIB, 1),
        "open_files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }
