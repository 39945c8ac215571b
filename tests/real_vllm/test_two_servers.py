"""`--api-server-count 2`: two processes serve, each writes a lane of its own, and any of them tells of both.

The model thinks before it answers, and vLLM tells the two apart.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from real_vllm.accounts import received_answer, recorded_answer
from real_vllm.asking import Asked, ask
from real_vllm.questions import CHAT, THINKING, questions
from real_vllm.server import HOOK_KEY, Vllm

from dspark_json.spool.http import HookClient

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("plain", "plain streamed")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "DSPARK_API_KEY": HOOK_KEY}
    arguments = ["--api-server-count", "2", "--reasoning-parser", "deepseek_r1"]
    with Vllm(tmp_path_factory.mktemp("two"), arguments, settings) as server:
        yield ask(server, questions({name: CHAT[name] for name in KINDS}, THINKING))


def test_each_process_writes_a_lane(asked: Asked) -> None:
    lanes = asked.server.reader().offsets().lanes
    assert list(lanes) == ["0000", "0001"]
    assert min(extent.next for extent in lanes.values()) > 0


def test_every_answer_is_in_one_of_the_lanes_once(asked: Asked) -> None:
    assert {number: len(records) for number, records in asked.records.items()} == dict.fromkeys(asked.questions, 1)
    for received, record in asked.of():
        assert recorded_answer(record) == received_answer(received)


def test_any_process_tells_of_both_lanes(asked: Asked) -> None:
    time.sleep(1.5)  # counters are written each second
    for _ in range(8):  # the kernel chooses the process that takes a connection
        metrics = httpx.get(f"{asked.server.address}/dspark/metrics", trust_env=False).text
        assert f"dspark_records_total {len(asked.questions)}\n" in metrics
        assert "dspark_unrecorded_answers_total 0\n" in metrics
        with HookClient(asked.server.address, HOOK_KEY, 10) as client:
            assert client.offsets() == asked.server.reader().offsets()


def test_thinking_is_kept_apart_from_the_answer(asked: Asked) -> None:
    for name in THINKING:
        thoughts = [recorded_answer(record)["choices"][0] for _, record in asked.of(name.replace(" ", "-"))]
        ended = [one for one in thoughts if one["finish_reason"] == "stop" and one["text"]]
        assert any(one["reasoning"] for one in thoughts)
        assert all(json.loads(one["text"], strict=False).keys() == {"score", "level", "reasons"} for one in ended)
        assert ended
