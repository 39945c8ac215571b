"""Typed answers in a real Spark: contents and arguments as columns, filters, modes, schemas that change, Delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from engine_support import choice_line, parse
from typed_spools import answer, schema, tool_answer, write

from dspark_json.engine import build_plan
from dspark_json.schema.jsonschema import from_json_schema
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record

from .spark_support import HAS_DELTA, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "corpus" / "content.jsonl").read_text(encoding="utf-8").splitlines()
]
ORDER = schema("order", 1, a="integer")
WIDER = schema("order", 2, a="integer", b="string")
INVOICE = schema("invoice", 3, total="number")
WEATHER = schema("weather", 4, "tool", city="string", days="integer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def started(frame: DataFrame, folder: Path) -> StreamingQuery:
    """A stream into the table in ``folder``, from where its checkpoint is."""
    return (
        frame.writeStream.format(TABLES)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("mergeSchema", "true")
        .trigger(processingTime="100 milliseconds")
        .start(str(folder / "table"))
    )


def drain(frame: DataFrame, folder: Path) -> None:
    """Append what there is to the table."""
    query = started(frame, folder)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def table(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    frame = spark.read.format(TABLES).option("mergeSchema", "true").load(str(folder / "table"))
    return [row.asDict(recursive=True) for row in frame.collect()]


def failure(frame: DataFrame, folder: Path) -> str:
    """What a query that fails says: a sink of files has the error of a task as the cause of its own."""
    query = started(frame, folder)
    with pytest.raises(Exception, match="STREAM_FAILED"):
        query.processAllAvailable()
    texts = []
    error = query._jsq.exception().get()
    while error is not None:
        texts.append(error.getMessage())
        error = error.getCause()
    assert "Traceback" not in "".join(texts)
    return "".join(texts)


def test_contents_are_columns_of_a_table(spark: SparkSession, adapter: str, folder: Path, tmp_path: Path) -> None:
    good, fenced = answer('{"item name":"tea","n":2}'), answer('```json\n{"item name":"rice","n":"x","k":1}\n```')
    write(folder, good, fenced, answer("no idea"), Record(b'"path":"/"', b'"id":'))
    content = {"properties": {"item name": {"type": "string"}, "n": {"type": "integer"}}}
    stream = (
        spark.readStream.format(adapter)
        .option("contentSchema", json.dumps(content))
        .option("columnNameOfCorruptRecord", "bad_line")
        .option("rescuedDataColumn", "rest")
        .load(str(folder))
        .select("id", "created", "choices", "rest", "bad_line")
    )
    drain(stream, tmp_path)
    rows = table(spark, tmp_path)
    choices = [(row["choices"] or [{"parsed": None, "parse_status": None}])[0] for row in rows]
    assert sorted(((one["parsed"], one["parse_status"]) for one in choices), key=str) == [
        (None, "invalid"),
        (None, None),
        ({"item_name": "rice", "n": None}, "mismatch"),
        ({"item_name": "tea", "n": 2}, "ok"),
    ]
    assert [row["rest"] for row in rows if row["rest"]] == ['{"choices[0].parsed.n": "x", "choices[0].parsed.k": 1}']
    assert [row["bad_line"][:11] for row in rows if row["bad_line"]] == ['{"_dspark":']

    kept = spark.read.format(TABLES).load(str(tmp_path / "table"))
    flat = kept.selectExpr("id", "created", "inline(choices)").select("id", "created", "parsed.*")
    assert flat.columns == ["id", "created", "item_name", "n"]
    assert sorted(str(row["item_name"]) for row in flat.collect()) == ["None", "rice", "tea"]


def test_only_the_answers_of_a_schema_are_kept_with_its_type_truncated_ones_too(
    spark: SparkSession, adapter: str, folder: Path
) -> None:
    write(
        folder,
        answer('{"a":1}', ORDER),
        answer('{"total":9.5}', INVOICE),
        answer('{"a":', ORDER, finish_reason="length"),
        answer('{"a":3}'),
        registers=(ORDER, INVOICE),
    )
    frame = spark.read.format(adapter).option("responseSchema", "order").load(str(folder))
    rows = frame.selectExpr("_dspark.seq", "inline(choices)").select("seq", "parse_status", "parsed.*").collect()
    assert [row.asDict() for row in rows] == [
        {"seq": 0, "parse_status": "ok", "a": 1},
        {"seq": 2, "parse_status": "truncated", "a": None},
    ]

    narrow = (
        spark.read.format(adapter)
        .options(responseSchema="invoice", mode="DROPMALFORMED")
        .schema("_dspark struct<seq: bigint>, choices array<struct<parsed: struct<total: double>>>")
        .load(str(folder))
    )
    assert [(row["_dspark"]["seq"], row["choices"][0]["parsed"]["total"]) for row in narrow.collect()] == [(1, 9.5)]


def test_the_arguments_of_a_tool_are_columns(spark: SparkSession, adapter: str, folder: Path) -> None:
    write(
        folder,
        tool_answer("weather", '{"city":"Rome","days":2}'),
        tool_answer("clock", "{}"),
        answer("{}"),
        registers=(WEATHER,),
    )
    frame = spark.read.format(adapter).option("toolSchema", "weather").load(str(folder))
    calls = frame.selectExpr("choices[0].message.tool_calls[0].function as call")
    rows = calls.select("call.parsed_arguments.*", "call.arguments_status").collect()
    assert [row.asDict() for row in rows] == [{"city": "Rome", "days": 2, "arguments_status": "ok"}]


def test_fail_fast_names_the_record_and_drop_malformed_leaves_it_out(
    spark: SparkSession, adapter: str, folder: Path, tmp_path: Path
) -> None:
    write(folder, answer('{"a":1}'), answer("no idea"), answer('{"a":'), answer('{"a":4}'))

    def frame(mode: str) -> DataFrame:
        reader = spark.readStream.format(adapter).options(contentSchema="a BIGINT", mode=mode)
        return reader.load(str(folder)).selectExpr("inline(choices)").select("parsed.a")

    message = failure(frame("FAILFAST"), tmp_path)
    assert "DSPARK_JSON_MALFORMED_RECORD: record 1 of lane 0000 of spool " in message
    assert SpoolReader(folder).identity.spool_id in message
    drain(frame("dropmalformed"), tmp_path)
    assert table(spark, tmp_path) == [{"a": 1}, {"a": 4}]


@pytest.mark.parametrize("mode", ["rescue", "addNewColumns", "failOnNewColumns", "none"])
def test_a_schema_that_changes_while_the_query_runs(
    spark: SparkSession, adapter: str, folder: Path, tmp_path: Path, mode: str
) -> None:
    # Delta wants everything that is called schemaLocation inside the checkpoint.
    location = tmp_path / "checkpoint" / "types"
    options = {"responseSchema": "order", "schemaEvolutionMode": mode, "schemaLocation": str(location)}

    def frame() -> DataFrame:
        loaded = spark.readStream.format(adapter).options(**options).load(str(folder))
        return loaded.selectExpr("_dspark.seq", "_rescued_data", "inline(choices)").select(
            "seq", "_rescued_data", "parsed.*"
        )

    write(folder, answer('{"a":1}', ORDER), registers=(ORDER,))
    query = started(frame(), tmp_path)
    try:
        query.processAllAvailable()
        write(folder, answer('{"a":2,"b":"x"}', WIDER), registers=(WIDER,))
        if mode in {"rescue", "none"}:
            query.processAllAvailable()
        else:
            with pytest.raises(Exception, match="DSPARK_JSON_SCHEMA_CHANGED") as caught:
                query.processAllAvailable()
            assert "parsed.b" in str(caught.value)
            assert "restart the query" in str(caught.value).lower()
    finally:
        query.stop()
    rows = {row["seq"]: row for row in table(spark, tmp_path)}
    rescued = '{"choices[0].parsed.b": "x"}' if mode == "rescue" else None
    if mode in {"rescue", "none"}:
        assert rows[1] == {"seq": 1, "_rescued_data": rescued, "a": 2}
        return
    assert sorted(rows) == [0]
    if mode == "failOnNewColumns":
        assert "DSPARK_JSON_SCHEMA_CHANGED" in failure(frame(), tmp_path)
        options["schemaEvolutionMode"] = "addNewColumns"
        assert "DSPARK_JSON_SCHEMA_CHANGED" in failure(frame(), tmp_path)
    drain(frame(), tmp_path)
    assert sorted(table(spark, tmp_path), key=lambda row: row["seq"]) == [
        {"seq": 0, "_rescued_data": None, "a": 1, "b": None},
        {"seq": 1, "_rescued_data": None, "a": 2, "b": "x"},
    ]


@pytest.mark.skipif(not HAS_DELTA, reason="no Delta Lake for this Spark")
def test_delta_takes_the_type_of_every_case_of_the_corpus(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    columns: dict[str, pa.Array] = {}
    for case in CORPUS:
        plan = build_plan(content_type=from_json_schema(case["schema"]))
        made, _ = parse([choice_line(case["content"], case["finish_reason"])], plan)
        columns[case["id"]] = made.column("choices").flatten().field("parsed")
    made_of_all = pa.table(columns)
    types = from_arrow_schema(made_of_all.schema)
    path = str(tmp_path / "table")
    spark.createDataFrame(made_of_all, types).write.format("delta").save(path)
    back = spark.read.format("delta").load(path)
    assert back.schema == types
    assert back.collect()[0].asDict(recursive=True) == made_of_all.to_pylist(maps_as_pydicts="strict")[0]
