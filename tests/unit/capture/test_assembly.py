"""Chunks become the object that the call gives without streaming."""

from __future__ import annotations

import gc
import json
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import CHAT, TESTS, recorded_exchanges

from dspark_json.capture.assembly import Assembly
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.stream import StreamReader, read_stream

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m"}


def assemble(*chunks: dict[str, Any]) -> dict[str, Any]:
    assembly = Assembly()
    for chunk in chunks:
        assembly.feed({**HEAD, **chunk})
    return assembly.answer()


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = assemble(*(delta(**fields) for fields in deltas))["choices"][0]["message"]
    return found


def test_fields_stand_in_the_order_of_a_non_streaming_answer() -> None:
    answer = assemble(
        {"usage": {"total_tokens": 1}, "system_fingerprint": "f", "new_field": 7, "choices": []},
        {"choices": [{"index": 0, "delta": {"reasoning": "r", "content": "x", "role": "assistant"}, "token_ids": [1]}]},
    )
    assert list(answer) == [
        "id", "object", "created", "model", "choices", "system_fingerprint", "usage", "new_field"
    ]  # fmt: skip
    (choice,) = answer["choices"]
    assert list(choice) == ["index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"]
    assert list(choice["message"]) == ["role", "content", "reasoning"]


def test_the_object_loses_its_chunk_and_keeps_any_other_name() -> None:
    assert assemble({})["object"] == "chat.completion"
    assert assemble({"object": "something"})["object"] == "something"


def test_the_first_value_wins_at_the_top_and_the_last_for_usage_and_metrics() -> None:
    answer = assemble(
        {"usage": {"a": 1}, "extra": None, "service_tier": None, "metrics": {"n": 1}},
        {"usage": {"a": 2}, "extra": "first", "service_tier": "s", "created": 9, "metrics": None},
        {"usage": None, "extra": "second", "metrics": {"n": 2}},
    )
    assert answer["usage"] == {"a": 2}
    assert answer["metrics"] == {"n": 2}
    assert (answer["extra"], answer["service_tier"], answer["created"]) == ("first", "s", 5)


def test_content_is_null_where_no_delta_had_text_and_empty_where_one_was_empty() -> None:
    assert message({"role": "assistant"}, {"content": None}) == {"role": "assistant", "content": None}
    assert message({"content": ""})["content"] == ""


def test_unknown_fields_of_deltas_and_choices_are_kept() -> None:
    assert message({"strange": "a", "n": 1}, {"strange": "b", "n": 2, "parts": [1]}, {"parts": [2]}) == {
        "role": None,
        "content": None,
        "strange": "ab",
        "n": 2,
        "parts": [1, 2],
    }
    answer = assemble(
        {"choices": [{"index": 0, "delta": {}, "odd": {"a": 1}, "token_ids": [1]}]},
        {"choices": [{"index": 0, "delta": {}, "odd": None, "token_ids": [2, 3], "stop_reason": 7}]},
    )
    (choice,) = answer["choices"]
    assert (choice["odd"], choice["token_ids"], choice["stop_reason"]) == ({"a": 1}, [1, 2, 3], 7)


def test_tool_calls_are_joined_by_index_and_lose_it() -> None:
    calls = [
        [{"index": 1, "id": "b", "type": "function", "function": {"name": "g"}}],
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}, "extra": 1}],
        [{"index": 0, "id": None, "function": {"name": None, "arguments": "}"}}],
    ]
    assert message(*({"tool_calls": call} for call in calls))["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": 1},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]


def test_tool_calls_without_an_index_begin_anew_with_each_id() -> None:
    calls = [
        [{"id": "a", "function": {"name": "f", "arguments": "1"}}],
        [{"function": {"arguments": "2"}}],
        [{"id": "b", "function": {"name": "g", "arguments": "3"}}],
    ]
    found = message(*({"tool_calls": call} for call in calls))["tool_calls"]
    assert [(call["id"], call["function"]["arguments"]) for call in found] == [("a", "12"), ("b", "3")]


def pieces(*choices: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = assemble(*({"choices": [{"index": 0, **choice}]} for choice in choices))["choices"]
    return found


def test_text_completions_have_the_fields_and_the_order_of_their_own_answers() -> None:
    empty = {"logprobs": None, "finish_reason": None, "stop_reason": None, "prompt_token_ids": None, "token_ids": None}
    (choice,) = pieces({"text": "a", **empty}, {"text": "b", **empty, "finish_reason": "stop", "stop_reason": 7})
    assert list(choice.items()) == [
        ("index", 0),
        ("text", "ab"),
        ("logprobs", None),
        ("finish_reason", "stop"),
        ("stop_reason", 7),
        ("token_ids", None),
        ("prompt_token_ids", None),
    ]


def test_choices_of_several_prompts_are_in_the_order_of_their_index() -> None:
    answer = assemble(
        {"choices": [{"index": 1, "text": "c"}]},
        {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "d"}]},
        {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]},
    )
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "ab"), (1, "cd")]


def test_logprobs_of_texts_are_joined_list_by_list() -> None:
    parts = [
        {"text_offset": [n], "token_logprobs": [-n], "tokens": [str(n)], "top_logprobs": [{str(n): -n}]} for n in (1, 2)
    ]
    (choice,) = pieces(*({"text": "x", "logprobs": part} for part in [*parts, None]))
    assert choice["logprobs"] == {
        "text_offset": [1, 2],
        "token_logprobs": [-1, -2],
        "tokens": ["1", "2"],
        "top_logprobs": [{"1": -1}, {"2": -2}],
    }


def test_unknown_members_of_text_choices_are_kept_and_grow_like_the_text() -> None:
    (choice,) = pieces(
        {"text": "a", "strange": None, "parts": [1], "n": 1, "object": {"a": 1}},
        {"text": "b", "strange": "x", "parts": [2], "n": 2},
        {"text": "c", "strange": "y", "object": None},
    )
    assert choice["text"] == "abc"
    assert (choice["strange"], choice["parts"], choice["n"], choice["object"]) == ("xy", [1, 2], 2, {"a": 1})


def test_the_old_function_call_is_joined_too() -> None:
    found = message(
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": {"arguments": '{"a"'}},
        {"function_call": {"name": None, "arguments": ":1}"}},
    )
    assert found["function_call"] == {"name": "f", "arguments": '{"a":1}'}


TOOL = {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "fields",
    [
        lambda number: {"tool_calls": [{"id": f"c{number}", **TOOL}]},
        lambda number: {"tool_calls": [{"index": number, **TOOL}]},
        lambda number: {"tool_calls": [TOOL]},
        lambda number: {"annotations": [{"a": number}] * 5},
        lambda number: {"function_call": {"name": "f", "arguments": "x" * 100}},
        lambda number: {"content": "x" * 100},
    ],
    ids=["tools by id", "tools by index", "one tool", "lists", "function call", "text"],
)
def test_twice_the_deltas_are_twice_the_work(fields: Callable[[int], dict[str, Any]]) -> None:
    few, many = [[delta(**fields(number)) for number in range(count)] for count in (3_000, 24_000)]
    # CPU time of this thread, without the garbage collector: eight times as long if linear, sixty-four if quadratic.
    gc.disable()
    try:
        assert min(seconds_for(many) for _ in range(3)) < 24 * min(seconds_for(few) for _ in range(3))
    finally:
        gc.enable()


def seconds_for(chunks: list[dict[str, Any]]) -> float:
    assembly = Assembly()
    start = time.thread_time()
    for chunk in chunks:
        assembly.feed(chunk)
    assembly.answer()
    return time.thread_time() - start


def test_a_delta_is_not_changed_by_those_after_it() -> None:
    first = [{"a": 1}]
    assert message({"parts": first}, {"parts": [2]})["parts"] == [{"a": 1}, 2]
    assert first == [{"a": 1}]


@pytest.mark.parametrize(
    "chunk",
    [{"choices": 5}, {"choices": ["x"]}, {"choices": [{"delta": "x"}]}, {"choices": [{"index": [], "delta": {}}]}],
)
def test_a_chunk_of_another_shape_is_refused(chunk: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="chunk"):
        Assembly().feed(chunk)


def streamed_form(answer: dict[str, Any], size: int) -> list[dict[str, Any]]:
    """A non-streaming answer cut into the chunks that a stream of it has."""
    top = {key: value for key, value in answer.items() if key not in ("choices", "usage", "metrics", "object")}
    chunks: list[dict[str, Any]] = []

    def emit(choice: dict[str, Any], **top_fields: Any) -> None:
        chunks.append({**top, **top_fields, "object": answer["object"] + ".chunk", "choices": [choice]})

    for choice in answer["choices"]:
        index, whole = choice["index"], choice["message"]
        emit({"index": index, "delta": {"role": whole["role"]}, "logprobs": None, "finish_reason": None})
        for name in ("refusal", "annotations", "audio", "function_call"):
            emit({"index": index, "delta": {name: whole[name]}})
        for name in ("reasoning", "content"):
            text = whole[name]
            if text is None:
                emit({"index": index, "delta": {name: None}})
            else:
                for start in range(0, len(text) or 1, size):
                    emit({"index": index, "delta": {name: text[start : start + size]}, "finish_reason": None})
        for number, call in enumerate(whole.get("tool_calls") or ()):
            arguments = call["function"]["arguments"]
            first = {**call, "index": number, "function": {"name": call["function"]["name"]}}
            emit({"index": index, "delta": {"tool_calls": [first]}})
            for start in range(0, len(arguments), size):
                part = {"index": number, "function": {"arguments": arguments[start : start + size]}}
                emit({"index": index, "delta": {"content": None, "tool_calls": [part]}})
        for item in (choice["logprobs"] or {}).get("content", ()):
            emit({"index": index, "delta": {}, "logprobs": {"content": [item]}})
        last = {key: value for key, value in choice.items() if key not in ("message", "logprobs")}
        emit({**last, "delta": {}})
    chunks.append({**top, "object": answer["object"] + ".chunk", "choices": []})
    chunks[-1] |= {key: answer[key] for key in ("usage", "metrics") if key in answer}
    return chunks


def non_streaming_answers() -> list[dict[str, Any]]:
    answers = [
        json.loads(exchange["messages"][1]["body"])
        for exchange in recorded_exchanges()
        if exchange["path"] == CHAT and exchange["messages"][0]["headers"][-1][1] == "application/json"
    ]
    text = (TESTS / "fixtures/vllm/answers.ndjson").read_text(encoding="utf-8").splitlines()
    return [answer for answer in answers if answer and "choices" in answer] + [json.loads(line) for line in text[:60]]


@pytest.mark.parametrize("size", [1, 7])
def test_a_streamed_answer_equals_the_non_streaming_one(size: int) -> None:
    answers = non_streaming_answers()
    assert len(answers) > 70
    for answer in answers:
        events = [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in streamed_form(answer, size)]
        reader = read_stream([*events, b"data: [DONE]\n\n"], cut_off=False, pacer=Pacer())
        assert reader.done
        assembled = reader.assembly.answer()
        assert assembled == answer
        assert list(assembled) == list(answer)


def test_recorded_streams_give_the_text_that_their_deltas_hold() -> None:
    for exchange in recorded_exchanges():
        if exchange["path"] != CHAT or not exchange["name"].startswith("stream"):
            continue
        bodies = [message["body"].encode() for message in exchange["messages"][1:]]
        chunks = [json.loads(body[6:]) for body in bodies if body.startswith(b"data: {")]
        texts: dict[int, str] = {}
        for chunk in chunks:
            for choice in chunk["choices"]:
                index = choice["index"]
                texts[index] = texts.get(index, "") + (choice["delta"].get("content") or "")
        answer = read_stream(bodies, cut_off=False, pacer=Pacer()).assembly.answer()
        assert {choice["index"]: choice["message"]["content"] for choice in answer["choices"]} == texts
        assert answer["usage"] == (chunks[-1].get("usage") or None)
        assert answer["id"] == chunks[0]["id"]


STREAM = b"".join(
    [
        'data: {"id":"日本語","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'.encode(),
        b': ping\n\ndata:{"choices":[{"index":0,"delta":{"role":"assistant","content":"\xf0\x9f\x98\x80"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00 "}}]}\n\n',
        b'data: {"choices":[{"index":1,"delta":{"content":"bad \xff byte"}}]}\n\n',
        b'data: {"choices":[{"index":1,"delta":{},"finish_reason":"stop"}],"usage":{"n":12345678901234567890123}}\n\n',
        b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"two lines"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]},{"choices":[]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\r\n\r\n',
        b"data: [DONE]\n\n",
        b'data: {"choices":[{"index":0,"delta":{"content":"after the end"}}]}\n\n',
    ]
)


def outcome(pieces: list[bytes]) -> tuple[str, str | None, bool]:
    reader = read_stream(pieces, cut_off=False, pacer=Pacer())
    return json.dumps(reader.assembly.answer()), reader.bad_event, reader.done


def test_a_stream_of_odd_events_is_read_as_far_as_it_can_be() -> None:
    text, bad, done = outcome([STREAM])
    answer = json.loads(text)
    assert answer["id"] == "日本語"
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["😀😀 two lines", "bad \ufffd byte"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "stop"]
    assert bad == '{"choices":[{"index":0,"delta":{"content":"a"}}]},{"choices":[]}'
    assert done


@settings(max_examples=150, deadline=None)
@given(st.sets(st.integers(0, len(STREAM)), max_size=40))
def test_a_stream_cut_anywhere_gives_the_same_answer(cuts: set[int]) -> None:
    ordered = sorted(cuts | {0, len(STREAM)})
    pieces = [STREAM[a:b] for a, b in pairwise(ordered)]
    assert outcome(pieces) == outcome([STREAM])


PIECES = [
    b'data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"}}]}',
    b'data: {"a":1},{"choices":[{"index":0,"delta":{"content":"Q"}}]}',
    b'data: {"a":"x}\n\ndata: {y"}\n\n',
    b'data: {"l":[{"a":1}\n\ndata: {"b":2}]}\n\n',
    b'data: {"a":1,\n"choices":[]}\n\n',
    b'\n\ndata: {"id":"b","choices":[{"index":1,"delta":{"content":"z"}}]}\n\n',
    b'data: {"error":"e"}', b"data: 5", b"data:", b": c", b"event: e", b"\xef\xbb\xbf",
    b"\n\n", b"\n", b"\r\n", b"\r", b"data: [DONE]", b"data: [DONE]\n\n", b" data: [DONE]\n\n", b"}", b" ", b"},{",
]  # fmt: skip


def fed(pieces: list[bytes], *, cut_off: bool) -> tuple[str, str | None, bool, Any]:
    reader = StreamReader()
    for piece in pieces:
        reader.feed(piece)
    reader.finish(cut_off=cut_off)
    return json.dumps(reader.assembly.answer()), reader.bad_event, reader.done, reader.assembly.error


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=9), st.booleans(), st.data())
def test_no_cut_changes_what_odd_bytes_mean(parts: list[bytes], cut_off: bool, data: st.DataObject) -> None:
    stream = b"".join(parts)
    whole = fed([stream], cut_off=cut_off)
    cut = data.draw(st.integers(0, len(stream)))
    assert fed([stream[:cut], stream[cut:]], cut_off=cut_off) == whole
    assert fed([stream[i : i + 1] for i in range(len(stream))], cut_off=cut_off) == whole


@pytest.mark.parametrize(
    "stream",
    [
        b'data: {"a":1},{"b":2}\n\ndata: {"id":"b"}\n\n\n\n',
        b'data: {"a":1},{"b":2}\n\ndata: {"a":"x}\n\ndata: {y"}\n\n',
        b'data: {"a":1},{"b":2}\n\ndata: {"l":[{"a":1}\n\ndata: {"b":2}]}\n\n',
        b'data: {"a":1,\n"b":2}\n\n',
    ],
)
def test_only_an_event_that_is_one_value_is_a_chunk(stream: bytes) -> None:
    first = stream.split(b"\n")[0].removeprefix(b"data: ").decode()
    assert fed([stream], cut_off=False)[1] == first


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_long_stream_cut_anywhere_gives_the_same_answer(data: st.DataObject) -> None:
    exchange = next(e for e in recorded_exchanges() if e["name"] == "stream_order_continuous_usage")
    stream = b"".join(message["body"].encode() for message in exchange["messages"][1:])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=30)) | {0, len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(cuts)]
    assert outcome(pieces) == outcome([stream])


def test_the_end_of_a_stream_that_was_cut_off_is_no_bad_event() -> None:
    pieces = [b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\ndata: {"choices":[{"ind']
    assert read_stream(pieces, cut_off=True, pacer=Pacer()).bad_event is None
    assert read_stream(pieces, cut_off=False, pacer=Pacer()).bad_event == '{"choices":[{"ind'


def test_a_very_long_event_is_read_line_by_line() -> None:
    text = "x" * (1 << 20)
    event = b"data: " + orjson.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}) + b"\n\n"
    pieces = [event[i : i + 1000] for i in range(0, len(event), 1000)]
    reader = read_stream([*pieces, event, b"data: [DONE]\n\n"], cut_off=False, pacer=Pacer())
    assert reader.assembly.answer()["choices"][0]["message"]["content"] == 2 * text
    assert reader.done
