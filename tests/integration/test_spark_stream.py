"""``format("dspark-json")`` in a real Spark, from real servers and folders into Delta."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from serving import elsewhere, free_port, hook, serving

from .spark_support import ANSWERS, TABLES, as_json, drain, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEY = "s3cret-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    with serving(hook(folder, KEY)) as found:
        yield found


def test_the_first_example_of_the_articles_runs(
    spark: SparkSession, adapter: str, folder: Path, address: str, tmp_path: Path
) -> None:
    from pyspark.sql.functions import col

    def stream() -> DataFrame:
        df = (
            spark.readStream.format(adapter)
            .option("vllm_endpoint", f"{address}/v1/chat/completions")
            .option("vllm_api_key", KEY)
            .option("dspark.json.parse_mode", "auto")
            .load()
        )
        return df.select(
            col("id"),
            col("created"),
            col("choices").getItem(0).getField("message").getField("content").alias("content"),
            col("usage").getField("total_tokens").alias("token_count"),
        )

    ids = write(folder, 20, lanes=2)
    drain(stream(), tmp_path)

    def table() -> DataFrame:
        return spark.read.format(TABLES).load(str(tmp_path / "table"))

    rows = {row["id"]: row for row in table().collect()}
    assert sorted(rows) == sorted(ids)
    assert table().count() == len(ids)
    for number, answer in enumerate(ANSWERS[:20]):
        row = rows[f"0001-{number}"]
        assert row["created"] == dt.datetime.fromtimestamp(answer["created"], dt.UTC).replace(tzinfo=None)
        assert row["content"] == answer["choices"][0]["message"]["content"]
        assert row["token_count"] == answer["usage"]["total_tokens"]

    drain(stream(), tmp_path)
    assert table().count() == len(ids)
    ids += write(folder, 3)
    drain(stream(), tmp_path)
    assert sorted(row["id"] for row in table().select("id").collect()) == sorted(ids)


def test_rows_are_the_same_from_folder_http_batch_and_stream(
    spark: SparkSession, adapter: str, folder: Path, tmp_path: Path
) -> None:
    ids = write(folder, 25, lanes=2)
    whole = as_json(spark.read.format(adapter).load(str(folder)))
    assert [json.loads(row)["id"] for row in whole] == sorted(ids)
    assert as_json(spark.read.format(adapter).load(folder.as_uri())) == whole
    with serving(elsewhere(hook(folder, KEY))) as address:
        options = {"vllm_endpoint": address, "vllm_api_key": KEY}
        over_http = spark.read.format(adapter).options(**options).load()
        assert as_json(over_http) == whole
        limited = {**options, "maxRecordsPerTrigger": "20", "minPartitions": "3"}
        drain(spark.readStream.format(adapter).options(**limited).load(), tmp_path)
        table = spark.read.format(TABLES).load(str(tmp_path / "table"))
        assert as_json(table) == whole
        plan = over_http._jdf.queryExecution().toString()
        assert KEY not in plan
    offsets = [p.read_text() for p in (tmp_path / "checkpoint" / "offsets").iterdir() if p.name.isdigit()]
    assert len(offsets) == 3
    assert all('"next": ' in text and KEY not in text for text in offsets)


def test_a_narrow_user_schema_reads_just_that(spark: SparkSession, adapter: str, folder: Path, tmp_path: Path) -> None:
    ids = write(folder, 5)
    ddl = "usage struct<total_tokens: bigint>, choices array<struct<message: struct<content: string>>>, id string"
    frame = spark.read.format(adapter).schema(ddl).load(str(folder))
    assert frame.schema.simpleString().startswith("struct<usage:struct<total_tokens:bigint>,choices:array<")
    rows = {row["id"]: row for row in frame.collect()}
    assert sorted(rows) == ids
    assert rows["0000-1"]["usage"]["total_tokens"] == ANSWERS[1]["usage"]["total_tokens"]
    assert rows["0000-1"]["choices"][0]["message"]["content"] == ANSWERS[1]["choices"][0]["message"]["content"]
    drain(spark.readStream.format(adapter).schema(ddl).load(str(folder)), tmp_path, "parquet")
    assert spark.read.parquet(str(tmp_path / "table")).count() == 5


def test_latest_and_timestamps_begin_where_they_say(
    spark: SparkSession, adapter: str, folder: Path, tmp_path: Path
) -> None:
    write(folder, 4)
    stream = spark.readStream.format(adapter).option("startingOffsets", "latest").load(str(folder)).select("id")
    drain(stream, tmp_path, "parquet")
    ids = write(folder, 2)
    drain(stream, tmp_path, "parquet")
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()) == ids
    future = spark.read.format(adapter).option("startingTimestamp", "2100-01-01T00:00:00Z").load(str(folder))
    assert future.count() == 0


def test_a_running_stream_follows_the_server(
    spark: SparkSession, adapter: str, folder: Path, address: str, tmp_path: Path
) -> None:
    ids = write(folder, 2)
    frame = spark.readStream.format(adapter).option("vllm_endpoint", address).option("vllm_api_key", KEY).load()
    writer = frame.select("id").writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "cp"))
    query = writer.trigger(processingTime="100 milliseconds").start(str(tmp_path / "table"))
    try:
        query.processAllAvailable()
        ids += write(folder, 3)
        query.processAllAvailable()
        assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()) == sorted(ids)
        assert query.exception() is None
    finally:
        query.stop()


def test_sql_reads_through_a_temporary_view(spark: SparkSession, adapter: str, folder: Path) -> None:
    ids = write(folder, 3)
    spark.sql(f"create or replace temporary view answers using `{adapter}` options (path '{folder}')")
    assert [row["id"] for row in spark.sql("select id from answers order by id").collect()] == ids


async def html(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<html>"})


def failure(
    spark: SparkSession, adapter: str, options: dict[str, str], tmp_path: Path, *, stream: bool, schema: str = ""
) -> str:
    """The text of the error that a user gets."""
    reader = (spark.readStream if stream else spark.read).format(adapter).options(**options)
    if schema:
        reader = reader.schema(schema)

    def run() -> None:
        if stream:
            writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
            writer.trigger(availableNow=True).start().awaitTermination(120)
        else:
            reader.load().collect()

    with pytest.raises(Exception, match="DSPARK_JSON") as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_errors_reach_the_user_by_code_text_and_remedy(
    spark: SparkSession, adapter: str, folder: Path, address: str, tmp_path: Path, stream: bool
) -> None:
    write(folder, 1)
    server = {"vllm_endpoint": address, "vllm_api_key": KEY}

    def fails(options: dict[str, str], code: str, *texts: str, schema: str = "") -> None:
        message = failure(spark, adapter, options, tmp_path, stream=stream, schema=schema)
        assert f"{code}: " in message
        for text in texts:
            assert text in message, message
        assert "Traceback" not in message
        assert KEY not in message
        assert "wrong-key" not in message

    fails({}, "DSPARK_JSON_MISSING_OPTION", "vllm_endpoint")
    fails({**server, "maxOfsetsPerTrigger": "1"}, "DSPARK_JSON_UNKNOWN_OPTION", 'Did you mean "maxOffsetsPerTrigger"?')
    fails({**server, "failOnDataLoss": "perhaps"}, "DSPARK_JSON_INVALID_OPTION", '"true"')
    fails(
        {**server, "parse_mode": "gpu-accelerated"}, "DSPARK_JSON_ENGINE_UNAVAILABLE", "and the check gpu_d", '"auto"'
    )
    fails(server, "DSPARK_JSON_SCHEMA", "nonsense", schema="id string, nonsense int")
    fails({**server, "startingOffsets": '{"v":1,"spools":{"no-such":{"lanes":{}}}}'}, "DSPARK_JSON_OFFSET", "no-such")
    fails({"path": str(tmp_path / "nothing")}, "DSPARK_JSON_SPOOL_NOT_FOUND", "nothing")
    fails({**server, "vllm_api_key": "wrong-key"}, "DSPARK_JSON_ENDPOINT_KEY", "vllm_api_key")
    nobody = f"http://127.0.0.1:{free_port()}"
    fails({"vllm_endpoint": nobody}, "DSPARK_JSON_ENDPOINT_UNREACHABLE", nobody)
    with serving(html) as page:
        fails(
            {"vllm_endpoint": page},
            "DSPARK_JSON_ENDPOINT_ANSWER",
            page,
            "text/html",
            "--middleware dspark_json.JsonOutputHook",
        )


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_errors_of_tasks_reach_the_user_too(
    spark: SparkSession, adapter: str, folder: Path, tmp_path: Path, stream: bool
) -> None:
    write(folder, 3)
    data = min((folder / "lanes" / "0000").glob("*.ndjson"))
    raw = bytearray(data.read_bytes())
    raw[200] ^= 1
    data.write_bytes(raw)
    message = failure(spark, adapter, {"path": str(folder)}, tmp_path, stream=stream)
    assert "DSPARK_JSON_SPOOL_CORRUPT: " in message
    assert "lane 0000" in message
    assert "Traceback" not in message
