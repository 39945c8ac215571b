"""A server on a spool that an earlier version wrote, killed under load and started again."""

from __future__ import annotations

import json
import re
import shutil
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from real_vllm.accounts import received_answer, recorded_answer
from real_vllm.asking import TALLY, ask, client_process, lines_of, records_of
from real_vllm.questions import CHAT, question
from real_vllm.server import ROOT, Vllm

from dspark_json.spool.claim import current_boot_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

OLD = ROOT / "tests" / "golden" / "v1" / "spool"
KINDS = ("schema", "schema streamed", "plain", "plain streamed", "tool required")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """A server whose folder has a spool of format 1, with a torn tail, from a server that is gone.

    The host has not started again since: then the lanes would be kept as they are, and a new one begun.
    """
    vllm = Vllm(tmp_path_factory.mktemp("old"), ["--shutdown-timeout", "25"])
    shutil.copytree(OLD, vllm.spool)
    for lane in (vllm.spool / "lanes").iterdir():
        (lane / "lock").write_text(current_boot_id() + "\n")
    with vllm:
        yield vllm


def some(prefix: str, count: int) -> list[dict[str, Any]]:
    """Questions of several kinds; short enough that many are under way and many are done at any moment."""
    wanted = []
    for number in range(count):
        call, arguments, _ = CHAT[KINDS[number % len(KINDS)]]
        wanted.append(question(f"{prefix}-{number}", call, arguments))
    return wanted


def test_an_old_spool_is_continued_and_its_rows_stay_readable(server: Vllm, spark: SparkSession) -> None:
    old = Vllm(server.folder / "as-it-was")
    shutil.copytree(OLD, old.spool)
    before, after = old.reader(), server.reader()
    assert after.identity.spool_id == before.identity.spool_id
    old_lines = list(lines_of(before))
    asked = ask(server, some("upgraded", 20))
    lines = list(lines_of(after))
    assert [line for line in lines if line in set(old_lines)] == old_lines
    assert len(lines) == len(old_lines) + 20
    assert after.offsets().lanes["0000"].next == before.offsets().lanes["0000"].next + 20

    rows = spark.read.format("dspark-json").load(str(server.spool)).selectExpr("id", "_dspark.lane", "_dspark.seq")
    found = [(row.lane, row.seq) for row in rows.collect()]
    assert len(set(found)) == len(found) == len(lines)
    ids = {row.id for row in rows.collect()}
    assert {received_answer(received)["id"] for received, _ in asked.of()} <= ids
    assert {json.loads(line).get("id") for line in old_lines} <= ids


def test_what_a_client_has_of_a_killed_server_is_in_the_spool_and_numbers_go_on(server: Vllm) -> None:
    with client_process(server, some("killed", 400), clients=12) as client:
        assert client.stdout is not None
        received = [json.loads(client.stdout.readline()) for _ in range(80)]
        server.kill()
        received += [json.loads(line) for line in client.stdout]
    complete = [one for one in received if one["outcome"] == "complete"]
    assert 80 <= len(complete) < 400
    assert {one["outcome"] for one in received} == {"complete", "broken"}
    lines = {lane: extent.next for lane, extent in server.reader().offsets().lanes.items()}
    written = list(lines_of(server.reader()))
    records = records_of(server)
    TALLY.add(complete, records)
    for one in complete:
        assert len(records[one["number"]]) == 1
        assert recorded_answer(records[one["number"]][0]) == received_answer(one)

    spool_id = server.reader().identity.spool_id
    server.start()
    ask(server, some("restarted", 20))
    assert server.reader().identity.spool_id == spool_id
    after = {lane: extent.next for lane, extent in server.reader().offsets().lanes.items()}
    assert after == {**lines, "0000": lines["0000"] + 20}
    assert [line for line in lines_of(server.reader()) if line in set(written)] == written


def test_a_server_that_is_ended_lets_answers_end_and_keeps_them(server: Vllm) -> None:
    # vLLM 0.32 without --shutdown-timeout stops its engine, and then waits for clients that get nothing more.
    call, arguments, _ = CHAT["plain streamed"]
    long = {**arguments, "max_tokens": 2000, "extra_body": {"ignore_eos": True}}
    with client_process(server, [question(f"ended-{n}", call, long) for n in range(6)]) as client:
        while not under_way(server):
            time.sleep(0.1)
        server.stop()
        assert client.stdout is not None
        received = [json.loads(line) for line in client.stdout]
    records = records_of(server)
    TALLY.add(received, records)
    assert [one["outcome"] for one in received] == ["complete"] * 6
    for one in received:
        (record,) = records[one["number"]]
        assert recorded_answer(record) == received_answer(one)


def under_way(server: Vllm) -> bool:
    """Whether six answers are being made."""
    metrics = httpx.get(f"{server.address}/metrics", trust_env=False).text
    return re.search(r"^vllm:num_requests_running\{.*\} 6\.0$", metrics, re.MULTILINE) is not None
