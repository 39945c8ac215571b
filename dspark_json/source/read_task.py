"""What a task needs to turn splits into rows, and the reading itself: one path for both Spark adapters (DESIGN §1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dspark_json.engine.base import ParseStats
from dspark_json.engine.selection import DEFAULT_GPU_SHARE
from dspark_json.errors import DataLossError
from dspark_json.source.reading import read_split
from dspark_json.source.rows import choose_engine, row_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from dspark_json.engine.base import ParsePlan
    from dspark_json.source.device_reading import DeviceChunk
    from dspark_json.source.splits import Split
    from dspark_json.spool.access import Chunk

__all__ = ["ReadTask", "ReadTotals", "TaskReader"]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that reading takes: an executor needs no file and no variable of the driver's.

    ``plan`` makes the rows and ``wanted`` is their exact schema; ``threads`` parse at once in each task.
    """

    plan: ParsePlan
    wanted: pa.Schema
    key: str | None = field(repr=False)
    timeout_s: float
    fail_on_data_loss: bool
    parse_mode: str
    gpu_share: int = DEFAULT_GPU_SHARE
    threads: int = 1


@dataclass(slots=True)
class ReadTotals:
    """Counts of one split as far as it has been read.

    ``lost`` are records that were gone (``failOnDataLoss=false``), ``first`` is the number of the first record that
    was there, None before one was read.
    """

    parsed: ParseStats = field(default_factory=ParseStats)
    lost: int = 0
    first: int | None = None

    def lose(self, records: int) -> None:
        """Count records that are gone."""
        self.lost += records


class TaskReader:
    """Reads the splits of one task's query. Safe from any thread: each read has an engine of its own."""

    def __init__(self, task: ReadTask) -> None:
        self.task = task

    def batches(
        self, split: Split, totals: ReadTotals | None = None, *, expected_first: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split in order, in exactly the schema wanted; ``totals`` is kept up with them.

        Raises ``EngineUnavailableError`` where the engine that the task wants can't run here.

        ``expected_first`` is ``ReadTotals.first`` of an earlier read whose rows are not wanted again: a
        ``DataLossError`` where the split begins with another record now, so that counting rows off would skip others.
        """
        totals = totals if totals is not None else ReadTotals()
        engine = choose_engine(self.task.parse_mode, self.task.gpu_share)
        chunks = read_split(
            split,
            key=self.task.key,
            timeout_s=self.task.timeout_s,
            fail_on_data_loss=self.task.fail_on_data_loss,
            from_ring=engine.name == "cudf",
            on_loss=totals.lose,
        )
        noted = _noting_first(chunks, totals, expected_first)
        return row_batches(
            noted, engine, self.task.plan, self.task.wanted, threads=self.task.threads, totals=totals.parsed
        )


def _noting_first(
    chunks: Iterator[Chunk | DeviceChunk], totals: ReadTotals, expected: int | None
) -> Iterator[Chunk | DeviceChunk]:
    for chunk in chunks:
        if totals.first is None:
            totals.first = chunk.first_seq
            if expected is not None and chunk.first_seq != expected:
                raise DataLossError(
                    f"a read that was cut short can't go on: it began with record {expected} of lane {chunk.lane} of "
                    f"spool {chunk.spool_id}, which is gone now (the first one left is {chunk.first_seq})",
                    remedy="Restart the query: it reads this micro-batch again from its beginning, and counts what is "
                    "gone as lost_records.",
                )
        yield chunk
