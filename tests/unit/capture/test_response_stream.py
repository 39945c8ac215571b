"""Streams of ``/v1/responses``: whole ones, ones that end early, errors, and events that nobody knows yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import rows_of_both_engines
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import (
    RESPONSES,
    answer_messages,
    asgi_messages,
    capture,
    event,
    lines,
    recorded_exchanges,
)

from dspark_json.capture.pacing import Pacer
from dspark_json.capture.response_stream import StreamedResponse, read_response_stream

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
HEAD: Json = {"id": "resp_1", "object": "response", "created_at": 1_764_400_000, "model": "m"}
REQUEST = b'{"model":"m","input":"x","stream":true}'
STREAM = "text/event-stream; charset=utf-8"


def message(text: str, **fields: Any) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part], **fields}


def response(*output: Json, status: str = "completed", **fields: Any) -> Json:
    return {**HEAD, "status": status, "output": list(output), **fields}


def created() -> bytes:
    return event("response.created", response=response(status="in_progress"), sequence_number=0)


def deltas(*pieces: str, kind: str = "response.output_text", **fields: Any) -> list[bytes]:
    place = {"item_id": "i", "output_index": 0, "content_index": 0, "sequence_number": 4, **fields}
    return [event(f"{kind}.delta", delta=piece, **place) for piece in pieces]


def read(*events: bytes, cut_off: bool = False) -> StreamedResponse:
    found = read_response_stream([b"".join(events)], cut_off=cut_off, pacer=Pacer())
    assert json.loads(found.text) == found.response
    return found


def test_the_last_event_is_the_answer_whatever_came_before() -> None:
    last = response(message("whole"), new_member={"n": 1.50})
    found = read(created(), *deltas("other", "text"), event("response.completed", response=last, sequence_number=9))
    assert found.response == last
    assert (found.is_last, found.done, found.error, found.unknown) == (True, True, None, [])


def test_numbers_stay_as_they_were_written() -> None:
    text = b'{"id":"r","n":1.50,"big":123456789012345678901234567890,"e":1e3}'
    for data in (
        b'{"response":' + text + b',"sequence_number":1,"type":"response.completed"}',
        b'{"type":"response.completed","response":' + text + b"}",
        b'{"type": "response.completed", "response" : ' + text + b' , "more": 1}',
    ):
        found = read_response_stream(
            [b"event: response.completed\ndata: " + data + b"\n\n"], cut_off=False, pacer=Pacer()
        )
        assert found.text == text


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
@pytest.mark.parametrize("form", ["vllm", "crlf", "cr", "data only", "done", "spaced", "comments", "no last blank"])
def test_the_answer_does_not_depend_on_the_form_of_the_stream(kind: str, form: str) -> None:
    last = response(message("日本 😀\u2028"), status=kind)
    events = [created(), *deltas("日"), event(f"response.{kind}", response=last, sequence_number=1)]
    stream = b"".join(events)
    if form in ("crlf", "cr"):
        stream = stream.replace(b"\n", b"\r\n" if form == "crlf" else b"\r")
    elif form == "data only":
        stream = b"".join(one[one.index(b"data:") :] for one in events)
    elif form == "done":
        stream += b"data: [DONE]\n\n"
    elif form == "spaced":
        stream = stream.replace(b"event: ", b"event:").replace(b"data: ", b"data:")
    elif form == "comments":
        stream = b": ping\n\n".join([b"", *events, b""])
    elif form == "no last blank":
        stream = stream.removesuffix(b"\n")
    for size in (1, 7, len(stream)):
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        found = read_response_stream(pieces, cut_off=False, pacer=Pacer())
        assert (found.response, found.is_last, found.done, found.bad_event) == (last, True, True, None)


def test_without_a_last_event_the_answer_is_what_came_so_far() -> None:
    stream = [
        created(),
        event("response.output_item.added", item={"id": "r", "type": "reasoning", "summary": []}, output_index=0),
        *deltas("th", "ink", kind="response.reasoning_text"),
        event("response.output_item.added", item={**message(""), "content": []}, output_index=1),
        event("response.content_part.added", part={"type": "output_text", "text": "", "logprobs": []}, output_index=1,
              content_index=0),
        *deltas("a", "b", output_index=1, logprobs=[{"token": "t"}]),
        event("response.output_item.added", output_index=2,
              item={"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}),
        *deltas('{"x"', ":1}", kind="response.function_call_arguments", output_index=2),
    ]  # fmt: skip
    found = read(*stream, cut_off=True)
    assert found.response == response(
        {"id": "r", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]},
        {**message(""), "content": [{"type": "output_text", "text": "ab", "logprobs": [{"token": "t"}] * 2}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'},
        status="in_progress",
    )
    assert (found.is_last, found.done) == (False, False)


def test_what_is_done_counts_as_it_was_told_at_its_end() -> None:
    done = message("at the end", status="completed")
    item = event("response.output_item.done", item=done, output_index=0)
    assert read(created(), *deltas("x"), item).response["output"] == [done]
    text = event("response.output_text.done", text="all", output_index=0, content_index=0)
    assert read(created(), *deltas("al"), text).response["output"][0]["content"][0]["text"] == "all"
    part = event("response.content_part.done", part={"type": "output_text", "text": "p"}, output_index=0)
    assert read(created(), *deltas("x"), part).response["output"][0]["content"] == [
        {"type": "output_text", "text": "p"}
    ]


def test_deltas_of_items_that_were_not_announced_make_them() -> None:
    """As servers send that leave out the indexes (litellm#36361)."""
    found = read(
        created(),
        event("response.output_text.delta", delta="{"),
        event("response.output_text.delta", delta="}"),
        event("response.refusal.delta", delta="no", content_index=1),
    )
    (item,) = found.response["output"]
    assert item["content"] == [{"type": "output_text", "text": "{}"}, {"type": "refusal", "refusal": "no"}]
    assert (item["type"], item["role"]) == ("message", "assistant")
    summary = read(*deltas("s", kind="response.reasoning_summary_text", summary_index=0)).response["output"]
    assert summary == [{"id": "i", "type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}]


@pytest.mark.parametrize("kind", [
    "function_call_arguments", "mcp_call_arguments", "custom_tool_call_input", "code_interpreter_call_code"
])  # fmt: skip
def test_calls_grow_by_their_deltas(kind: str) -> None:
    (item,) = read(*deltas("a", "b", kind=f"response.{kind}")).response["output"]
    assert item == {"id": "i", "type": kind.rpartition("_")[0], kind.rpartition("_")[2]: "ab"}


def test_annotations_are_gathered() -> None:
    added = [event("response.output_text.annotation.added", annotation={"n": n}, output_index=0) for n in (1, 2)]
    (item,) = read(*deltas("a"), *added).response["output"]
    assert item["content"][0]["annotations"] == [{"n": 1}, {"n": 2}]


EVENTS = recorded_exchanges()
RECORDED = next(one for one in EVENTS if one["name"] == "stream_responses")["messages"]


@pytest.mark.parametrize("upto", range(1, len(RECORDED) - 1))
def test_a_recorded_stream_cut_after_any_event_has_the_text_so_far(upto: int) -> None:
    bodies = [one["body"].encode() for one in RECORDED if one["type"] == "body"][:upto]
    found = read_response_stream(bodies, cut_off=True, pacer=Pacer())
    datas = [json.loads(body.partition(b"\ndata: ")[2]) for body in bodies]
    text = "".join(data["delta"] for data in datas if data["type"] == "response.output_text.delta")
    assert found.response["id"] == "resp_9f4cce87e0ed06f3"
    content = [part["text"] for item in found.response["output"] for part in item["content"]]
    assert "".join(content) == text
    assert found.is_last is (upto == len(RECORDED) - 2)
    assert found.bad_event is None


def record_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *events: bytes, end: bool = True, **settings: str
) -> Json:
    messages = answer_messages(events, content_type=STREAM, end=end)
    return capture(messages, tmp_path, monkeypatch, path=RESPONSES, request=REQUEST, **settings)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"type": "error", "code": "server_error", "message": "boom", "param": None, "sequence_number": 3},
         {"message": "boom", "type": None, "code": "server_error"}),
        ({"type": "error", "error": {"message": "boom", "type": "T", "code": 500}},
         {"message": "boom", "type": "T", "code": "500"}),
        ({"error": {"message": "boom", "type": "T", "code": 500}}, {"message": "boom", "type": "T", "code": "500"}),
    ],
)  # fmt: skip
def test_an_error_in_the_middle_is_the_records_error(
    data: Json, error: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = b"event: error\ndata: " + json.dumps(data).encode() + b"\n\n"
    record = record_of(tmp_path, monkeypatch, created(), *deltas("par", "tial"), told)
    meta = record["_dspark"]
    assert (meta["error"], meta["completed"], meta["disconnected"]) == (error, False, False)
    assert record["choices"][0]["message"]["content"] == "partial"
    assert record["choices"][0]["finish_reason"] is None


def test_a_failed_response_has_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = response(message("par"), status="failed", error={"code": "server_error", "message": "boom"})
    record = record_of(tmp_path, monkeypatch, created(), event("response.failed", response=failed))
    assert record["_dspark"]["error"] == {"message": "boom", "type": None, "code": "server_error"}
    assert record["_dspark"]["completed"] is False
    assert record["choices"][0]["finish_reason"] == "error"


def test_a_stream_that_was_left_has_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(tmp_path, monkeypatch, created(), *deltas("so", " far"), end=False)
    assert (record["_dspark"]["completed"], record["_dspark"]["disconnected"]) == (False, True)
    assert (record["id"], record["status"]) == ("resp_1", "in_progress")
    assert record["choices"][0]["message"]["content"] == "so far"


def test_a_client_that_leaves_after_the_last_event_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = event("response.completed", response=response(message("x")))
    record = record_of(tmp_path, monkeypatch, created(), last, end=False)
    assert (record["_dspark"]["completed"], record["_dspark"]["disconnected"]) == (True, False)


def test_an_event_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(tmp_path, monkeypatch, created(), *deltas("x"), b"data: {broken\n\n", *deltas("y"))
    assert record["_dspark"]["error"] == {"message": "{broken", "type": "capture", "code": "bad_event"}
    assert record["choices"][0]["message"]["content"] == "xy"


def test_a_byte_order_mark_inside_of_the_stream_does_not_get_into_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = event("response.completed", response=response(message("x")), sequence_number=9)
    new = event("response.new", a=1).replace(b"data: ", "data: \ufeff".encode())
    record = record_of(tmp_path / "new", monkeypatch, created(), new, last)
    assert record["unknown_events"] == [{"a": 1, "type": "response.new"}]
    marked = last.replace(b'{"response":', '{"response":\ufeff'.encode())
    record = record_of(tmp_path / "last", monkeypatch, created(), *deltas("y"), marked)
    assert record["choices"][0]["message"]["content"] == "y"
    assert record["_dspark"]["error"]["code"] == "bad_event"


@pytest.mark.parametrize("is_whole", [True, False])
def test_events_of_new_types_are_kept_whole_and_rescued(
    is_whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = [
        event("response.video.delta", delta="AAA", n=1.50),
        event("response.output_text.mood", mood="日"),
        event("keepalive", sequence_number=7),
    ]
    last = event("response.completed", response=response(message("{}"), hue={"h": [1]}))
    record = record_of(
        tmp_path, monkeypatch, created(), new[0], *deltas("{", "}"), *new[1:], *([last] if is_whole else [])
    )
    kept = [json.loads(one.partition(b"\ndata: ")[2]) for one in new]
    assert record["unknown_events"] == kept
    assert record["_dspark"]["completed"] is is_whole
    assert record["choices"][0]["message"]["content"] == "{}"
    (row,) = rows_of_both_engines(lines(tmp_path))
    rescued = json.loads(row["_rescued_data"])
    assert rescued["unknown_events"] == kept
    assert rescued.get("hue") == ({"h": [1]} if is_whole else None)


def test_what_new_events_tell_of_the_request_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = event("response.plan", response={"instructions": "SECRET"}, input=["SECRET"], note="{'prompt': 'SECRET'}")
    last = event("response.completed", response=response(message("x")))
    record_of(tmp_path, monkeypatch, created(), new, last)
    (line,) = lines(tmp_path)
    assert b"SECRET" not in line
    assert b'"response.plan"' in line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "text", "type", "logprobs"]), inner)
    ),
    max_leaves=6,
)
KINDS = st.sampled_from([
    "response.created", "response.in_progress", "response.output_item.added", "response.output_item.done",
    "response.content_part.added", "response.content_part.done", "response.output_text.delta",
    "response.output_text.done", "response.output_text.annotation.added", "response.function_call_arguments.delta",
    "response.reasoning_summary_text.delta", "response.web_search_call.searching", "error", "response.new",
])  # fmt: skip
MEMBERS = st.dictionaries(
    st.sampled_from(
        ["response", "item", "part", "delta", "text", "output_index", "content_index", "logprobs", "error"]
    ),
    VALUES | st.just({}),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(KINDS, MEMBERS), max_size=8), st.integers(1, 40))
def test_whatever_a_server_sends_is_read_without_an_exception_and_however_it_is_cut(
    sent: list[tuple[str, Json]], size: int
) -> None:
    stream = b"".join(event(kind, **members) for kind, members in sent)
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    found = read_response_stream(pieces, cut_off=True, pacer=Pacer())
    assert found == read_response_stream([stream], cut_off=True, pacer=Pacer())
    last = event("response.completed", response=HEAD, sequence_number=1)
    whole = read_response_stream([*pieces, last], cut_off=False, pacer=Pacer())
    assert whole.response == HEAD


@pytest.mark.parametrize("member", ["output_index", "content_index"])
def test_a_million_items_or_parts_are_not_all_kept(member: str) -> None:
    place = {"output_index": 0, "content_index": 0}
    stream = [event("response.output_text.delta", delta="x", **{**place, member: n}) for n in range(40_000)]
    found = read(created(), *stream, cut_off=True)
    kept = found.response["output"]
    assert 10_000 < len(kept if member == "output_index" else kept[0]["content"]) < 40_000
    assert found.bad_event is not None


def test_a_left_recording_is_kept_as_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = next(one for one in EVENTS if one["name"] == "responses_client_leaves")
    request = json.dumps(left["request"]).encode()
    record = capture(asgi_messages(left["messages"]), tmp_path, monkeypatch, path=RESPONSES, request=request)
    assert (record["status"], record["_dspark"]["disconnected"]) == ("in_progress", True)
    assert record["output"][0]["content"][0]["text"] == record["choices"][0]["message"]["content"] == "ove"
