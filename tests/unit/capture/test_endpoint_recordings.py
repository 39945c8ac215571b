"""What a real vLLM server sent on every covered route, through the hook: the records, and the rows of both engines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import rows_of_both_engines
from unit.capture.driving import (
    CHAT,
    RESPONSES,
    answer_messages,
    capture,
    capture_all,
    corpus_cases,
    lines,
    recorded_exchanges,
    recorded_messages,
    spec_decode_exchanges,
)

from dspark_json.engine import build_plan
from dspark_json.schema.jsonschema import from_json_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
RECORDINGS = {"asgi": recorded_exchanges(), "spec-decode": spec_decode_exchanges()}
# Each stream and a call without streaming whose answer has the same parts.
PAIRS = [
    ("stream_completions", "completions_plain"),
    ("stream_completions_two_prompts", "completions_two_prompts"),
    ("stream_responses", "responses_json"),
    ("stream_plain", "chat_plain"),
    ("stream_n2", "chat_n3"),
    ("stream_tools_required", "chat_tools_required"),
]


def body(exchange: Json) -> str:
    return b"".join(message.get("body", b"") for message in recorded_messages(exchange)).decode()


def events(exchange: Json) -> list[Json]:
    datas = [line.removeprefix("data: ") for line in body(exchange).split("\n") if line.startswith("data: ")]
    return [json.loads(data) for data in datas if data != "[DONE]"]


def is_stream(exchange: Json) -> bool:
    return body(exchange).startswith(("data:", "event:"))


def is_left(exchange: Json) -> bool:
    return "_leaves" in exchange["name"]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values that are not null, by paths in which all items of a list are one."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path + "[]")
    elif value is not None:
        yield path, value


def shape(value: Any, *, but: str = "._dspark") -> set[tuple[str, type]]:
    return {(path, type(leaf)) for path, leaf in leaves(value) if not path.startswith(but)}


def text_of(choice: Json) -> str | None:
    text: str | None = choice["message"]["content"] if "message" in choice else choice["text"]
    return text


@pytest.fixture(params=RECORDINGS)
def exchanges(request: pytest.FixtureRequest) -> list[Json]:
    return RECORDINGS[request.param]


def test_an_answer_that_is_no_stream_is_kept_as_it_was_sent(
    exchanges: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [one for one in exchanges if not is_stream(one) and not is_left(one)]
    found = capture_all(chosen, tmp_path, monkeypatch, CAPTURE_REQUESTS="full")
    assert len(found) == len(chosen) > 5
    for one, record in zip(chosen, found, strict=True):
        sent = json.loads(body(one))
        meta = record.pop("_dspark")
        if one["path"] == RESPONSES:
            (choice,) = record.pop("choices")
            assert choice["message"]["content"] == sent["output"][0]["content"][0]["text"]
            assert choice["finish_reason"] == {"incomplete": "length", "completed": "stop"}[sent["status"]]
        assert record == sent, one["name"]
        assert meta["completed"] is (meta["status"] == 200), one["name"]


def test_a_stream_is_kept_as_the_answer_that_its_events_make(
    exchanges: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [one for one in exchanges if is_stream(one)]
    found = capture_all(chosen, tmp_path, monkeypatch, CAPTURE_REQUESTS="full")
    assert len(found) == len(chosen) > 5
    for one, record in zip(chosen, found, strict=True):
        assert record["_dspark"]["completed"] is not is_left(one), one["name"]
        assert record["_dspark"]["disconnected"] is is_left(one), one["name"]
        sent = events(one)
        if one["path"] == RESPONSES:
            (choice,) = record.pop("choices")
            deltas = [event["delta"] for event in sent if event["type"] == "response.output_text.delta"]
            assert choice["message"] == {"role": "assistant", "content": "".join(deltas)}
            if not is_left(one):
                assert {k: v for k, v in record.items() if k != "_dspark"} == sent[-1]["response"]
            continue
        pieces: dict[int, str] = {}
        reasons: dict[int, str] = {}
        for event in sent:
            for choice in event["choices"]:
                piece = choice["delta"].get("content") if one["path"] == CHAT else choice["text"]
                pieces[choice["index"]] = pieces.get(choice["index"], "") + (piece or "")
                reasons[choice["index"]] = choice["finish_reason"] or reasons.get(choice["index"])
        assert [choice["index"] for choice in record["choices"]] == sorted(pieces)
        assert {choice["index"]: text_of(choice) or "" for choice in record["choices"]} == pieces
        assert {choice["index"]: choice["finish_reason"] for choice in record["choices"]} == reasons
        usages = [event["usage"] for event in sent if event.get("usage")]
        assert record["usage"] == (usages[-1] if usages else None)
        metrics = [event["metrics"] for event in sent if event.get("metrics")]
        assert record.get("metrics") == (metrics[-1] if metrics else None)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_streamed_response_leaves_the_record_of_the_call_without_streaming(
    recording: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stream,) = (one for one in RECORDINGS[recording] if one["name"] == "stream_responses")
    whole = json.dumps(events(stream)[-1]["response"], separators=(",", ":")).encode()
    calls = [recorded_messages(stream), answer_messages([whole])]
    request = json.dumps(stream["request"]).encode()
    made = [
        capture(messages, tmp_path / str(number), monkeypatch, path=RESPONSES, request=request)
        for number, messages in enumerate(calls)
    ]
    for record in made:
        meta = record.pop("_dspark")
        assert (meta["completed"], meta["error"], meta["schema"]["name"]) == (True, None, "risk")
    assert list(made[0]) == list(made[1])
    assert made[0] == made[1]


@pytest.mark.parametrize(("streamed", "plain"), PAIRS)
def test_streamed_and_other_answers_have_the_same_shape(
    exchanges: list[Json], streamed: str, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_name = {one["name"]: one for one in exchanges}
    found = capture_all([by_name[streamed], by_name[plain]], tmp_path, monkeypatch)
    assert [name for name in found[1] if name in found[0]] == list(found[0])
    made = rows_of_both_engines(lines(tmp_path))
    asked_of_one = (".metrics", ".choices[].logprobs", ".choices[].parse", ".usage", ".output[].content[].logprobs")
    shapes = [{one for one in shape(row) if not one[0].startswith(asked_of_one)} for row in made]
    assert shapes[0] == shapes[1]


def test_rows_hold_all_that_was_sent(exchanges: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = capture_all(exchanges, tmp_path, monkeypatch, CAPTURE_REQUESTS="full")
    for one, record, row in zip(exchanges, found, rows_of_both_engines(lines(tmp_path)), strict=True):
        assert (row["_rescued_data"], row["_corrupt_record"]) == (None, None), one["name"]
        values = [value for _, value in leaves(row)]
        for path, leaf in leaves({name: value for name, value in record.items() if name != "_dspark"}):
            in_text = path.startswith((".text.", ".tools", ".input_messages"))
            if not in_text and not path.endswith((".created", ".created_at", ".code", ".stop_reason")):
                assert leaf in values, (one["name"], path)


def test_answers_to_a_schema_are_typed_on_every_route(
    exchanges: list[Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas: list[Json] = []
    chosen: list[Json] = []
    for one in exchanges:
        request = one["request"]
        asked = request.get("text", {}).get("format") or request.get("response_format", {}).get("json_schema") or {}
        if asked.get("name") == "risk" and not is_left(one) and len(events(one)) != 1:
            schemas.append(asked["schema"])
            chosen.append(one)
    capture_all(chosen, tmp_path, monkeypatch)
    plan = build_plan(content_type=from_json_schema(schemas[0]))
    made = rows_of_both_engines(lines(tmp_path), plan)
    assert {one["path"] for one in chosen} >= {CHAT, RESPONSES}
    for one, row in zip(chosen, made, strict=True):
        for choice in row["choices"]:
            text = choice["text"] if choice["text"] is not None else choice["message"]["content"]
            expected = {"score": None, "risk_level": None, "reasons": None, **json.loads(text)}
            assert choice["parse_status"] == "ok", one["name"]
            assert choice["parsed"] == {**expected, "score": float(expected["score"])}


def test_speculative_decoding_is_in_columns_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture_all(RECORDINGS["spec-decode"], tmp_path, monkeypatch)
    made = [row["metrics"]["speculative_decoding"] for row in rows_of_both_engines(lines(tmp_path)) if row["metrics"]]
    found = [metrics for metrics in made if metrics is not None]
    assert len(found) > 10
    for metrics in found:
        assert metrics["num_spec_tokens"] == 3
        assert len(metrics["acceptance_histogram"]) == 4
        assert sum(metrics["acceptance_histogram"]) == metrics["num_spec_steps"]
        assert metrics["num_accepted_draft_tokens"] <= metrics["num_draft_tokens"]
        assert 1.0 <= metrics["mean_acceptance_length"] <= 4.0
        assert 0.0 <= metrics["draft_acceptance_rate"] <= 1.0


@pytest.mark.parametrize("case", corpus_cases(), ids=lambda case: case["id"])
def test_the_engines_agree_on_the_rows_of_the_corpus(
    case: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding, name = ("latin-1", "chunks_latin1") if "chunks_latin1" in case else ("utf-8", "chunks")
    messages = answer_messages(
        [chunk.encode(encoding) for chunk in case[name]],
        status=case["status"],
        content_type=case["content_type"],
        end=case["end"] == "complete",
    )
    record = capture(messages, tmp_path, monkeypatch, path=case["path"], request=json.dumps(case["request"]).encode())
    (row,) = rows_of_both_engines(lines(tmp_path))
    assert row["_corrupt_record"] is None
    assert row["_dspark"]["completed"] == record["_dspark"]["completed"]
    if record.get("choices"):
        assert [choice["finish_reason"] for choice in row["choices"]] == [
            choice["finish_reason"] for choice in record["choices"]
        ]
