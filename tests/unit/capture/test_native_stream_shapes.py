"""Which streams are assembled natively: those whose values may be copied as they are written."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
from unit.capture.driving import RESPONSES
from unit.capture.streaming import DONE, glance, is_native, streamed


def chunk(*choices: str, **top: Any) -> bytes:
    """An event as vLLM writes it; members of ``top`` come last."""
    head = '"id":"c","object":"chat.completion.chunk","created":1,"model":"m"'
    rest = "".join(f',"{name}":{json.dumps(value)}' for name, value in top.items())
    return f'data: {{{head},"choices":[{",".join(choices)}]{rest}}}\n\n'.encode("utf-8", "surrogatepass")


def delta(fields: str, more: str = "", index: int = 0) -> bytes:
    return chunk(f'{{"index":{index},"delta":{{{fields}}},"logprobs":null,"finish_reason":null{more}}}')


def text(fields: str) -> bytes:
    return chunk(f'{{"index":0,{fields}}}')


TAKEN = {
    "nothing": [],
    "only the end": [DONE],
    "no blanks": [b'data:{"id":"x","choices":null}\n\n'],
    "comments": [b": ping\n\n", delta('"content":"a"'), b":\n", delta('"content":"b"'), b"\n\n\n", DONE],
    "escapes": [delta(f'"content":"{part}"') for part in (r"\n", r"\u00e9", r"\\", "n", r"\"", r"\/", r"\ud83d\ude00")],
    "not ASCII": [
        'data: {"id":"é","model":"日本"}\n\n'.encode(),
        delta('"content":"日本語 😀\u2028\x7f"'),
        delta('"content":"é"'),
    ],
    "fields come and go": [
        delta('"role":"assistant","content":null,"strange":null', ',"odd":null,"token_ids":[]'),
        delta('"reasoning":"r","strange":"a","n":1,"parts":[ ]', ',"odd":{"a":1},"token_ids":[1]'),
        delta('"role":"other","strange":"b","n":2.0,"parts":[[2], 3]', ',"token_ids":[2,3],"stop_reason":7'),
        delta('"parts":null,"n":null,"refusal":null', ',"odd":null,"stop_reason":"\\n"'),
    ],
    "members at the top": [
        chunk('{"index":0,"delta":{}}', usage={"a": 1}, extra=None, service_tier=None, metrics={"n": 1}),
        chunk(usage={"a": 2}, extra="first", service_tier="s", metrics=None),
        chunk(usage=None, extra="second", metrics={"n": 1.5e-7}, error=None, text=None),
    ],
    "what is echoed": [
        chunk('{"index":0,"delta":{"prompt":"secret"},"prompt_logprobs":["secret"]}', prompt_token_ids="secret"),
        chunk(
            '{"index":0,"delta":{"prompt_text":["secret"]},"prompt_text":"secret"}', prompt="secret", tools=["secret"]
        ),
    ],
    "text echoed": [text('"text":"a","prompt_token_ids":[1,2],"prompt_text":null')],
    "no index": [chunk('{"delta":{"content":"a"}}'), chunk('{"delta":{"content":"b"},"index":0}')],
    "choices in one event": [
        chunk(*(f'{{"index":{n},"delta":{{"content":"{n}"}},"finish_reason":"stop"}}' for n in (11, 2, 0)))
    ],
    "tools": [
        delta('"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g"}}]'),
        delta('"tool_calls":[{"id":"a","function":{"x":1,"name":"f","arguments":"{"},"extra":1,"index":0}]'),
        delta('"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"}","x":null}}]'),
        delta('"tool_calls":[{"index":0,"function":null},{"index":1,"function":{"arguments":"\\"a"}}]'),
        delta('"tool_calls":[{"index":1,"function":{"arguments":"b"}}]'),
        delta('"tool_calls":[{"index":1,"function":{"arguments":"c"}}]'),
    ],
    "no tools": [delta('"tool_calls":[]'), delta('"tool_calls":null')],
    "logprobs": [
        chunk('{"index":0,"delta":{},"logprobs":{"content":[{"token":"a","logprob":-1e-05,"bytes":[97]}]}}'),
        chunk('{"index":0,"delta":{},"logprobs":{"content":null,"refusal":null}}'),
        chunk('{"index":0,"delta":{},"logprobs":{"content":[{"token":"\\n","logprob":-9999.0}],"refusal":[]}}'),
    ],
    "no logprobs": [chunk('{"index":0,"delta":{},"logprobs":{}}')],
    "logprobs of texts": [
        text('"text":"a","logprobs":{"tokens":["a"],"top_logprobs":[{"a":-1,"\\n":-2.5}]}'),
        text('"text":"b","logprobs":{"tokens":["b"],"top_logprobs":[null]},"finish_reason":"length","new":[1]'),
    ],
    "texts": [text('"text":"a","stop_reason":"x"'), text('"text":null'), text('"text":"b","finish_reason":"stop"')],
    "a message that is a text": [text('"delta":{},"text":null'), text('"delta":{"content":"x"}')],
    "another name": [b'data: {"object":"something"}\n\n', b'data: {"object":"x.chunk"}\n\n'],
    "numbers": [chunk(usage=[0, -0.0, 10**17, 0.1, 1e22, -1.1920928955078125e-07])],
    "after the end": [delta('"content":"a"'), DONE, b"data: {\n\nwhatever", delta('"content":"b"')],
    "an aborted choice": [chunk('{"index":0,"delta":{},"finish_reason":"abort"}'), DONE],
    "the last reason": [
        chunk('{"index":0,"delta":{"content":"a"},"finish_reason":"abort"}'),
        chunk('{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}'),
        chunk('{"index":0,"delta":{"content":"c"},"finish_reason":null}'),
    ],
    "usage again": [
        chunk('{"index":0,"delta":{"content":"a"}}', usage={"n": 1}),
        chunk('{"index":0,"delta":{"content":"b"}}', usage={"n": 2}),
        chunk('{"index":0,"delta":{"content":"a"}}', usage={"n": 1}),
    ],
    "two texts of an event": [delta('"content":"a","reasoning":"x"'), delta('"content":"a","reasoning":"y"')],
    "one line end": [delta('"content":"a"'), delta('"content":"b"')[:-1]],
    "no line end": [delta('"content":"a"'), delta('"content":"b"')[:-2]],
    "an end without a line end": [delta('"content":"a"'), b"data: [DONE]"],
}
REFUSED = {
    "carriage returns": [delta('"content":"a"'), b"data: [DONE]\r\n\r\n"],
    "a carriage return between values": [b'data: {"id":"a",\r"model":"m"}\n\n'],
    "a carriage return in a comment": [b': ping\rdata: {"id":"a"}\n\n', delta('"content":"a"')],
    "a byte order mark": [b"\xef\xbb\xbf", delta('"content":"a"')],
    "another field": [b"event: x\n", delta('"content":"a"')],
    "two data lines": [b'data: {"id":\ndata: "x"}\n\n'],
    "a line within an event": [b'data: {"id":"x"}\n: ping\n\n'],
    "a line end in an event": [b'data: {"id":\n"x"}\n\n'],
    "a word behind the end": [b"data: [DONE]\nx"],
    "a word without a line end": [delta('"content":"a"')[:-1], b"x"],
    "invalid bytes": [delta('"content":"a"'), b'data: {"id":"\xff"}\n\n'],
    "no JSON": [delta('"content":"a"'), b"data: {]}\n\n"],
    "two values": [b'data: {"id":"a"},{"id":"b"}\n\n'],
    "no object": [b"data: 5\n\n"],
    "no data": [b"data:\n\n"],
    "an error": [chunk(error={"message": "m"})],
    "an error as it was": [b'data: {"object":"error","message":"m"}\n\n'],
    "an error in disguise": [b'data: {"object":"error.chunk","message":"m"}\n\n'],
    "an escape in a key": [b'data: {"i\\u0064":"x"}\n\n'],
    "an escape in an inner key": [chunk(usage={"\x00": 1})],
    "an escape in an id": [b'data: {"id":"\\u0041"}\n\n'],
    "a number for an id": [b'data: {"id":5}\n\n'],
    "a key twice": [b'data: {"id":"a","id":"b"}\n\n'],
    "a key twice in a choice": [text('"index":0,"text":"a"')],
    "a key twice in a delta": [delta('"content":"a","content":"b"')],
    "a key twice inside": [b'data: {"usage":{"a":[{"b":1,"b":2}]}}\n\n'],
    "half a pair": [delta(r'"content":"\ud83d"'), delta(r'"content":"\ude00"')],
    "half a pair inside": [chunk(extra=["\udc00"])],
    "a long integer": [chunk(usage=10**18)],
    "a long number": [b'data: {"usage":0.12345678901234567890123456789012}\n\n'],
    "a large exponent": [b'data: {"usage":1e400}\n\n'],
    "deep nesting": [b'data: {"usage":' + b"[" * 120 + b"]" * 120 + b"}\n\n"],
    "choices of another kind": [b'data: {"choices":{}}\n\n'],
    "a choice of another kind": [chunk("1")],
    "an index of another kind": [chunk('{"index":"0","delta":{}}')],
    "an index that is true": [chunk('{"index":true,"delta":{}}')],
    "an index that is null": [chunk('{"index":null,"delta":{}}')],
    "a delta of another kind": [chunk('{"index":0,"delta":"x"}')],
    "no delta": [chunk('{"index":0,"delta":null}')],
    "a message": [chunk('{"index":0,"delta":{},"message":{}}')],
    "a function call": [delta('"function_call":{"name":"f"}')],
    "a tool without an index": [delta('"tool_calls":[{"id":"a"}]')],
    "tools of another kind": [delta('"tool_calls":{}')],
    "arguments of another kind": [delta('"tool_calls":[{"index":0,"function":{"arguments":{}}}]')],
    "a text that becomes a list": [delta('"content":"a"'), delta('"content":["b"]')],
    "a list that becomes a number": [delta('"x":[1]'), delta('"x":1')],
    "a number that becomes a text": [delta('"x":1'), delta('"x":"a"')],
    "a reason of another kind": [chunk('{"index":0,"delta":{},"finish_reason":5}')],
    "logprobs of another kind": [chunk('{"index":0,"delta":{},"logprobs":[]}')],
    "other texts that grow": [text('"text":"a","strange":"x"')],
    "a text and a message": [text('"text":"a"'), delta('"content":"b"')],
    "more members than anybody has": [chunk(**{f"x{n}": n for n in range(70)})],
    "more members than anybody has, one by one": [chunk(**{f"x{n}": n}) for n in range(70)],
    "more choices than anybody asks for": [delta('"content":"a"', index=n) for n in range(5_000)],
}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", TAKEN)
def test_what_may_be_copied_as_it_is_written_is_assembled_natively(name: str, ended: bool) -> None:
    assert is_native(streamed(TAKEN[name], ended=ended))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_out_of_the_ordinary_goes_the_long_way(name: str) -> None:
    assert not is_native(streamed(REFUSED[name], ended=True))


def test_what_is_echoed_is_not_kept() -> None:
    seen = glance().stream(streamed(TAKEN["what is echoed"], ended=True))
    assert seen is not None
    assert b"secret" not in seen[-1]


def test_other_routes_are_not_looked_at() -> None:
    assert glance().stream(streamed([DONE], ended=True, path=RESPONSES)) is None


def test_other_threads_run_while_a_stream_is_assembled() -> None:
    """A thread gives up the interpreter in between, though nobody makes it."""
    parts = [chunk('{"index":0,"delta":{"content":"a"}}', usage={"n": n}) for n in range(1_000)] * 200
    captured = streamed(parts, ended=True)
    inside: list[bool] = []

    def work() -> None:
        inside.append(True)
        glance().stream(captured)
        inside.clear()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        # Where nothing else has the interpreter, this goes on as soon as the thread is in native code.
        seen = False
        for _ in range(5):
            thread = threading.Thread(target=work)
            thread.start()
            seen = seen or bool(inside)
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen
