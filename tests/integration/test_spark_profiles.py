"""The option ``profile`` through a real Spark and Delta."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from spool_support import SMALL

from dspark_json.schema.profiles import shipped_profiles
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter

from .spark_support import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

META = b'"path":"/v1/chat/completions","status":200,"completed":true'
ANSWER = {
    "id": "a",
    "choices": [{"index": 0, "message": {"content": "hi", "code_blocks": [{"language": "sql", "code": "select 1"}]}}],
    "usage": {"prompt_cache_hit_tokens": 6, "reasoning_tokens": 2},
    "metadata": {"inference_time_ms": 87, "kv_cache_hit_rate": 0.5, "gpu_utilization_pct": 91.5},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles") / "spool"
    writer = LaneWriter.open(folder, SMALL)
    writer.append([Record(META, json.dumps(ANSWER)[1:-1].encode())])
    writer.close()
    return folder


def test_a_table_takes_the_rows_of_every_shipped_profile(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    for number, name in enumerate([*shipped_profiles(), ",".join(shipped_profiles())]):
        rows = spark.read.format("dspark-json").option("profile", name).load(str(folder))
        table = str(tmp_path / f"table-{number}")
        rows.write.format(TABLES).save(table)
        assert spark.read.format(TABLES).load(table).schema.simpleString() == rows.schema.simpleString()


def test_a_stream_has_the_values_of_shipped_profiles_and_of_a_users_own(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "mine.json"
    own.write_text(json.dumps({"name": "mine", "fields": {"usage.reasoning_tokens": "BIGINT"}}))
    source = spark.readStream.format("dspark-json").option("profile", f"deepseek,deepseek-coder,{own}")
    table = str(tmp_path / "table")
    query = (
        source.load(str(folder))
        .writeStream.format(TABLES)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(table)
    )
    assert query.awaitTermination(120)
    shown = "metadata.gpu_utilization_pct", "usage.prompt_cache_hit_tokens", "usage.reasoning_tokens", "_rescued_data"
    blocks = "choices[0].message.code_blocks[0].code"
    assert [tuple(row) for row in spark.read.format(TABLES).load(table).selectExpr(*shown, blocks).collect()] == [
        (91.5, 6, 2, None, "select 1")
    ]


def test_an_unknown_profile_reaches_the_user_with_the_closest_one(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(Exception, match="DSPARK_JSON_INVALID_OPTION") as caught:
        spark.read.format("dspark-json").option("profile", "deepsek").load(str(folder))
    assert 'Did you mean "deepseek"?' in str(caught.value)
