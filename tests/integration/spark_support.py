"""What the tests with Spark share: spools of recorded answers, queries over them, and what this Spark has."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures" / "vllm" / "answers.ndjson").read_text().splitlines()
]
SETTINGS = WriterSettings(segment_bytes=20_000, retention_bytes=1 << 30, min_free_ratio=0.0)
SPARK = tuple(int(part) for part in importlib.metadata.version("pyspark").split(".")[:2])
HAS_DELTA = SPARK <= (4, 2)  # there is no Delta Lake for newer ones yet
HAS_PYTHON_SOURCE = SPARK >= (4, 2)  # older ones don't let a Python source limit a micro-batch
needs_python_source = pytest.mark.skipif(not HAS_PYTHON_SOURCE, reason="this Spark is too old for the Python source")
TABLES = "delta" if HAS_DELTA else "parquet"
META = b'"request_id":"r","path":"/v1/chat/completions","status":200,"stream":false,"completed":true'


def write(folder: Path, count: int, lanes: int = 1) -> list[str]:
    """Write recorded answers, ``count`` to each lane, each with an id of its own; gives the ids."""
    writers = [LaneWriter.open(folder, SETTINGS) for _ in range(lanes)]
    ids = []
    for writer in writers:
        records = []
        for i in range(count):
            seq = writer.next_seq + i
            answer = {**ANSWERS[seq % len(ANSWERS)], "id": f"{writer.lane}-{seq}"}
            ids.append(answer["id"])
            records.append(Record(META, json.dumps(answer).encode()[1:-1]))
        writer.append(records)
    for writer in writers:
        writer.close()
    return ids


def drain(frame: DataFrame, folder: Path, kind: str = TABLES) -> StreamingQuery:
    """Append what there is to ``folder/table``, from where its checkpoint is."""
    query = (
        frame.writeStream.format(kind)
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    assert query.awaitTermination(120)
    return query


def as_json(frame: DataFrame) -> list[str]:
    """The rows as JSON, sorted."""
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*))").collect())
