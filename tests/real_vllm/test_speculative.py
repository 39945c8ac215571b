"""Speculative decoding with a draft model: how well the draft was accepted, for each answer, in record and row."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from real_vllm.accounts import received_answer, recorded_answer
from real_vllm.asking import Asked, ask
from real_vllm.questions import CHAT, THINKING, questions
from real_vllm.server import DRAFT, HOOK_KEY, Vllm

from dspark_json.monitor.counters import SpeculationCounters
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.watch import Watch, WatchSettings
from dspark_json.source.settings import reader_settings

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


async def complete(address: str, answers: int) -> None:
    """Short answers, sixteen at once."""
    limits = httpx.Limits(max_connections=16, max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=300, limits=limits) as client:

        async def one(number: int) -> None:
            request = {"model": "tiny", "prompt": f"Number {number}:", "max_tokens": 12, "seed": number}
            (await client.post(f"{address}/v1/completions", json=request)).raise_for_status()

        await asyncio.gather(*map(one, range(answers)))


def test_the_monitors_acceptance_agrees_with_the_servers_own_counters(asked: Asked) -> None:
    server = asked.server
    settings = reader_settings({"vllm_endpoint": server.address, "vllm_api_key": HOOK_KEY}, {})
    watch = Watch(WatchSettings(settings, windows_s=(3600,)))
    counters = SpeculationCounters()

    def grown() -> Speculation:
        return counters.advance(httpx.get(f"{server.address}/metrics", timeout=30, trust_env=False).text)

    watch.look()
    before, answers = watch.figures(3600).speculation, watch.figures(3600).total.answers
    grown()
    asyncio.run(complete(server.address, 500))
    deadline = time.monotonic() + 30
    server_told = grown()
    while time.monotonic() < deadline:
        watch.look()
        if watch.figures(3600).total.answers == answers + 500:
            break
        time.sleep(0.2)
    figures = watch.figures(3600)
    server_told += grown()
    assert figures.acceptance_from == "answers"
    told = figures.speculation
    of_these = Speculation(told.accepted - before.accepted, told.drafted - before.drafted, told.drafts - before.drafts)
    assert of_these.drafted > 500
    assert of_these.rate == pytest.approx(server_told.rate, rel=0.01)
    assert of_these.length == pytest.approx(server_told.length, rel=0.01)


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
