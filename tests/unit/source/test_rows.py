"""Batches from chunks: order, threads, schema."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dspark_json.engine import build_plan
from dspark_json.engine.native import NativeEngine
from dspark_json.errors import MalformedRecordError
from dspark_json.source.rows import row_batches
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans

PAD = "x" * 5_000


def chunk(first: int, count: int, body: str = PAD) -> Chunk:
    lines = [
        json.dumps({"_dspark": {"path": "/"}, "id": f"{seq}", "choices": [{"message": {"content": body}}]}).encode()
        + b"\n"
        for seq in range(first, first + count)
    ]
    ends = [sum(map(len, lines[: i + 1])) for i in range(count)]
    return Chunk(
        "s", "0000", first, memoryview(b"".join(lines)), ends, [1_000_000 + seq for seq in range(first, first + count)]
    )


class Meeting:
    """The native engine, whose calls wait until as many are under way as there are threads."""

    name = "native"

    def __init__(self, parties: int) -> None:
        self._engine = NativeEngine()
        self._barrier = threading.Barrier(parties)

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        self._barrier.wait(10)
        return self._engine.parse(spans, plan)


def test_threads_parse_at_once_and_keep_the_order() -> None:
    # Small chunks are parsed whole, larger ones in pieces: 4 + 4 (of two chunks), then 4 chunks.
    chunks = [chunk(0, 1000), chunk(1000, 1000), *(chunk(2000 + 10 * i, 10) for i in range(4))]
    plan = build_plan()
    found = pa.Table.from_batches(list(row_batches(chunks, Meeting(4), plan, plan.columns, threads=4)))
    expected = pa.Table.from_batches(list(row_batches(chunks, NativeEngine(), plan, plan.columns)))
    assert found.equals(expected)
    assert found["id"].to_pylist() == [str(seq) for seq in range(2040)]


def test_the_first_malformed_record_in_order_fails_the_read_with_threads_too() -> None:
    plan = build_plan(content_type=pa.int64(), mode="FAILFAST")
    chunks = [chunk(0, 2, "1"), chunk(2, 1, "no"), chunk(3, 1, "neither")]
    for threads in (1, 3):
        rows = row_batches(chunks, NativeEngine(), plan, plan.columns, threads=threads)
        assert next(rows).num_rows == 2
        with pytest.raises(MalformedRecordError, match="record 2 of lane 0000"):
            next(rows)


def test_a_reader_that_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    asked = 0

    def chunks() -> Iterator[Chunk]:
        nonlocal asked
        for i in range(100):
            asked += 1
            yield chunk(i, 1)

    plan = build_plan()
    rows = row_batches(chunks(), NativeEngine(), plan, plan.columns, threads=3)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert asked == 3


def test_choices_are_null_where_an_answer_has_none() -> None:
    texts = ['"choices":[]', '"choices":[{"index":7}]', '"choices":null', '"id":"x"', '"choices":[]']
    lines = [f'{{"_dspark":{{"path":"/"}},{text}}}\n'.encode() for text in texts]
    ends = [sum(map(len, lines[: i + 1])) for i in range(len(lines))]
    made = Chunk("s", "0000", 0, memoryview(b"".join(lines)), ends, [1] * len(lines))
    plan = build_plan()
    (batch,) = row_batches([made], NativeEngine(), plan, plan.columns)
    batch.validate(full=True)
    assert [value and value[0]["index"] for value in batch["choices"].to_pylist()] == [None, 7, None, None, None]
