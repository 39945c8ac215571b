"""The soak of the JVM connector: thousands of micro-batches, reads that are cut short, and what is held afterwards.

One Spark in its own JVM, one worker. A stream takes a few answers a micro-batch, all columns with typed content, into
a sink that reads them and keeps nothing. After every twelfth of the run, while nothing is under way, the JVM collects
its garbage, and what is still held is noted. Then reads that end early: limits, tasks that fail in the midst of their
rows, queries that fail with them, queries that are stopped.

``python -m soak.micro_batches --batches 10000 [--json]`` with ``tests`` on the path; 1 where it failed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from soak.held import Held, growth, growth_by_cuts
from soak.process import children, open_files, own_mib, threads

from dspark_json import configure_spark
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_ROUNDS: Final = 12
_LANES: Final = 2
_A_BATCH: Final = 4
_LARGE_RECORDS: Final = 1_500
_LARGE_BYTES: Final = 16_000
_SETTLE_SEC: Final = 10.0
_META: Final = b'"request_id":"r","path":"/v1/chat/completions","status":200,"stream":false,"completed":true'
_CONTENT: Final = "order_id STRING, amount DOUBLE, items ARRAY<STRUCT<sku: STRING, quantity: BIGINT>>"
_WORKER: Final = "dspark_json.source.worker"
_SETTINGS: Final = WriterSettings(segment_bytes=8 << 20, retention_bytes=64 << 20, min_free_ratio=0.0)
_MIDST: Final = 1_000
_FAILS: Final = f"IF(_dspark.seq = {_MIDST}, CAST(raise_error('in the midst') AS INT), 1) AS fails"
_IS_SLOW: Final = "java_method('java.lang.Thread', 'sleep', 1L) AS slow"
# Compiled quickly and collected at once: what is measured is what is held, not how fast.
_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# What Spark itself remembers of what it did: little, so that a run of any length soon holds the most it ever will.
_MEMORIES: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "20",
    "spark.ui.dagGraph.retainedRootRDDs": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.streaming.ui.retainedQueries": "2",
    "spark.sql.streaming.ui.retainedProgressUpdates": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.sql.streaming.noDataProgressEventInterval": "1h",  # the last progress is that of the last micro-batch
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was held after each part of the run; ``failures`` empty is right."""

    batches: int
    rows: int
    seconds: float
    cut_reads: int
    most_arrow: int
    held: list[Held]
    failures: list[str]

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {**dataclasses.asdict(self), "seconds": round(self.seconds, 1)}

    def lines(self) -> list[str]:
        """For people."""
        lines = [
            (
                f"{self.batches} micro-batches, {self.rows} rows, {self.seconds:.0f} s "
                f"({1000 * self.seconds / self.batches:.0f} ms each); {self.cut_reads} reads cut short; "
                f"Arrow memory: at most {self.most_arrow / (1 << 20):.1f} MiB"
            )
        ]
        return [*lines, *(f"FAILED: {failure}" for failure in self.failures)]


@dataclass(slots=True)
class Soak:
    """One run, in a folder of its own."""

    spark: SparkSession
    folder: Path
    batches: int
    say: Callable[[str], None]
    held: list[Held] = field(default_factory=list)
    rows: int = 0

    def run(self) -> Outcome:
        """Do all of it."""
        began = time.monotonic()
        failures = self._stream()
        seconds = time.monotonic() - began
        looks = list(self.held)
        cuts = self._cut_short()
        failures += growth(looks) + growth_by_cuts(*self.held[-2:], cuts // 2)
        peak = int(self._allocator().getPeakMemoryAllocation())
        if not peak:
            failures.append("no Arrow memory was ever used: this is not the connector")
        return Outcome(self.batches, self.rows, seconds, cuts, peak, self.held, failures)

    # -- micro-batches ------------------------------------------------------------------------------------------------

    def _stream(self) -> list[str]:
        """``batches`` micro-batches; gives what was wrong with them."""
        writers = [LaneWriter.open(self.folder / "spool", _SETTINGS) for _ in range(_LANES)]
        answers = [_record(f"answer-{number}") for number in range(_A_BATCH // _LANES)]
        for writer in writers:
            writer.append(answers)
        query = self._start(self._read("spool", stream=True), "stream")
        query.processAllAvailable()
        done = 1
        try:
            for number in range(1, _ROUNDS + 1):
                wanted = self.batches * number // _ROUNDS
                for writer in writers:
                    writer.append(answers * (wanted - done))
                query.processAllAvailable()
                done = wanted
                progress = query.lastProgress
                assert progress is not None
                self.rows = int(progress.sources[0].metrics["records"])
                if (progress.batchId, self.rows) != (done - 1, _A_BATCH * done):
                    return [f"{self.rows} rows after batch {progress.batchId}, meant are {_A_BATCH} in each of {done}"]
                self._look(f"{done} micro-batches", done)
        finally:
            query.stop()
            for writer in writers:
                writer.close()
        return []

    # -- reads that end early -----------------------------------------------------------------------------------------

    def _cut_short(self) -> int:
        """Reads that end early, twice as many; gives how many."""
        writer = LaneWriter.open(self.folder / "large", _SETTINGS)
        for _ in range(_LARGE_RECORDS // 100):
            writer.append([_record("large", "x" * _LARGE_BYTES)] * 100)
        writer.close()
        times = max(3, self.batches // 500)
        kinds: list[Callable[[int], None]] = [self._limited, self._failing, self._failing_stream, self._stopped]
        for number in range(2 * times):
            for kind in kinds:
                kind(number)
            if number % times == times - 1:
                self._look(f"{(number + 1) * len(kinds)} reads cut short", self.batches)
        return 2 * times * len(kinds)

    def _limited(self, _: int) -> None:
        rows = self._read("large").limit(3).collect()
        assert len(rows) == 3

    def _failing(self, _: int) -> None:
        with contextlib.suppress(Exception):
            self._read("large").selectExpr("*", _FAILS).write.format("noop").mode("overwrite").save()
            raise AssertionError("the task did not fail")

    def _failing_stream(self, number: int) -> None:
        query = self._start(self._read("large", stream=True).selectExpr("*", _FAILS), f"fails-{number}")
        with contextlib.suppress(Exception):
            query.awaitTermination(60)
        assert "in the midst" in str(query.exception())

    def _stopped(self, number: int) -> None:
        query = self._start(self._read("large", stream=True).selectExpr("*", _IS_SLOW), f"stopped-{number}")
        deadline = time.monotonic() + _SETTLE_SEC
        while not self._arrow() and time.monotonic() < deadline:  # until rows are being read
            time.sleep(0.002)
        query.stop()

    # -- Spark --------------------------------------------------------------------------------------------------------

    def _read(self, name: str, *, stream: bool = False) -> DataFrame:
        reader = self.spark.readStream if stream else self.spark.read
        options = {"contentSchema": _CONTENT, "minPartitions": str(_LANES)}
        if name == "spool":
            options["maxRecordsPerTrigger"] = str(_A_BATCH)
        return reader.format("dspark-json").options(**options).load(str(self.folder / name))

    def _start(self, frame: DataFrame, name: str) -> StreamingQuery:
        checkpoint = str(self.folder / "checkpoints" / name)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime="0 seconds").start()

    # -- what is held -------------------------------------------------------------------------------------------------

    def _allocator(self) -> Any:
        """Spark's root of all Arrow memory in the JVM; nothing else here has any."""
        return self._jvm().org.apache.spark.sql.util.ArrowUtils.rootAllocator()

    def _arrow(self) -> int:
        return int(self._allocator().getAllocatedMemory())

    def _jvm(self) -> Any:
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return jvm

    def _look(self, after: str, batches: int) -> None:
        """Note what is held, once what has just ended has let go of it."""
        deadline = time.monotonic() + _SETTLE_SEC
        while self._arrow() and time.monotonic() < deadline:
            time.sleep(0.01)
        jvm, allocator = self._jvm(), self._allocator()
        process = int(jvm.java.lang.ProcessHandle.current().pid())
        (worker,) = children(process, _WORKER)
        beans = jvm.java.lang.management.ManagementFactory
        pools = beans.getPlatformMXBeans(jvm.java.lang.Class.forName("java.lang.management.BufferPoolMXBean"))
        memory = beans.getMemoryMXBean()
        for _ in range(2):  # Spark's own cleaner lets go of more once the first one has found it
            memory.gc()
            time.sleep(0.1)
        self.held.append(
            Held(
                after,
                batches,
                int(allocator.getAllocatedMemory()),
                int(allocator.getChildAllocators().size()),
                int(memory.getHeapMemoryUsage().getUsed()),
                sum(int(pool.getMemoryUsed()) for pool in pools if pool.getName() == "direct"),
                open_files(process),
                round(own_mib(worker) * (1 << 20)),
                threads(worker),
                open_files(worker),
            )
        )
        self.say(str(self.held[-1]))


def _record(name: str, filling: str = "") -> Record:
    content = json.dumps({"order_id": f"{name}{filling}", "amount": 12.5, "items": [{"sku": "a", "quantity": 3}]})
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 36, "completion_tokens": 123, "total_tokens": 159}
    body = {"id": name, "object": "chat.completion", "created": 1_764_400_000, "model": "tiny", "choices": [choice]}
    return Record(_META, json.dumps({**body, "usage": usage}).encode()[1:-1])


@contextlib.contextmanager
def local_spark(folder: Path) -> Iterator[SparkSession]:
    """A Spark of two cores in a JVM of its own, with the connector."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        **_MEMORIES,
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} {_JVM}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
        # No checksums beside the checkpoint's files: without Hadoop's native library each file costs a process (chmod).
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }
    builder = SparkSession.Builder().master("local[2]").appName("dspark-json soak")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = configure_spark(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Thousands of micro-batches; what is held must not grow.")
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object, last")
    given = parser.parse_args()
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="dspark-soak-", dir=place if place.is_dir() else None, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        with local_spark(folder) as spark:
            outcome = Soak(spark, folder, given.batches, lambda line: print(line, file=sys.stderr, flush=True)).run()
    print(json.dumps(outcome.document()) if given.json else "\n".join(outcome.lines()))
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
