"""Speculative decoding with a draft model: how well the draft was accepted, for each answer, in record and row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from real_vllm.accounts import received_answer, recorded_answer
from real_vllm.asking import Asked, ask
from real_vllm.questions import CHAT, THINKING, questions
from real_vllm.server import DRAFT, HOOK_KEY, Vllm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    Json = dict[str, Any]

KINDS = ("plain", "plain streamed", "schema", "schema streamed", "n=3", "n=3 streamed")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    draft = {"model": str(DRAFT), "method": "draft_model", "num_speculative_tokens": 3}
    arguments = ["--speculative-config", json.dumps(draft), "--per-request-spec-decode-metrics", "detailed"]
    folder = tmp_path_factory.mktemp("speculative")
    with Vllm(folder, [*arguments, "--enable-per-request-metrics"], {"DSPARK_API_KEY": HOOK_KEY}) as server:
        yield ask(server, questions({name: CHAT[name] for name in KINDS}, THINKING))


def acceptance(received: Json) -> Json | None:
    """What the client was told of the draft's acceptance, in a body or in one of the chunks."""
    parts = [received["body"]] if "body" in received else received["chunks"]
    told = [part["metrics"] for part in parts if part.get("metrics")]
    return told[-1].get("speculative_decoding") if told else None


def test_answers_are_recorded_once_each_with_the_metrics_that_the_client_received(asked: Asked) -> None:
    told = 0
    for received, record in asked.of(*(name.replace(" ", "-") for name in KINDS)):
        assert len(asked.records[received["number"]]) == 1
        assert recorded_answer(record) == received_answer(received)
        metrics = acceptance(received)
        assert ((record.get("metrics") or {}).get("speculative_decoding")) == metrics
        told += metrics is not None
    assert told > 100


def test_an_error_inside_a_stream_is_kept_as_the_client_received_it(asked: Asked) -> None:
    # vLLM 0.32 notices only in the stream that it can't do this together with a draft model.
    failed = [(received, record) for received, record in asked.of("thinking-streamed")]
    for received, record in failed:
        assert record["_dspark"]["status"] == received["status"] == 200
        assert record["_dspark"]["completed"] is False
        assert record["_dspark"]["error"]["message"] == received["error"]["message"]
    assert len(failed) == THINKING["thinking streamed"][2]


@pytest.mark.spark
def test_acceptance_is_columns(spark: SparkSession, asked: Asked) -> None:
    frame = spark.read.format("dspark-json").load(str(asked.server.spool))
    rows = frame.selectExpr("id", "metrics.speculative_decoding.*", "metrics.time_to_first_token_ms", "_rescued_data")
    found = {row.id: row.asDict() for row in rows.collect()}
    for received, _ in asked.of(*(name.replace(" ", "-") for name in KINDS)):
        row, metrics = found[received_answer(received)["id"]], acceptance(received)
        assert row["_rescued_data"] is None
        if metrics is not None:
            assert row["time_to_first_token_ms"] > 0
            assert {name: row[name] for name in metrics} == metrics
