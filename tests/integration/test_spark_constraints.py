"""``checkConstraints`` in a real Spark, with both adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from integration.test_spark_typed import drain, table
from typed_spools import write
from unit.source.test_checking import DDL, asked

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_violations_are_a_column_of_a_stream_and_of_batches(spark: SparkSession, adapter: str, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    write(spool, asked('{"amount": 0, "kind": "c"}'), asked('```\n{"amount": 1}\n```'), asked('{"amount":'))
    expected = [["#/amount minimum", "#/kind enum"], [], None]
    options = {"checkConstraints": "true", "contentSchema": DDL}
    stream = spark.readStream.format(adapter).options(**options).load(str(spool))
    choices = stream.selectExpr("_dspark.seq", "inline_outer(choices)")
    drain(choices.select("seq", "violations", "parse_status", "parsed"), tmp_path)
    rows = sorted(table(spark, tmp_path), key=lambda row: row["seq"])
    assert [row["violations"] for row in rows] == expected
    assert [row["parse_status"] for row in rows] == ["ok", "fenced", "invalid"]
    batch = spark.read.format(adapter).options(**options).load(str(spool))
    assert [row.violations[0] for row in batch.select("choices.violations").collect()] == expected
    assert batch.count() == 3
    assert "violations" not in spark.read.format(adapter).load(str(spool)).schema.simpleString()
