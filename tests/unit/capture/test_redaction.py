"""What an answer echoes of the request does not get into the spool (DESIGN §2 rule 8)."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import all_lines, answer_messages, asgi_messages, capture, lines, recorded_exchanges

from dspark_json.capture.pacing import Pacer
from dspark_json.capture.redaction import (
    ECHOED,
    ECHOED_INSIDE,
    may_echo,
    redact_object,
    redact_parsed,
    redact_text,
)

if TYPE_CHECKING:
    from pathlib import Path


def redacted(text: str) -> str:
    return redact_text(text.encode(), Pacer()).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"prompt":"x","a":1}', '{"prompt":null,"a":1}'),
        ('{ "tools" : [ {"a": "]}"} , 2 ] , "n": 1.50 }', '{ "tools" : null , "n": 1.50 }'),
        ('{"prompt_token_ids":[1,2],"prompt_logprobs":{"a":{}}}', '{"prompt_token_ids":null,"prompt_logprobs":null}'),
        ('{"prompt":null}', '{"prompt":null}'),
        ('{"prompt":12.5}', '{"prompt":null}'),
        ('{"prompt":"a\\"b\\\\","c":"\\"prompt\\":1"}', '{"prompt":null,"c":"\\"prompt\\":1"}'),
        ('{"pr\\u006fmpt":"x"}', '{"pr\\u006fmpt":null}'),
        ('{"a":{"prompt":"kept"},"b":["prompt","x"],"c":"prompt"}', None),
        ('{"a":["x",{"tools":1}],"choices":[{"message":{"tools":1}}]}', None),
        (
            '{"choices":[{"prompt_token_ids":[1],"text":"t","prompt_logprobs":[null,{}]}],"prompt":"p"}',
            '{"choices":[{"prompt_token_ids":null,"text":"t","prompt_logprobs":null}],"prompt":null}',
        ),
        (
            '{"text":{"format":{"type":"json_schema","schema":{"a":[{}]},"name":"n"}},"schema":1}',
            '{"text":{"format":{"type":"json_schema","schema":null,"name":"n"}},"schema":1}',
        ),
        ('{"format":{"schema":1},"text":{"schema":2,"x":{"format":{"schema":3}}}}', None),
        ('{"tools":[],"tools":"twice"}', '{"tools":null,"tools":null}'),
        (
            '{"choices":[{"prompt_text":"s"}],"choices":[{"prompt_token_ids":null,"prompt_token_ids":[1]}]}',
            '{"choices":[{"prompt_text":null}],"choices":[{"prompt_token_ids":null,"prompt_token_ids":null}]}',
        ),
        (
            '{"choices":[{"message":{"prompt_text":"s","content":"c"},"delta":{"prompt":[]}}]}',
            '{"choices":[{"message":{"prompt_text":null,"content":"c"},"delta":{"prompt":null}}]}',
        ),
        ('{"choices":[{"message":{"a":{"prompt_text":"kept"}},"a":{"prompt":1}}],"message":{"prompt":1}}', None),
        ('[{"prompt":1}]', None),
        (" \n{ } \t", None),
        ('{"a":[[],{},""],"prompt":{"prompt":{}},"z":-1.5E+9}', '{"a":[[],{},""],"prompt":null,"z":-1.5E+9}'),
        ("{}", None),
    ],
)
def test_echoed_values_become_null_and_all_else_stays(text: str, expected: str | None) -> None:
    assert redacted(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[", "}", "]", "[}", "{]", '{"a"}', '{"a":}', '{"a",1}', '{"a":1,}', "[1,]", "[,]", "[1 2]",
        '{"a":1 "b":2}', "{1:2}", "{{}}", '{"a"::1}', "[:]", "nul", "NaN", "-", "01", "1.", "+1", "'a'", '"a',
        '"\\x"', '"\\u12"', '"\n"', '{"a":1}{"prompt":2}', '{"a":1},"prompt":2', '{"a":"x"","prompt":"s"}',
        '{"prompt":"s"', "[" * 2_000 + "]" * 2_000,
    ],
)  # fmt: skip
def test_a_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        redacted(text)


NAMES = ("encrypted_content", "output", "text", "format", "schema", "choices", "message", "delta", "a", 'q"\\', "日")
KEYS = st.sampled_from([*sorted(ECHOED), *NAMES])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_redacting_the_text_equals_redacting_the_object(
    answer: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(answer, indent=indent, ensure_ascii=ascii_only)
    found = json.loads(redacted(text))
    if found != answer:
        assert may_echo(text.encode(), Pacer())
    redact_object(answer)
    assert found == answer


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sampled_from([None, 1, "compact"]), st.booleans())
def test_knowing_the_value_of_a_text_changes_nothing_but_the_time(
    answer: dict[str, Any], indent: int | str | None, ascii_only: bool
) -> None:
    if indent == "compact":
        text = json.dumps(answer, separators=(",", ":"), ensure_ascii=ascii_only)
    else:
        text = json.dumps(answer, indent=indent, ensure_ascii=ascii_only)
    known = json.loads(text)
    assert redact_parsed(text.encode("utf-8", "surrogatepass"), known, Pacer()).decode(
        "utf-8", "surrogatepass"
    ) == redacted(text)
    redact_object(answer)
    assert known == answer


RESPONSE = {
    "instructions": "SECRET \u2028 日",
    "tools": [{"type": "function", "name": "f", "parameters": {"properties": {"prompt": {"instructions": "SECRET"}}}}],
    "text": {"format": {"type": "json_schema", "schema": {"properties": {"tools": {"const": "SECRET"}}}}},
    "prompt": {"id": "SECRET"},
    "input_messages": [{"message": "SECRET", "tokens": [1]}],
    "output": [{"type": "reasoning", "encrypted_content": "SECRET"}, {"type": "message", "tools": "kept"}],
    "n": 1.5,
}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("path", ["whole", "stream"])
def test_a_response_keeps_nothing_of_the_request(
    path: str, separators: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({**RESPONSE, "status": "completed"}, separators=separators, ensure_ascii=False)
    messages = answer_messages([text.encode()])
    if path == "stream":
        data = f'{{"response":{text},"sequence_number":1,"type":"response.completed"}}'
        messages = answer_messages(
            [f"event: response.completed\ndata: {data}\n\n".encode()], content_type="text/event-stream"
        )
    record = capture(messages, tmp_path, monkeypatch, path="/v1/responses")
    assert b"SECRET" not in all_lines(tmp_path)
    assert (record["output"][1]["tools"], record["n"]) == ("kept", 1.5)
    for name in ("instructions", "tools", "prompt", "input_messages"):
        assert record[name] is None
    assert record["text"] == {"format": {"type": "json_schema", "schema": None}}


def escaped(text: str, which: set[int]) -> str:
    return "".join(f"\\u{ord(c):04x}" if i in which else c for i, c in enumerate(text))


@given(st.sampled_from(sorted(ECHOED)), st.data())
def test_a_key_is_found_however_it_is_written(key: str, data: st.DataObject) -> None:
    name = escaped(key, data.draw(st.sets(st.integers(0, len(key) - 1))))
    blanks = data.draw(st.text(" \t\r\n", max_size=3))
    text = '{"a":"tools","prompt_text":null,"' + name + '"' + blanks + ":" + blanks + '"s"}'
    assert may_echo(text.encode(), Pacer())
    assert redacted(text) == text.replace('"s"', "null")


def test_a_key_across_the_edge_of_a_search_piece_is_found() -> None:
    for pad in range(65_480, 65_560):
        assert may_echo(b'{"a":"' + b"x" * pad + b'","prompt_token_ids" : [1]}', Pacer())
        assert may_echo(b'{"a":"' + b"x" * pad + b'","prompt_text"' + b" " * 100 + b":1}", Pacer())
        assert may_echo(b'{"a":"' + b"x" * pad + b'","prompt\\u005ftext":1}', Pacer())
    assert not may_echo(b'{"a":"' + b"x" * 200_000 + b'","prompt_token_ids": null, "tools":null}', Pacer())


ECHO = '"prompt":"secret","prompt_text":"secret","prompt_token_ids":[77777],"tools":[{"secret":1}]'


@pytest.mark.parametrize("pad", [0, 400_000])
@pytest.mark.parametrize("mode", ["none", "settings", "full"])
def test_no_echo_gets_into_a_record_unless_all_is_kept(
    pad: int, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = '{"id":"c","n":1.500,"pad":"' + "x" * pad + '",' + ECHO + "}"
    record = capture(answer_messages([body.encode()]), tmp_path, monkeypatch, CAPTURE_REQUESTS=mode)
    kept = json.loads(body)
    if mode != "full":
        redact_object(kept)
    del record["_dspark"]
    assert record == kept
    assert (b"secret" in lines(tmp_path)[0]) is (mode == "full")
    assert b'"n":1.500' in lines(tmp_path)[0]


@pytest.mark.parametrize("mode", ["settings", "full"])
def test_no_echo_of_a_stream_gets_into_a_record(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}],' + ECHO.encode() + b"}\n\n",
        b'data: {"choices":[{"index":0,"delta":{},"prompt_token_ids":[77777],"finish_reason":"stop"}]}\n\n',
    ]
    record = capture(
        answer_messages(events, content_type="text/event-stream"), tmp_path, monkeypatch, CAPTURE_REQUESTS=mode
    )
    text = lines(tmp_path)[0]
    assert (b"secret" in text, b"77777" in text) == ((mode == "full"),) * 2
    assert "prompt_text" in record


def test_recorded_prompt_logprobs_are_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = next(e for e in recorded_exchanges() if e["name"] == "chat_prompt_logprobs")
    record = capture(asgi_messages(exchange["messages"]), tmp_path, monkeypatch)
    whole = json.loads(exchange["messages"][1]["body"])
    assert whole["prompt_logprobs"] is not None
    del record["_dspark"]
    assert record == {**whole, "prompt_logprobs": None}


STREAM = "text/event-stream"
DEEP = "[" * 1_500 + "]" * 1_500
PAD = "x" * 300_000
# Bodies that echo the prompt and are no JSON object, or one that the standard ways do not read.
UNREADABLE = {
    "cut-off": '{"id":"x","prompt_text":"SECRET PROMPT","choices":[',
    "deep": '{"id":"x","prompt_text":"SECRET PROMPT","x":' + DEEP + "}",
    "nan": '{"id":"x","prompt_token_ids":["SECRET PROMPT"],"a":NaN}',
    "list": '[{"prompt":"SECRET PROMPT"}]',
    "escaped key": '[{"pr\\u006Fmpt":"SECRET PROMPT"}]',
    "a string in it": '["{\\"prompt\\": \\"SECRET PROMPT\\"}"]',
    "python": "{'instructions': 'SECRET PROMPT'}",
    "trailing": '{"id":"x"} "tools":"SECRET PROMPT"',
    "large": '{"pad":"' + PAD + '"","prompt_text":"SECRET PROMPT"}',
    "large list": '[{"pad":"' + PAD + '","prompt_text":"SECRET PROMPT"}]',
    "large, cut off": '{"pad":"' + PAD + '","prompt_text":"SECRET PROMPT"',
}


@pytest.mark.parametrize(
    ("name", "mode"),
    # What is large is not parsed: in full mode it is spliced as it is.
    [(n, m) for n in UNREADABLE for m in ("none", "settings", "full") if (n, m) != ("large", "full")],
)
def test_a_text_that_may_echo_is_withheld_and_the_record_says_so(
    name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = UNREADABLE[name]
    end = "cut" not in name
    record = capture(answer_messages([body.encode()], end=end), tmp_path, monkeypatch, CAPTURE_REQUESTS=mode)
    meta = record["_dspark"]
    assert list(record) == ["_dspark"] or mode == "full"
    assert (b"SECRET" in all_lines(tmp_path)) is (mode == "full")
    assert (meta["completed"], meta["disconnected"]) == (False, not end)
    if mode != "full":
        assert meta["body"] is None
        assert meta["error"]["code"] == "body_withheld"
        assert f"{len(body)} bytes" in meta["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        "<p>The prompt can use no tools</p>",
        '{"id":"x","choices":[],"prompt_text" : null,"prompt_token_ids":null, "too',
        '{"a":NaN,"content":"caf\\u00e9"}',
        DEEP,
    ],
)
def test_a_text_that_echoes_nothing_is_kept(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = capture(answer_messages([body.encode()]), tmp_path, monkeypatch)["_dspark"]
    assert (meta["body"], meta["error"]) == (body, None)


READABLE = {
    "twice": '{"prompt_text":"SECRET PROMPT","choices":[],"prompt_text":null}',
    "bom": '\ufeff{"id":"x","prompt_text":"SECRET PROMPT","choices":[]}',
    "large, bom": '\ufeff{"id":"x","pad":"' + PAD + '","prompt_text":"SECRET PROMPT","choices":[]}',
    "long integer": '{"id":"x","prompt_text":"SECRET PROMPT","a":' + "9" * 5_000 + "}",
    "large, escaped": '{"id":"x","pad":"' + PAD + '","prompt\\u005ftext":"SECRET PROMPT"}',
    "large, spaced": '{"p":"' + "x" * 65_500 + '","prompt_text"' + " " * 100 + ':"SECRET PROMPT","q":"' + PAD + '"}',
}


@pytest.mark.parametrize("name", READABLE)
def test_an_object_is_kept_without_its_echo_however_it_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = READABLE[name]
    with contextlib.suppress(ValueError):  # Python's json refuses the long integer
        capture(answer_messages([body.encode()]), tmp_path, monkeypatch)
    kept = body.removeprefix("\ufeff").replace('"SECRET PROMPT"', "null")
    assert all_lines(tmp_path).endswith(b'"body":null},' + kept[1:].encode() + b"\n")


def test_a_withheld_text_does_not_hide_why_the_application_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = answer_messages([UNREADABLE["cut-off"].encode()], end=False)
    meta = capture(messages, tmp_path, monkeypatch, raises=RuntimeError("SECRET PROMPT"))["_dspark"]
    assert (meta["body"], meta["error"]["code"]) == (None, "app_exception")
    assert b"SECRET" not in all_lines(tmp_path)


@pytest.mark.parametrize(
    "event",
    [
        '{"prompt_token_ids":[1,2,"SECRET PROMPT"]',
        '{"id":"a","prompt_text":"SECRET PROMPT","x":' + DEEP + ',"choices":[]}',
        '{"choices":5,"pr\\u006fmpt":"SECRET PROMPT"}',
        '{"error":{"message":"bad \'input\': \'SECRET PROMPT\'"}',
    ],
)
@pytest.mark.parametrize("mode", ["settings", "full"])
def test_a_bad_event_that_may_hold_the_request_is_only_noted(
    mode: str, event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [f"data: {event}\n\n".encode(), b"data: [DONE]\n\n"]
    messages = answer_messages(bodies, content_type=STREAM)
    error = capture(messages, tmp_path, monkeypatch, CAPTURE_REQUESTS=mode)["_dspark"]["error"]
    assert error["code"] == "bad_event"
    assert ("SECRET PROMPT" in error["message"]) is (mode == "full")
    assert (f"{len(event)} bytes" in error["message"]) is (mode != "full")


@pytest.mark.parametrize("key", sorted(ECHOED_INSIDE))
@pytest.mark.parametrize("where", ['"delta":{%s}', '"delta":{},%s', '"delta":{},"message":{%s}'])
def test_no_echo_inside_a_streams_choice_is_kept(
    key: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = '"index":0,' + where % f'"{key}":["SECRET PROMPT"]'
    bodies = [f'data: {{"id":"c","choices":[{{{choice}}}]}}\n\n'.encode(), b"data: [DONE]\n\n"]
    record = capture(answer_messages(bodies, content_type=STREAM), tmp_path, monkeypatch)
    assert b"SECRET" not in all_lines(tmp_path)
    (found,) = record["choices"]
    assert (found if key in found else found["message"])[key] is None


@pytest.mark.parametrize("mode", ["settings", "full"])
def test_what_the_hook_fails_on_is_withheld_if_it_may_hold_the_request(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # orjson reads what is nested that deeply, and nobody writes it.
    deep = "[" * 1_005 + "]" * 1_005
    event = 'data: {"id":"c","prompt":"SECRET PROMPT","choices":[{"index":0,"delta":{},"x":' + deep + "}]}\n\n"
    messages = answer_messages([event.encode(), b"data: [DONE]\n\n"], content_type=STREAM)
    meta = capture(messages, tmp_path, monkeypatch, CAPTURE_REQUESTS=mode)["_dspark"]
    assert meta["error"]["code"] == "capture_failed"
    assert (meta["body"] is None) is (mode != "full")
    assert (b"SECRET" in all_lines(tmp_path)) is (mode == "full")
