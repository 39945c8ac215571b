"""What is drafted of a group of exchanges natively is what the way that knows all cases makes of each of them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    corpus_cases,
    recorded_exchanges,
    recorded_messages,
    spec_decode_exchanges,
)

from dspark_json.capture.captured import Captured, is_event_stream
from dspark_json.capture.glance import Glance
from dspark_json.capture.making import RecordMaker
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.recording import make_recording
from dspark_json.capture.settings import HookSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark_json.capture.recording import Recording
    from dspark_json.capture.registration import SchemaReference
    from dspark_json.schema.requested import RequestedSchemas

FORMAT = b'"response_format":{"type":"json_schema","json_schema":{"name":"%s","schema":{"type":"object"}}}'
ANSWER = (
    b'{"id":"c","object":"chat.completion","model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'
)
JSON = [(b"content-type", b"application/json")]
STREAM = [(b"content-type", b" Text/Event-Stream; charset=utf-8")]
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":%s}]}\n\n'
EVENTS = [
    *(CHUNK % delta for delta in (b'{"content":""}', b'{"content":"x"}', b'{},"finish_reason":"stop"')),
    b"data: [DONE]\n\n",
]


class Registrar:
    """Refers to a schema by its name, and notes how often and when each was asked for."""

    def __init__(self) -> None:
        self.uses: dict[str | None, tuple[int, int]] = {}

    def register(self, requested: RequestedSchemas, at_us: int, times: int = 1) -> SchemaReference | None:
        content = requested.content
        if content is None:
            return None
        count, last = self.uses.get(content.name, (0, 0))
        self.uses[content.name] = count + times, max(last, at_us)
        return {"name": content.name, "hash": json.dumps(orjson.loads(orjson.dumps(content.schema)))}


def fail() -> None:
    raise AssertionError("an exception was noted")


def made(group: Sequence[Captured], mode: str = "settings") -> tuple[list[Recording], Registrar]:
    """The records that the writer thread makes of a group."""
    registrar = Registrar()
    hook = HookSettings.from_environment({"DSPARK_CAPTURE_REQUESTS": mode})
    return RecordMaker(hook, registrar, Pacer(), fail).make(group), registrar  # type: ignore[arg-type]


def drafted(captured: Captured, mode: str = "settings") -> bool:
    glance = Glance.load(mode)  # type: ignore[arg-type]
    assert glance is not None
    return isinstance(glance.drafts([captured])[0][0], tuple)


class Watched:
    """The native glance, and what of it was called."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._native, name)


def values(members: bytes) -> object:
    """Members with their order; assembled ones may have other blanks."""
    try:
        return json.loads(b"{" + members + b"}", object_pairs_hook=list)
    except ValueError:
        return members


def facts(recording: Recording) -> tuple[Any, ...]:
    return (
        values(recording.record.meta),
        values(recording.record.body),
        recording.failed,
        recording.disconnected,
        recording.untyped_model,
    )


def assert_same(group: Sequence[Captured], mode: str = "settings") -> None:
    found, registrar = made(group, mode)
    plain = Registrar()
    for captured, recording in zip(group, found, strict=True):
        expected = make_recording(captured, mode, Pacer(), plain.register)  # type: ignore[arg-type]
        assert facts(recording) == facts(expected)
    assert registrar.uses == plain.uses


def chat(request: bytes | list[bytes] = b"{}", body: bytes | list[bytes] = ANSWER, **other: Any) -> Captured:
    asked = [request] if isinstance(request, bytes) else request
    told = [body] if isinstance(body, bytes) else body
    sizes = sum(map(len, asked)), sum(map(len, told))
    whole = Captured(CHAT, [], 7, asked, sizes[0], 200, JSON, told, sizes[1], None, 1.5, 2.0, ended=True)
    return dataclasses.replace(whole, **other)


def recorded() -> Iterator[Captured]:
    for exchange in (*recorded_exchanges(), *spec_decode_exchanges()):
        start, *bodies = recorded_messages(exchange)
        request = exchange.get("request")
        text = request.encode() if isinstance(request, str) else json.dumps(request).encode()
        parts = [message["body"] for message in bodies if message["body"]]
        yield chat(
            text,
            path=exchange["path"],
            status=start["status"],
            headers=start["headers"],
            body=parts,
        )


@pytest.mark.parametrize("mode", ["settings", "none", "full"])
def test_recordings_of_a_server_give_the_same_records_in_a_group_as_alone(mode: str) -> None:
    assert_same(list(recorded()), mode)


def test_what_a_server_answers_ordinary_requests_with_is_drafted() -> None:
    odd = (
        b"json_object",
        b"structured_outputs",
        b"guided_json",
        b'"strict": true',
        b"prompt_logprobs",
        b"return_token",
    )
    plain = [
        captured
        for captured in recorded()
        if captured.path != RESPONSES
        and captured.status == 200
        and not any(word in captured.request[0] for word in odd)  # type: ignore[index]
        and captured.body != [b"null"]
    ]
    assert {is_event_stream(captured.headers) for captured in plain} == {True, False}
    assert [captured for captured in plain if not drafted(captured)] == []


@pytest.mark.parametrize("mode", ["settings", "none", "full"])
def test_cases_of_the_corpus_give_the_same_records_in_a_group_as_alone(mode: str) -> None:
    group = []
    for case in corpus_cases():
        if "chunks" in case:
            parts = [chunk.encode() for chunk in case["chunks"]]
        else:
            parts = [chunk.encode("latin-1") for chunk in case["chunks_latin1"]]
        headers = [(b"content-type", case["content_type"].encode())]
        request = json.dumps(case["request"]).encode()
        given = {"path": case["path"], "status": case["status"], "headers": headers}
        group += [chat(request, parts, **given), chat(request, b"".join(parts), **given)]
    texts = (b"", b"null", b"[", b"\xff", b'{"a":1}', b'\xef\xbb\xbf{"a":1}', ANSWER + b"\n")
    group += [chat(body=body) for body in texts]
    assert_same(group, mode)


ORDINARY = {
    "chat": chat(),
    "completion": chat(path=COMPLETIONS),
    "left": chat(ended=False),
    "no times": chat(first_byte_ms=None, duration_ms=None),
    "small times": chat(first_byte_ms=0.001, duration_ms=1e9),
    "id of the request": chat(
        request_headers=[(b"X-Request-Id", b'a\xe9"\\\x01')], headers=[*JSON, (b"x-request-id", b"b")]
    ),
    "id of the answer": chat(request_headers=[(b"x-request-id", b"")], headers=[*JSON, (b"X-REQUEST-ID", b"b")]),
    "headers in tuples": chat(request_headers=((b"x-request-id", b"t"),), headers=tuple(JSON)),
    "no kind of content": chat(headers=[]),
    "stream": chat(b'{"stream":true}', EVENTS, headers=STREAM),
    "stream that was left": chat(b'{"stream":true}', EVENTS[:2], headers=STREAM, ended=False),
    "stream with its end, left": chat(b'{"stream":true}', EVENTS, headers=STREAM, ended=False),
    "cut anywhere": chat(request=[b'{"mo', b'del":"r"}'], body=[ANSWER[:9], ANSWER[9:]]),
    "settings": chat(b'{"temperature":0.50,"model":"asked","stream":false}'),
    "a schema": chat(b"{" + FORMAT % b"a" + b"}"),
    "a schema with a title": chat(b'{"structured_outputs":{"json":{"title":"t"}}}'),
    "any JSON": chat(b'{"model":"m","response_format":{"type":"json_object"}}'),
    "any JSON of no model": chat(b'{"response_format":{"type":"json_object"}}'),
}
ODD = {
    "status": chat(status=400),
    "no status": chat(status=None, body=[]),
    "bytes that are missing": chat(missing="record_too_large", body=[]),
    "an exception": chat(raised="ValueError"),
    "an id of its own": chat(request_id="x"),
    "responses": chat(path=RESPONSES),
    "no path": chat(path=None),
    "a request that was not kept": dataclasses.replace(chat(), request=None),
    "a large request": chat(b'{"a":"' + b"x" * (256 << 10) + b'"}'),
    "a large answer": chat(body=[b'{"a":"' + b"x" * (256 << 10) + b'"}']),
    "an error": chat(body=[b'{"error":{"message":"m"}}']),
    "headers of another shape": chat(headers=[[b"content-type", b"application/json"]]),
    "echo": chat(b'{"echo":true}'),
    "a stream that tells an error": chat(body=[EVENTS[0], b'data: {"error":{"message":"m"}}\n\n'], headers=STREAM),
    "a stream of another kind": chat(body=[b"event: x\ndata: 1\n\n"], headers=STREAM),
    "a large stream": chat(body=[EVENTS[1]] * 100_000, headers=STREAM),
}


@pytest.mark.parametrize("mode", ["settings", "none"])
@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_exchange_is_drafted(name: str, mode: str) -> None:
    assert drafted(ORDINARY[name], mode)
    assert_same([ORDINARY[name]], mode)


@pytest.mark.parametrize("mode", ["settings", "none"])
@pytest.mark.parametrize("name", ODD)
def test_what_is_out_of_the_ordinary_goes_the_long_way(name: str, mode: str) -> None:
    assert not drafted(ODD[name], mode)
    assert_same([ODD[name]], mode)


def test_each_schema_of_a_group_is_registered_once_with_all_its_uses() -> None:
    names = [b"a", b"b", b"a", b"a"]
    group = [chat(b"{" + FORMAT % name + b"}", received_at=at) for at, name in enumerate(names)]
    _, registrar = made(group)
    assert registrar.uses == {"a": (3, 3), "b": (1, 1)}
    assert_same([*group[:2], *ODD.values(), *group[2:]])
    assert made(group, "none")[1].uses == {}


def test_a_large_group_is_the_same_as_a_small_one() -> None:
    many = [chat(b"{" + FORMAT % b"a" + b"}") for _ in range(1_000)]
    assert sum(captured.size for captured in many) > 64 << 10
    assert_same([*many, *ORDINARY.values(), *ODD.values()])


header = st.tuples(st.sampled_from([b"x-request-id", b"X-Request-ID", b"content-type", b"x"]), st.binary(max_size=9))
text = st.one_of(st.sampled_from([b"{}", ANSWER, b'{"stream":true,"n":2}']), st.binary(max_size=30))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda request, body, asked, answered, ended, at: chat(
                request, body, request_headers=asked, headers=answered, ended=ended, received_at=at
            ),
            text,
            text,
            st.lists(header, max_size=3),
            st.lists(header, max_size=3),
            st.booleans(),
            st.integers(0, 2**63 - 1),
        ),
        max_size=4,
    )
)
def test_any_exchanges_give_the_same_records_in_a_group_as_alone(group: list[Captured]) -> None:
    assert_same(group)


STRICT = b'{"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}]}'
ODD_ANSWER = b'{"id":"c","error":{"message":"x"},"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    ("captured", "odd", "calls"),
    [
        (chat, tuple, []),
        (lambda: chat(STRICT), "request", ["answer"]),
        (lambda: chat(STRICT, ODD_ANSWER), "request", ["answer"]),
        (lambda: chat(b"{}", ODD_ANSWER), "answer", ["request"]),
        (lambda: chat(STRICT, EVENTS, headers=STREAM), "request", ["stream"]),
        (lambda: chat(b"{}", [*EVENTS[:2], b"event: odd\n\n", *EVENTS[2:]], headers=STREAM), "answer", ["request"]),
        (lambda: chat(b"{", ANSWER), "request", ["answer"]),
        (lambda: chat(b"{}", ANSWER, status=400), None, ["request"]),
        (lambda: chat(b"{}", ANSWER, raised="Error"), None, ["request", "answer"]),
    ],
)
def test_no_half_of_an_exchange_that_is_out_of_the_ordinary_is_looked_at_twice(
    captured: Any, odd: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = HookSettings.from_environment({})
    maker = RecordMaker(hook, Registrar(), Pacer(), fail)  # type: ignore[arg-type]
    glance = maker._glance
    assert glance is not None
    found = glance.drafts([captured()])[0][0]
    assert isinstance(found, tuple) if odd is tuple else found == odd
    watched = Watched(glance._native)
    monkeypatch.setattr(glance, "_native", watched)
    maker.make([captured()])
    assert watched.calls == ["drafts", *calls]
    assert_same([captured()])
