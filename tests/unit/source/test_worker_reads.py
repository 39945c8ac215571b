"""Rows over the worker's socket: all of them, in the schema that was asked for, and again from where a read was cut."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from typed_spools import answer, schema, write
from unit.source.test_checking import asked

from dspark_json.source.query import Query
from dspark_json.source.read_task import TaskReader
from dspark_json.source.texts import schema_text, split_from, task_from
from dspark_json.source.worker_protocol import READ_METRICS, read_frame, write_frame
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

from .spools import expire
from .worker_support import running_worker

if TYPE_CHECKING:
    from .worker_support import Connection, WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = (ROOT / "fixtures/vllm/answers.ndjson").read_text().splitlines()
META = b'"request_id":"r","path":"/v1/chat/completions","status":200,"stream":false,"completed":true'
SEGMENTS = WriterSettings(segment_bytes=100_000, retention_bytes=1 << 30, min_free_ratio=0.0)
PARSED = pa.struct([("a", pa.int64()), ("b", pa.string())])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool of 1,000 recorded answers in several segments, so that a read gives several batches."""
    folder = tmp_path_factory.mktemp("recorded") / "spool"
    writer = LaneWriter.open(folder, SEGMENTS)
    bodies = [json.dumps({**json.loads(line), "id": f"answer-{i}"}) for i, line in enumerate(ANSWERS)]
    writer.append([Record(META, bodies[i % len(bodies)].encode()[1:-1]) for i in range(1000)])
    writer.close()
    return folder


@pytest.mark.parametrize(
    "options", [{}, {"contentSchema": "order_id STRING, amount DOUBLE"}, {"parse_kernel_threads": "4"}]
)
def test_the_rows_are_those_of_the_python_source(
    connection: Connection, recorded: Path, options: dict[str, str]
) -> None:
    given = {"path": str(recorded), **options}
    task, splits = connection.batch(given)
    read = connection.read(task, splits[0])
    query = Query.resolve(given)
    expected = list(TaskReader(query.task(query.schema())).batches(query.batch_splits()[0]))
    assert len(read.batches) > 3
    assert pa.Table.from_batches(read.batches).equals(pa.Table.from_batches(expected))
    assert read.schema.equals(query.schema(), check_metadata=True)
    assert read.last["rows"] == 1000
    assert tuple(read.last["metrics"]) == READ_METRICS
    assert read.last["metrics"]["records"] == 1000
    assert read.last["metrics"]["bytes"] > 500_000
    assert min(read.last["metrics"][name] for name in ("parse_ns", "serialize_ns", "send_ns")) > 0


def test_a_read_that_was_cut_short_goes_on_with_the_next_row(connection: Connection, recorded: Path) -> None:
    task, splits = connection.batch({"path": str(recorded)})
    whole = connection.read(task, splits[0])
    for skip in (1, whole.batches[0].num_rows, whole.batches[0].num_rows + 1, 999, 1000):
        rest = connection.read(task, splits[0], skip_rows=skip, attempt=1, began=whole.began)
        assert rest.rows == whole.rows[skip:]
        assert rest.last["rows"] == 1000 - skip
        assert rest.last["metrics"]["records"] == 1000


def test_another_worker_gives_the_same_rows_where_one_was_killed(
    worker: WorkerProcess, recorded: Path, tmp_path: Path
) -> None:
    with worker.connected() as connection:
        task, splits = connection.batch({"path": str(recorded)})
        whole = connection.read(task, splits[0])
    with running_worker(tmp_path / "one") as one, one.connected() as cut:
        write_frame(cut.raw, {"op": "read", "task": task, "split": splits[0], "skip_rows": 0, "attempt": 0})
        began = read_frame(cut.raw)["began"]
        got = cut.raw.recv(100_000)
        one.process.kill()
        while part := cut.raw.recv(1 << 20):
            got += part
        seen = whole.batches[0].num_rows
        assert len(got) < sum(batch.nbytes for batch in whole.batches)
    with running_worker(tmp_path / "two") as two, two.connected() as other:
        rest = other.read(task, splits[0], skip_rows=seen, attempt=1, began=began)
        assert rest.rows == whole.rows[seen:]


def test_rows_are_not_counted_off_where_records_have_gone_meanwhile(connection: Connection, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer = LaneWriter.open(folder, WriterSettings(segment_bytes=2_000, retention_bytes=1 << 30, min_free_ratio=0.0))
    for i in range(60):
        writer.append([Record(META, b'"id":"%d","created":1' % i)])
    writer.close()
    task, splits = connection.batch({"path": str(folder), "failOnDataLoss": "false"})
    whole = connection.read(task, splits[0])
    first = expire(folder)
    refused = connection.request("read", task=task, split=splits[0], skip_rows=20, attempt=1, began=whole.began)
    assert refused["code"] == "DSPARK_JSON_DATA_LOSS"
    assert f"the first one left is {first}" in refused["text"]
    # From the beginning it is as ever: what is gone is counted.
    again = connection.read(task, splits[0])
    assert again.rows == whole.rows[first:]
    assert again.last["metrics"]["lost"] == first
    # And what was gone before the first read is no reason not to go on.
    rest = connection.read(task, splits[0], skip_rows=5, attempt=1, began=again.began)
    assert rest.rows == again.rows[5:]


def test_filters_modes_and_repairs_are_counted(connection: Connection, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    order = schema("order", 1, a="integer")
    good = [
        answer('{"a":1}', order),
        answer('{"a":"x"}', order),
        answer("no", order),
        answer('{"a":', order, finish_reason="length"),
    ]
    write(folder, *good, answer('{"a":1}'), Record(b'"path":"/"', b'"id":'), registers=(order,))

    def counted(**options: str) -> dict[str, int]:
        task, splits = connection.batch({"path": str(folder), **options})
        last = connection.read(task, splits[0]).last
        metrics = {name: last["metrics"][name] for name in READ_METRICS if not name.endswith(("_ns", "bytes"))}
        return {"rows": last["rows"]} | {name: count for name, count in metrics.items() if count}

    found = {"records": 6, "mismatches": 1, "invalid": 1, "truncated": 1}
    assert counted(contentSchema="a BIGINT") == {"rows": 6, **found, "corrupt": 1}
    assert counted(responseSchema="order") == {"rows": 4, **found, "filtered": 2}
    assert counted(responseSchema="order", mode="DROPMALFORMED") == {"rows": 2, **found, "filtered": 2, "dropped": 2}


def test_violations_of_constraints_come_where_they_are_asked_for(connection: Connection, tmp_path: Path) -> None:
    write(tmp_path, asked('{"amount": 0}'), asked('```\n{"amount": 1}\n```'), asked('{"amount"'))
    options = {"path": str(tmp_path), "checkConstraints": "true"}
    task, splits = connection.batch(options)
    whole = connection.read(task, splits[0])
    assert whole.schema.equals(Query.resolve(options).schema(), check_metadata=True)
    assert [row["choices"][0]["violations"] for row in whole.rows] == [["#/amount minimum"], [], None]


def test_no_columns_are_still_rows(connection: Connection, recorded: Path) -> None:
    task, splits = connection.batch({"path": str(recorded)}, columns=schema_text(pa.schema([])))
    read = connection.read(task, splits[0])
    assert (read.count, read.last["rows"], read.schema.names) == (1000, 1000, [])
    rest = connection.read(task, splits[0], skip_rows=990, attempt=1, began=read.began)
    assert rest.count == 10


def test_any_subset_of_the_columns_comes_in_the_order_asked_for(connection: Connection, recorded: Path) -> None:
    item = pa.field("element", pa.struct([("message", pa.struct([("content", pa.string())])), ("index", pa.int64())]))
    stamp = pa.timestamp("us", tz="Europe/Rome")
    asked = pa.schema(
        [
            ("usage", pa.struct([("total_tokens", pa.int64())])),
            ("choices", pa.list_(item)),
            ("created", stamp),
            ("id", pa.string()),
        ]
    )
    stream = connection.stream({"path": str(recorded)})
    start = stream.ask("initial")["offset"]
    end = stream.all(start)
    whole = stream.ask("plan", start=start, end=end)
    pruned = stream.ask("plan", start=start, end=end, schema=schema_text(asked))
    split = pruned["splits"][0]["split"]
    assert pruned["task"] != whole["task"] == stream.opened["task"]
    read = connection.read(pruned["task"], split)
    assert read.schema.equals(asked, check_metadata=True)
    for row, full in zip(read.rows, connection.read(whole["task"], split).rows, strict=True):
        assert row["id"] == full["id"]
        assert row["created"] == full["created"]
        assert row["usage"] == (full["usage"] and {"total_tokens": full["usage"]["total_tokens"]})
        assert row["choices"] == [
            {"message": {"content": choice["message"]["content"]}, "index": choice["index"]}
            for choice in full["choices"]
        ]
    assert task_from(pruned["task"]).plan.columns.names == asked.names


def test_pruning_does_not_change_what_a_users_schema_declared(connection: Connection, tmp_path: Path) -> None:
    """What a schema says of ``parsed`` decides on ``parse_status``, also where only that is read."""
    folder = tmp_path / "spool"
    write(folder, answer('{"a":1,"b":"x"}'), answer('{"a":1,"b":2,"c":3}'), answer('{"a":"x","b":"y"}'))

    def choices(*fields: tuple[str, pa.DataType]) -> pa.Schema:
        return pa.schema(
            [("choices", pa.list_(pa.field("element", pa.struct(fields)))), ("_rescued_data", pa.string())]
        )

    given = choices(("parsed", PARSED), ("parse_status", pa.string()))
    whole = None
    for pruned in (
        given,
        choices(("parse_status", pa.string())),
        choices(("parsed", pa.struct([("b", pa.string())])), ("parse_status", pa.string())),
    ):
        options = {"path": str(folder)}
        described = connection.ask("describe", options=options, table=False, schema=schema_text(given))
        planned = connection.ask(
            "plan_batch",
            options=options,
            rows=described["rows"],
            schema=schema_text(given),
            columns=schema_text(pruned),
        )
        read = connection.read(planned["task"], planned["splits"][0]["split"])
        judged = [(row["choices"][0]["parse_status"], row["_rescued_data"]) for row in read.rows]
        whole = whole or judged
        assert judged == whole
    assert [status for status, _ in whole or []] == ["ok", "ok", "mismatch"]


def test_an_error_before_the_first_row_is_the_answer_and_a_later_one_the_last_frame(
    connection: Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    writer = LaneWriter.open(folder, WriterSettings(segment_bytes=2_000, retention_bytes=1 << 30, min_free_ratio=0.0))
    for i in range(60):
        writer.append([Record(META, b'"id":"%d","created":1' % i)])
    writer.close()
    task, splits = connection.batch({"path": str(folder)})
    last = max((folder / "lanes/0000").glob("*.ndjson"))
    damaged = bytearray(last.read_bytes())
    damaged[100] ^= 1
    last.write_bytes(damaged)
    read = connection.read(task, splits[0])
    assert 0 < read.count < 60
    assert (read.last["ok"], read.last["code"], read.last["kind"]) == (False, "DSPARK_JSON_SPOOL_CORRUPT", "data")
    expire(folder)
    refused = connection.request("read", task=task, split=splits[0], skip_rows=0, attempt=0)
    assert refused["code"] == "DSPARK_JSON_DATA_LOSS"
    assert connection.request("close_stream", stream="none")["ok"]  # the connection goes on


def test_a_task_needs_nothing_of_the_driver(recorded: Path, tmp_path: Path, connection: Connection) -> None:
    types, key = tmp_path / "type.ddl", tmp_path / "key"
    types.write_text("order_id STRING")
    key.write_text("s3cret\n")
    task, splits = connection.batch(
        {"path": str(recorded), "contentSchema": str(types), "vllm_api_key_file": str(key), "profile": "deepseek"}
    )
    here = connection.read(task, splits[0])
    types.unlink()
    key.unlink()
    bare = {"PYTHONPATH": str(ROOT.parent)}
    with running_worker(tmp_path / "log", environment=bare) as other, other.connected() as elsewhere:
        assert elsewhere.read(task, splits[0]).rows == here.rows
    assert task_from(task).key == "s3cret"
    assert "s3cret" not in repr(task_from(task))


def test_tasks_at_once_get_their_own_rows(worker: WorkerProcess, recorded: Path) -> None:
    with worker.connected() as connection:
        task, splits = connection.batch({"path": str(recorded), "minPartitions": "8"})
    found: dict[int, list[str]] = {}

    def read(number: int) -> None:
        with worker.connected() as own:
            found[number] = [row["_dspark"]["seq"] for row in own.read(task, splits[number]).rows]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seq for number in range(8) for seq in found[number]] == list(range(1000))
    assert [split_from(one).start for one in splits] == [number * 125 for number in range(8)]
