"""Column pruning of the JVM connector: batches, and streams by its rule; less is read, and the rows are the same."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from typed_spools import answer
from typed_spools import write as write_typed

from .conftest import JVM
from .spark_support import drain, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

SWITCH = "spark.dspark.streamPruning"
COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pruning") / "spool"
    write(folder, COUNT // 2, lanes=2)
    return folder


@pytest.fixture
def stream(spark: SparkSession, folder: Path) -> Iterator[DataFrame]:
    yield spark.readStream.format(JVM).load(str(folder))
    spark.conf.unset(SWITCH)


_names = (f"pruned_{number}" for number in itertools.count())


def run(frame: DataFrame, folder: Path, mode: str = "append") -> tuple[list[tuple[Any, ...]], StreamingQuery]:
    """The rows of a stream from its beginning, sorted, and the query."""
    name = next(_names)
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = sorted((tuple(row) for row in frame.sparkSession.table(name).collect()), key=repr)
    frame.sparkSession.sql(f"drop view {name}")
    return rows, query


def columns_read(query: StreamingQuery) -> set[str]:
    """The names of the columns of the scans in the last plan of a query."""
    plan = query._jsq.explainInternal(True).split("== Physical Plan ==")[1]
    scans = re.findall(r"MicroBatchScan\[([^\]]*)\]", plan)
    assert scans, plan
    return {re.sub(r"#\d+L?", "", name).strip() for scan in scans for name in scan.split(",")}


def halves(stream: DataFrame, one: str, other: str) -> DataFrame:
    """Two columns of one stream, shuffled alike: where Spark takes the two shuffles for one, the rows are wrong."""
    parts = [stream.selectExpr(f"{column} as x").repartition(2, "x") for column in (one, other)]
    return parts[0].union(parts[1])


SAME: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "one column": (lambda s: s.select("id"), "append"),
    "nested": (lambda s: s.select("usage.total_tokens", F.col("choices")[0].message.content), "append"),
    "case": (lambda s: s.select("ID", "Usage.Total_Tokens"), "append"),
    "filter": (lambda s: s.where("usage.total_tokens > 20").select("id"), "append"),
    "explode": (
        lambda s: s.selectExpr("id", "inline(choices)").select("id", "message.role", "finish_reason"),
        "append",
    ),
    "whole": (lambda s: s.selectExpr("size(choices)", "to_json(usage)"), "append"),
    "lambda": (lambda s: s.selectExpr("transform(choices, c -> c.finish_reason)"), "append"),
    "python function": (lambda s: s.select(F.udf(lambda text: text.upper(), useArrow=False)("id")), "append"),
    "count": (lambda s: s.groupBy().count(), "complete"),
    "state": (lambda s: s.groupBy("object").agg(F.sum("usage.total_tokens")), "complete"),
    "watermark": (
        lambda s: s.withWatermark("created", "1 hour").groupBy(F.window("created", "1 day"), "model").count(),
        "complete",
    ),
    "distinct": (lambda s: s.select("object", "model").dropDuplicates(), "append"),
    "exchange reuse": (lambda s: halves(s, "id", "object"), "append"),
    "exchange reuse, nested": (lambda s: halves(s, "usage.total_tokens", "usage.prompt_tokens"), "append"),
    "union of different columns": (lambda s: s.select("id").union(s.select("object")), "append"),
    "join with itself": (
        lambda s: s.select("id", "object").alias("a").join(s.select("id", "model").alias("b"), F.expr("a.id = b.id")),
        "append",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_stream_has_the_same_rows_with_and_without_pruning(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, name: str
) -> None:
    make, mode = SAME[name]
    pruned, _ = run(make(stream), tmp_path, mode)
    spark.conf.set(SWITCH, "false")
    whole, query = run(make(stream), tmp_path, mode)
    assert pruned == whole
    assert pruned
    assert "choices" in columns_read(query)


def test_a_stream_reads_the_columns_that_it_needs(stream: DataFrame, folder: Path, tmp_path: Path) -> None:
    for frame, mode, expected in (
        (stream.select("id"), "append", {"id"}),
        (stream.where("object = 'x'").select("id"), "append", {"id", "object"}),
        (stream.groupBy("model").count(), "complete", {"model"}),
        (halves(stream, "id", "object"), "append", {"id", "object"}),
        (stream.groupBy().count(), "complete", {""}),
    ):
        _, query = run(frame, tmp_path, mode)
        assert columns_read(query) == expected


def arrow_bytes(query: StreamingQuery) -> int:
    """The bytes of columns that came from the worker."""
    return int(query.lastProgress["sources"][0]["metrics"]["arrow_bytes"])


def test_pruning_reads_as_little_as_a_narrow_schema(
    spark: SparkSession, stream: DataFrame, folder: Path, tmp_path: Path
) -> None:
    pruned = run(stream.select("id", "usage.total_tokens"), tmp_path)[1]
    narrow = spark.readStream.format(JVM).schema("id string, usage struct<total_tokens: bigint>").load(str(folder))
    asked = run(narrow.select("id", "usage.total_tokens"), tmp_path)[1]
    whole = run(stream.select("*").selectExpr("to_json(struct(*))"), tmp_path)[1]
    assert arrow_bytes(pruned) == arrow_bytes(asked)
    assert arrow_bytes(pruned) * 5 < arrow_bytes(whole)


def test_a_restart_may_need_other_columns_or_have_the_rule_off(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    frame = spark.readStream.format(JVM).load(str(folder))
    ids = []
    for columns, switch in ((["id"], "true"), (["id", "object"], "true"), (["id"], "false"), (["id", "usage"], "true")):
        ids += write(folder, 3)
        spark.conf.set(SWITCH, switch)
        drain(frame.select(*columns), tmp_path, "parquet")
    spark.conf.unset(SWITCH)
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).select("id").collect()) == sorted(
        ids
    )


def test_each_use_of_a_batch_in_foreach_batch_has_its_rows(stream: DataFrame, tmp_path: Path) -> None:
    seen = []

    def use(batch: DataFrame, number: int) -> None:
        seen.append(batch.count())
        seen.append(batch.select("id").distinct().count())
        seen.append(
            batch.select("id")
            .repartition(2, "id")
            .unionAll(batch.select("object").repartition(2, "object"))
            .distinct()
            .count()
        )
        kept = batch.cache()
        seen.append(kept.count())
        seen.append(kept.select("object").distinct().count())
        kept.unpersist()

    writer = stream.writeStream.foreachBatch(use).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert seen == [COUNT, COUNT, COUNT + 1, COUNT, 1]


def test_a_batch_read_has_the_same_rows_whatever_is_selected(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    rows = spark.read.format(JVM).load(str(folder))
    kept = tmp_path / "whole"
    rows.write.parquet(str(kept))
    whole = spark.read.parquet(str(kept))

    def same(use: Callable[[DataFrame], DataFrame]) -> None:
        found = [sorted((tuple(row) for row in use(frame).collect()), key=repr) for frame in (rows, whole)]
        assert found[0] == found[1]

    for make, _ in SAME.values():
        same(make)
    same(lambda frame: frame.select("choices.message.content", "choices.index"))
    same(lambda frame: frame.selectExpr("choices[0].logprobs.content[0].token", "_dspark.seq", "metadata"))
    same(lambda frame: frame.select("id").limit(7).select(F.lit(1)))
    assert rows.count() == COUNT


def test_pruning_does_not_change_how_an_answer_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    write_typed(folder, answer('{"a":1,"b":"x"}'), answer('{"a":1,"b":2}'), answer("no"))
    declared = "choices array<struct<parsed: struct<a: bigint, b: string>, parse_status: string, index: bigint>>"
    for reader in (
        spark.read.format(JVM).option("contentSchema", "a BIGINT, b STRING"),
        spark.read.format(JVM).schema(declared),
    ):
        frame = reader.load(str(folder))
        for columns in (["choices.parse_status"], ["choices.parsed.a", "choices.parse_status"], ["choices"]):
            judged = [row[-1][0] if row[-1] else None for row in frame.select(*columns).collect()]
            statuses = [one if isinstance(one, str) else one["parse_status"] for one in judged]
            assert statuses == ["ok", "ok", "invalid"]
    assert [row[0] for row in frame.selectExpr("choices[0].parsed.b").collect()] == ["x", "2", None]
