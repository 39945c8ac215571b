"""Each of 500 answers that the official client received from a real vLLM is in the spool once, as it was sent."""

from __future__ import annotations

import httpx
import pytest
from real_vllm.accounts import comparable, received_answer, recorded_answer, without_echo
from real_vllm.asking import Asked, lines_of
from real_vllm.questions import both_ways
from real_vllm.server import HOOK_KEY, MODEL_KEY

from dspark_json.spool.http import HookClient, HttpSpool


def test_clients_received_500_answers(asked: Asked) -> None:
    complete = [one for one in asked.received.values() if one["outcome"] == "complete"]
    assert not [one for one in asked.received.values() if one["outcome"] == "broken"]
    assert len(complete) >= 500


def test_every_request_has_exactly_one_record(asked: Asked) -> None:
    assert asked.records.keys() == asked.questions.keys()
    assert [number for number, records in asked.records.items() if len(records) != 1] == []


def test_a_record_of_an_answer_that_was_not_streamed_is_that_answer(asked: Asked) -> None:
    for received, record in asked.of():
        if "body" not in received:
            continue
        kept = {name: value for name, value in record.items() if name != "_dspark"}
        if kept.get("object") == "response":
            kept.pop("choices")
        assert kept == without_echo(received["body"])
        assert record["_dspark"]["status"] == received["status"]


def test_a_record_has_the_content_usage_and_finish_reason_that_the_client_received(asked: Asked) -> None:
    answers = [(received, record) for received, record in asked.of() if received["status"] == 200]
    for received, record in answers:
        assert recorded_answer(record) == received_answer(received)
        assert record["_dspark"]["completed"] is True
        assert record["_dspark"]["disconnected"] is False
        assert record["_dspark"]["stream"] is ("chunks" in received)
    assert len(answers) > 440


def test_a_streamed_record_is_what_the_clients_own_helper_put_together(asked: Asked) -> None:
    finals = [(received["final"], record) for received, record in asked.of() if "final" in received]
    for final, record in finals:
        if final.get("object") == "response":
            kept = {name: value for name, value in record.items() if name not in {"_dspark", "choices"}}
            assert kept.keys() >= {"id", "output", "usage", "status"}
            assert recorded_answer(record) == received_answer({"body": final})
        else:
            assert recorded_answer(record) == recorded_answer(final)
    assert len(finals) > 40


def test_failed_requests_are_kept_with_their_errors(asked: Asked) -> None:
    kinds = ("unknown model", "unknown model streamed", "bad schema", "too long")
    failed = list(asked.of(*(name.replace(" ", "-") for name in kinds)))
    for received, record in failed:
        assert received["status"] == record["_dspark"]["status"] >= 400
        assert record["_dspark"]["completed"] is False
        assert record["_dspark"]["error"]["message"] == received["body"]["error"]["message"]
    assert len(failed) == 20


def test_clients_that_left_are_told_apart(asked: Asked) -> None:
    for number, received in asked.received.items():
        record = asked.records[number][0]
        if number.startswith("left-"):
            assert received["outcome"] == "left"
            assert record["_dspark"]["disconnected"] is True
            assert record["_dspark"]["completed"] is False
        if number.startswith("left-stream"):
            text = received_answer(received)["choices"][0]["text"]
            assert record["choices"][0]["message"]["content"].startswith(text)


def test_nothing_went_out_unrecorded(asked: Asked) -> None:
    metrics = httpx.get(f"{asked.server.address}/dspark/metrics", trust_env=False).text
    counts = dict(line.split(" ") for line in metrics.splitlines() if not line.startswith("#"))
    assert int(counts["dspark_records_total"]) >= len(asked.questions)
    for name in ("unrecorded_answers", "dropped_records", "hook_exceptions", "oversize_records"):
        assert counts[f"dspark_{name}_total"] == "0", name


@pytest.mark.parametrize("name", both_ways())
def test_a_streamed_answer_has_the_record_of_one_that_was_not(asked_both_ways: Asked, name: str) -> None:
    numbers = iter(question["number"] for question in both_ways()[name])
    compared = 0
    for number, streamed_number in zip(numbers, numbers, strict=True):
        whole, streamed = (asked_both_ways.records[one][0] for one in (number, streamed_number))
        if "tool" in name and whole["choices"][0]["finish_reason"] == "length":
            continue  # vLLM itself gives the beginning of a call as text, unless it streams
        assert comparable(streamed) == comparable(whole)
        compared += 1
    assert compared


def test_the_key_for_asking_reads_nothing_and_the_key_for_reading_asks_nothing(asked: Asked) -> None:
    address = asked.server.address
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    with httpx.Client(trust_env=False) as client:

        def status(method: str, path: str, key: str | None, **more: object) -> int:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return client.request(method, address + path, headers=headers, **more).status_code  # type: ignore[arg-type]

        assert [status("GET", "/dspark/v1/offsets", key) for key in (HOOK_KEY, MODEL_KEY, None)] == [200, 401, 401]
        keys = (MODEL_KEY, HOOK_KEY, None)
        assert [status("POST", "/v1/chat/completions", key, json=chat) for key in keys] == [200, 401, 401]
        assert status("GET", "/health/json-schema", None) == 200
        assert "spool" not in client.get(address + "/health/json-schema").json()


def test_a_reader_over_http_gets_the_same_bytes(asked: Asked) -> None:
    folder = asked.server.reader()
    with HookClient(asked.server.address, HOOK_KEY, 10) as client:
        assert list(lines_of(HttpSpool(client, client.identity().spool_id))) == list(lines_of(folder))
