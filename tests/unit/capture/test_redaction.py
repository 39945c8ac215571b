"""What an answer echoes of the request does not get into the spool (DESIGN §2 rule 8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import answer_messages, asgi_messages, capture, lines, recorded_exchanges

from dspark_json.capture.pacing import Pacer
from dspark_json.capture.redaction import ECHOED, echoes, may_echo, redact_object, redact_text

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
        ("{}", None),
    ],
)
def test_echoed_values_become_null_and_all_else_stays(text: str, expected: str | None) -> None:
    assert redacted(text) == (text if expected is None else expected)


KEYS = st.sampled_from([*sorted(ECHOED), "text", "format", "schema", "choices", "a", 'q"\\', "日"])
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
    if echoes(answer):
        assert may_echo(text.encode(), Pacer())
    redact_object(answer)
    assert found == answer
    assert not echoes(found)


def test_a_key_across_the_edge_of_a_search_piece_is_found() -> None:
    for pad in range(65_480, 65_560):
        assert may_echo(b'{"a":"' + b"x" * pad + b'","prompt_token_ids" : [1]}', Pacer())
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
