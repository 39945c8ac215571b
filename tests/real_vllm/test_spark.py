"""Answers of a real vLLM as typed rows in Spark and in a Delta table, by the schemas that the requests asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from real_vllm.accounts import received_answer
from real_vllm.server import HOOK_KEY, Vllm

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from real_vllm.asking import Asked

pytestmark = pytest.mark.spark


def answers(spark: SparkSession, adapter: str, server: Vllm, **options: str) -> DataFrame:
    reader = spark.read.format(adapter).option("vllm_endpoint", server.address)
    return reader.option("vllm_api_key", HOOK_KEY).options(**options).load()


def expected(asked: Asked, schema: str) -> dict[str, list[Any]]:
    """Of each answer to a schema that a client received: the value of each choice, None where it was cut off."""
    values = {}
    for received, record in asked.of():
        asked_for = record["_dspark"]["schema"]
        if received["status"] != 200 or asked_for is None or asked_for["name"] != schema:
            continue
        answer = received_answer(received)
        values[answer["id"]] = [
            json.loads(choice["text"], strict=False) if choice["finish_reason"] == "stop" else None
            for _, choice in sorted(answer["choices"].items())
        ]
    return values


def test_answers_to_a_schema_are_typed_rows_of_a_delta_table_once_each(
    spark: SparkSession, adapter: str, asked: Asked, tmp_path: Path
) -> None:
    checkpoint, table = str(tmp_path / "checkpoint"), str(tmp_path / "table")
    stream = (
        spark.readStream.format(adapter)
        .option("vllm_endpoint", asked.server.address)
        .option("vllm_api_key", HOOK_KEY)
        .option("responseSchema", "risk")
        .option("schemaLocation", f"{checkpoint}/schema")
        .option("maxRecordsPerTrigger", "200")
        .load()
    )
    query = stream.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.start(table).awaitTermination()
    kept = spark.read.format("delta").load(table)
    parsed = kept.schema["choices"].dataType.elementType["parsed"].dataType.simpleString()  # type: ignore[attr-defined]
    assert parsed == "struct<score:double,level:string,reasons:array<string>>"

    wanted = expected(asked, "risk")
    rows = [row.asDict(recursive=True) for row in kept.collect()]
    found = {row["id"]: [choice["parsed"] for choice in row["choices"]] for row in rows if row["id"] in wanted}
    assert found == wanted
    assert len(wanted) > 150
    keys = [(row["_dspark"]["lane"], row["_dspark"]["seq"]) for row in rows]
    assert len(set(keys)) == len(keys)
    statuses = {choice["parse_status"] for row in rows if row["id"] in wanted for choice in row["choices"]}
    assert statuses <= {"ok", "control_chars", "truncated"}


def test_answers_to_the_clients_own_type_are_typed_by_it(spark: SparkSession, adapter: str, asked: Asked) -> None:
    rows = answers(spark, adapter, asked.server, responseSchema="Order").select("id", "choices").collect()
    wanted = expected(asked, "Order")
    found = {row.id: [choice.asDict(recursive=True)["parsed"] for choice in row.choices] for row in rows}
    assert {name: value for name, value in found.items() if name in wanted} == wanted
    assert len(wanted) > 50


def test_arguments_of_a_strict_tool_are_typed(spark: SparkSession, adapter: str, asked: Asked) -> None:
    rows = answers(spark, adapter, asked.server, toolSchema="book").select("id", "choices").collect()
    found = {row.id: [call.asDict(recursive=True) for call in row.choices[0].message.tool_calls] for row in rows}
    kinds = ("tool-required", "tool-required-streamed", "tool-named", "tool-named-streamed")
    compared = 0
    for received, _ in asked.of(*kinds, "tool-found", "tool-found-streamed"):
        answer = received_answer(received)
        calls, reason = answer["choices"][0]["calls"], answer["choices"][0]["finish_reason"]
        if calls and reason != "length":
            typed = [call["function"]["parsed_arguments"] for call in found[answer["id"]]]
            assert typed == [json.loads(arguments, strict=False) for _, _, arguments in calls]
            compared += 1
    assert compared > 40


def test_every_record_is_a_row_with_the_usage_that_the_client_received(
    spark: SparkSession, adapter: str, asked: Asked
) -> None:
    frame = answers(spark, adapter, asked.server).selectExpr("id", "usage.total_tokens", "_dspark.lane", "_dspark.seq")
    rows = frame.collect()
    assert len({(row.lane, row.seq) for row in rows}) == len(rows) >= len(asked.questions)
    tokens = {row.id: row.total_tokens for row in rows}
    for received, _ in asked.of():
        if received["status"] == 200:
            answer = received_answer(received)
            assert tokens[answer["id"]] == (answer["usage"] or {}).get("total_tokens")
