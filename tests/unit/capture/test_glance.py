"""A glance tells the same of a request and of its answer as the way that knows all cases, or nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import CHAT, corpus_cases, recorded_exchanges

from dspark_json.capture.captured import Captured
from dspark_json.capture.glance import Glance
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.recording import Recording, make_recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.settings import RequestCapture
    from dspark_json.schema.requested import RequestedSchemas

FORMAT = '{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","b":[1]}}}'
REQUESTS = [
    "{}",
    '{"model":"m","stream":false,"seed":1,"n":2,"temperature":0.50,"stop":["a","b"],"messages":[{"content":"\\u00e9"}]}',
    '{"response_format":' + FORMAT + ',"model":"m","max_tokens":5}',
    '{"response_format":{"type":"text"},"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}',
    '{"response_format":{"type":"json_object"},"guided_json":null,"structured_outputs":null,"text":null,"echo":false}',
    '{"response_format":{"type":"json_object","json_schema":null},"model":"m"}',
    '{"response_format":null,"structured_outputs":{"json":{"title":"t","a":{"title":1}}},"guided_json":{"b":1}}',
    '{"response_format":{"type":"json_object"},"structured_outputs":{"json_object":true,"json":null,"choice":["a"]}}',
    '{"response_format":' + FORMAT + ',"structured_outputs":{"json":{}},"guided_json":{"title":"\\u0061"}}',
    '{"tools":[{"function":{"name":"f","strict":true,"parameters":{"type":"object"}}}],"echo":true}',
]
ANSWERS = [
    '{"id":"c","object":"chat.completion","model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}',
    ' {"choices":[{"finish_reason":"length","prompt_text":null},{"finish_reason":null}],"x":"\\ud800"} ',
    '{"choices":[{"finish_reason":"abort"}],"id":null,"usage":{"a":1e400}}',
    '{"choices":[{"message":{"prompt_text":"p"},"finish_reason":"stop"}],"id":"\u00e9"}',
    '{"object":"error","message":"m"}',
    '{"choices":[{"message":{"tool_calls":[{"error":"sk","function":{"arguments":{"details":"sk"}}}]}}],"x":{"error":"sk"}}',
    '{"choices":[{"extra":{"detail":"sk"},"message":{"parsed":{"details":"sk"}},"logprobs":{"error":{"input":"q"}}}]}',
    '{"choices":[{"error":"sk","message":{"content":"sk"}}]}',
    '{"choices":[{"message":{"content":"sk","warnings":["sk"]}}]}',
    '{"choices":[{}],"message":"sk","usage":{"error":"sk"}}',
    "{}",
    "null",
]


class Schemas:
    """Notes what is to be registered, as parsed JSON."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, requested: RequestedSchemas, at_us: int) -> None:
        content = requested.content
        if content is not None and isinstance(content.schema, orjson.Fragment):
            schema = json.loads(orjson.dumps(content.schema))
            requested = requested._replace(content=content._replace(schema=schema))
        self.seen.append((requested, at_us))


def captured(request: bytes, body: bytes) -> Captured:
    headers = [(b"content-type", b"application/json")]
    return Captured(CHAT, [], 7, [request], len(request), 200, headers, [body], len(body), None, 1.0, 2.0, ended=True)


def facts(recording: Recording) -> tuple[Any, ...]:
    meta = json.loads(b"{" + recording.record.meta + b"}")
    return meta, recording.record.body, recording.failed, recording.disconnected, recording.untyped_model


def assert_same(glance: Glance, given: Captured, mode: RequestCapture) -> None:
    plain, glanced = Schemas(), Schemas()
    expected = make_recording(given, mode, Pacer(), plain)
    found = make_recording(given, mode, Pacer(), glanced, glance=glance)
    assert facts(found) == facts(expected)
    assert glanced.seen == plain.seen


def loaded(mode: RequestCapture) -> Glance:
    glance = Glance.load(mode)
    assert glance is not None
    return glance


def exchanges() -> Iterator[tuple[bytes, bytes]]:
    for exchange in recorded_exchanges():
        bodies = [m["body"].encode() for m in exchange["messages"] if m["type"] != "start"]
        yield json.dumps(exchange["request"]).encode(), b"".join(bodies)
    for case in corpus_cases():
        for text in (json.dumps(case), json.dumps(case, separators=(",", ":"), ensure_ascii=False)):
            yield text.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
    for request in REQUESTS:
        for answer in ANSWERS:
            yield request.encode(), answer.encode()


@pytest.mark.parametrize("mode", ["settings", "none"])
def test_real_and_odd_exchanges_are_seen_alike(mode: RequestCapture) -> None:
    glance = loaded(mode)
    count = 0
    for request, body in exchanges():
        given = captured(request, body)
        assert_same(glance, given, mode)
        count += glance.request(given) is not None and glance.answer(given) is not None
    assert count > 20, "most exchanges are ordinary"


PIECES = [
    *'{}[],:" \n',
    "null",
    "true",
    "1",
    "-0",
    "1e5",
    '"a"',
    '"error"',
    '"stop"',
    '"id"',
    '"prompt":1,',
    "\\",
    "\\u00e9",
]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_broken_and_changed_texts_are_seen_alike(data: st.DataObject) -> None:
    texts = []
    for known in (REQUESTS, ANSWERS):
        text = data.draw(st.sampled_from(known))
        for _ in range(data.draw(st.integers(0, 2))):
            start = data.draw(st.integers(0, len(text)))
            end = min(len(text), start + data.draw(st.integers(0, 8)))
            text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
        texts.append(text.encode())
    assert_same(loaded("settings"), captured(*texts), "settings")


def test_exchanges_that_are_kept_whole_are_not_glanced_at() -> None:
    given = captured(REQUESTS[0].encode(), ANSWERS[0].encode())
    for mode in ("settings", "full"):
        glance = loaded(mode)
        seen = (glance.request(given), glance.answer(given), *glance.drafts([given])[0])
        assert [one is None for one in seen] == [mode == "full"] * 3
