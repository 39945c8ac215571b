"""What the worker answers: rows, streams and their offsets, batches, errors; each as the Python source has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typed_spools import answer, schema, write

from dspark_json.errors import DSparkJsonError
from dspark_json.source.admission import ReadLimits
from dspark_json.source.query import Query
from dspark_json.source.texts import rows_from, schema_from, schema_text, split_from, task_from
from dspark_json.spool.writer import LaneWriter

from .spools import SMALL, expire, record
from .worker_support import running_worker

if TYPE_CHECKING:
    from pathlib import Path

    from .worker_support import Connection

ORDER = schema("order", 1, a="integer")
WIDER = schema("order", 2, a="integer", b="string")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def text(value: Any) -> str:
    """An offset's text, as Spark has it from the Python source."""
    return json.dumps(value)


def more(folder: Path, count: int) -> None:
    writer = LaneWriter.open(folder, SMALL)
    writer.append([record(str(i), 40) for i in range(count)])
    writer.close()


def test_the_rows_are_those_of_the_python_source(connection: Connection, folder: Path) -> None:
    write(folder, answer('{"a":1}', ORDER), registers=(ORDER,))
    for more_options in ({}, {"responseSchema": "order"}, {"contentSchema": "x DOUBLE"}, {"profile": "deepseek"}):
        options = {"path": str(folder), **more_options}
        described = connection.ask("describe", options=options, table=False)
        query = Query.resolve(options)
        assert schema_from(described["schema"]).equals(query.schema(), check_metadata=True)
        assert rows_from(described["rows"]) == query.row_type


def test_the_offsets_of_a_stream_are_those_of_the_python_source_to_the_byte(
    connection: Connection, folder: Path
) -> None:
    more(folder, 50)
    options = {"path": str(folder), "maxBytesPerTrigger": "2k"}
    stream = connection.stream(options)
    assert stream.opened["limits"] == {"max_records": None, "max_bytes": 2048}
    query = Query.resolve(options)
    planner = query.stream_planner()
    start = planner.initial()
    assert stream.ask("initial")["offset"] == text(start)
    assert stream.ask("report")["offset"] == text(planner.report())
    for limit in ({"max_records": 7}, {"max_bytes": 500}, {"max_records": 30, "max_bytes": 900}, {"all": True}):
        limits = None if "all" in limit else ReadLimits(limit.get("max_records"), limit.get("max_bytes"))
        end = planner.latest(start, query.limits(limits))
        assert stream.ask("latest", start=text(start), limit=limit)["offset"] == text(end)
        planned = stream.ask("plan", start=text(start), end=text(end))
        assert [split_from(one["split"]) for one in planned["splits"]] == planner.plan(start, end)
        assert [one["records"] for one in planned["splits"]] == [s.stop - s.start for s in planner.plan(start, end)]
        assert all(one["hosts"] for one in planned["splits"])
        start = end
    # Where nothing is new it is the very text given, whatever its spelling.
    spelled = json.dumps(start, separators=(",", ":"))
    assert stream.ask("latest", start=spelled, limit={"all": True})["offset"] == spelled
    assert stream.ask("plan", start=spelled, end=text(start))["splits"] == []


def test_a_fixed_target_is_the_end_of_all_that_is_planned(connection: Connection, folder: Path) -> None:
    more(folder, 5)
    stream = connection.stream({"path": str(folder)})
    start = stream.ask("initial")["offset"]
    stream.ask("fix_target")
    more(folder, 5)
    end = stream.all(start)
    assert '"next": 5' in end
    assert stream.all(end) == end
    assert stream.ask("stream_metrics")["metrics"]["lag_records"] == 5


def test_a_stream_goes_on_on_another_worker(connection: Connection, folder: Path, tmp_path: Path) -> None:
    more(folder, 5)
    options = {"path": str(folder), "startingOffsets": "latest"}
    stream = connection.stream(options)
    initial, target = stream.ask("initial")["offset"], stream.ask("fix_target")["target"]
    first = stream.all(initial)
    with running_worker(tmp_path / "log") as other, other.connected() as elsewhere:
        lost = elsewhere.request("initial", stream=stream.opened["stream"])
        assert lost["code"] == "DSPARK_JSON_STREAM_UNKNOWN"
        more(folder, 5)
        again = elsewhere.stream(options, initial=initial, target=target)
        assert again.ask("initial")["offset"] == initial
        # The first micro-batch brings the beginning into the checkpoint, here as there; the target holds.
        assert again.all(initial) == first.replace('"seen": 5', '"seen": 10')
        assert again.all(first) == first
        assert elsewhere.stream(options).ask("initial")["offset"] != initial


def test_a_closed_stream_is_unknown_and_closing_again_is_fine(connection: Connection, folder: Path) -> None:
    more(folder, 1)
    stream = connection.stream({"path": str(folder)})
    for _ in range(2):
        stream.ask("close_stream")
    assert connection.request("report", stream=stream.opened["stream"])["code"] == "DSPARK_JSON_STREAM_UNKNOWN"


def test_what_the_planner_counts_are_metrics(connection: Connection, folder: Path) -> None:
    more(folder, 40)
    stream = connection.stream({"path": str(folder), "failOnDataLoss": "false", "maxRecordsPerTrigger": "3"})
    start = stream.ask("initial")["offset"]
    assert stream.ask("stream_metrics")["metrics"]["lag_records"] == 0  # nothing is planned yet
    first = expire(folder)
    end = stream.ask("latest", start=start, limit={"max_records": 3})["offset"]
    stream.ask("plan", start=start, end=end)
    metrics = stream.ask("stream_metrics")["metrics"]
    (spool_id,) = json.loads(start)["spools"]
    assert metrics["lost_records"] == first
    assert metrics[f"lag_records.{spool_id}.0000"] == metrics["lag_records"] == 40 - first - 3
    assert {"spools_replaced", "endpoints_down", "dspark_schema_update_count"} < metrics.keys()


def test_a_new_schema_is_counted_and_ends_the_query_where_it_should(connection: Connection, folder: Path) -> None:
    write(folder, answer('{"a":1}', ORDER), registers=(ORDER,))
    options = {"path": str(folder), "responseSchema": "order"}
    rescuing = connection.stream(options)
    failing = connection.stream({**options, "schemaEvolutionMode": "failOnNewColumns"})
    start = rescuing.ask("initial")["offset"]
    assert failing.ask("initial")["offset"] == start
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    rescuing.all(start)
    assert rescuing.ask("stream_metrics")["metrics"]["dspark_schema_update_count"] == 1
    refused = connection.request("latest", stream=failing.opened["stream"], start=start, limit={"all": True})
    assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_SCHEMA_CHANGED", "data")


def test_the_types_of_a_query_stay_those_of_its_beginning(connection: Connection, folder: Path, tmp_path: Path) -> None:
    write(folder, answer('{"a":1}', ORDER), registers=(ORDER,))
    own = tmp_path / "mine.json"
    own.write_text(json.dumps({"name": "mine", "fields": {"usage.mine": "BIGINT"}}))
    options = {"path": str(folder), "responseSchema": "order", "profile": str(own)}
    described = connection.ask("describe", options=options, table=False)
    write(folder, registers=(WIDER,))
    own.write_text(json.dumps({"name": "mine", "fields": {"usage.other": "BIGINT"}}))
    planned = connection.ask("plan_batch", options=options, rows=described["rows"], schema=described["schema"])
    assert task_from(planned["task"]).plan.columns.equals(schema_from(described["schema"]), check_metadata=True)


def test_a_batch_reads_what_is_kept_and_refuses_latest(connection: Connection, folder: Path) -> None:
    more(folder, 9)
    task, splits = connection.batch({"path": str(folder), "minPartitions": "3"})
    assert [connection.read(task, split).count for split in splits] == [3, 3, 3]
    options = {"path": str(folder), "startingOffsets": "latest"}
    described = connection.ask("describe", options=options, table=False)
    refused = connection.request("plan_batch", options=options, rows=described["rows"], schema=described["schema"])
    assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_INVALID_OPTION", "option")


def test_a_table_keeps_no_key(connection: Connection, folder: Path) -> None:
    more(folder, 1)
    path = {"path": folder.as_uri(), "provider": "dspark-json", "owner": "me", "option.path": str(folder)}
    assert connection.ask("describe", options={**path, "mode": "FAILFAST"}, table=True)["ok"]
    for name in ("vllm_api_key", "VLLM_API_KEY", "option.vllm_api_key"):
        refused = connection.request("describe", options={**path, name: "s3cret"}, table=True)
        assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_INVALID_OPTION", "option")
        assert "vllm_api_key_file" in refused["text"]
        assert "s3cret" not in refused["text"]
    refused = connection.request("describe", options={**path, "mood": "FAILFAST"}, table=True)
    assert refused["code"] == "DSPARK_JSON_UNKNOWN_OPTION"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "option"),
        ({"path": "/no/such/folder", "mood": "x"}, "option"),
        ({"path": "/no/such/folder", "contentSchema": "a NOTHING"}, "option"),
        ({"path": "/no/such/folder", "responseSchema": "order"}, "data"),
        ({"path": "/no/such/folder", "parse_mode": "gpu-accelerated"}, "data"),
    ],
)
def test_an_error_has_the_text_that_the_python_source_gives(
    connection: Connection, given: dict[str, str], kind: str
) -> None:
    refused = connection.request("describe", options=given, table=False)
    with pytest.raises(DSparkJsonError) as caught:
        Query.resolve(given)
    assert (refused["text"], refused["code"], refused["kind"]) == (str(caught.value), caught.value.code, kind)


def test_a_users_schema_is_checked_where_it_is_given(connection: Connection, folder: Path) -> None:
    more(folder, 1)
    options = {"path": str(folder)}
    good = schema_text(pa.schema([("id", pa.string())]))
    bad = schema_text(pa.schema([("idd", pa.string())]))
    described = connection.ask("describe", options=options, table=False, schema=good)
    for refused in (
        connection.request("describe", options=options, table=False, schema=bad),
        connection.request("open_stream", options=options, rows=described["rows"], schema=bad),
        connection.request("plan_batch", options=options, rows=described["rows"], schema=bad),
    ):
        assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_SCHEMA", "option")
        assert 'Did you mean "id"?' in refused["text"]


def test_an_offset_that_is_none_is_a_named_error(connection: Connection, folder: Path) -> None:
    more(folder, 1)
    stream = connection.stream({"path": str(folder)}).opened["stream"]
    for start in ("", "nonsense", "{}", '{"v":2,"spools":{}}', "[]"):
        refused = connection.request("latest", stream=stream, start=start, limit={"all": True})
        assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_OFFSET", "data")
