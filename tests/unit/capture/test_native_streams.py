"""Streams that are assembled natively give the record that the way through objects gives, value by value."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import CHAT, COMPLETIONS
from unit.capture.streaming import DONE, cut, glance, is_native, known_streams, record, streamed

from dspark_json.capture.assembly import TOP_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

# Cases that are not ordinary: an error, and other line ends.
NOT_ORDINARY = {"error-after-200", "comments-and-crlf"}
STREAMS = list(known_streams())
NAMES = [name for name, *_ in STREAMS]
ORDINARY = [stream for stream in STREAMS if stream[0] not in NOT_ORDINARY]


def test_there_are_streams_of_all_kinds() -> None:
    assert len(ORDINARY) > 35
    assert set(NAMES) > NOT_ORDINARY
    assert {path for _, path, *_ in ORDINARY} == {CHAT, COMPLETIONS}
    assert {ended for *_, ended in ORDINARY} == {True, False}


@pytest.mark.parametrize(("name", "path", "parts", "ended"), STREAMS, ids=NAMES)
def test_recorded_streams_are_assembled_natively(name: str, path: str, parts: list[bytes], ended: bool) -> None:
    assert is_native(streamed(parts, ended=ended, path=path)) is (name not in NOT_ORDINARY)


@pytest.mark.parametrize(("name", "path", "parts", "ended"), STREAMS, ids=NAMES)
def test_how_a_stream_is_cut_into_messages_makes_no_difference(
    name: str, path: str, parts: list[bytes], ended: bool
) -> None:
    whole = b"".join(parts)
    cuts = [[whole], [b"".join(parts[i : i + 2]) for i in range(0, len(parts), 2)]]
    cuts += ([whole[i : i + size] for i in range(0, len(whole), size)] for size in (1, 7, 1000))
    expected = record(streamed(parts, ended=ended, path=path), None)
    for pieces in cuts:
        captured = streamed(pieces, ended=ended, path=path)
        assert record(captured, glance()) == expected
        assert (glance().stream(captured) is not None) is (name not in NOT_ORDINARY)


@pytest.mark.parametrize(("name", "path", "parts", "ended"), STREAMS, ids=NAMES)
def test_a_stream_cut_off_is_assembled_natively_wherever_it_stops(
    name: str, path: str, parts: list[bytes], ended: bool
) -> None:
    events = b"".join(parts).split(b"\n\n")
    if len(events) > 8:
        events = [*events[:4], *events[-4:]]
    whole = b"\n\n".join(events)
    for place in range(0, len(whole), 3):
        head = whole[:place]
        if not is_native(streamed([head], ended=False, path=path)):
            # What ends with a brace that closes may be an event or only a part of one.
            assert name in NOT_ORDINARY or head.rpartition(b"\n")[2].endswith(b"}")
        is_native(streamed([head], ended=True, path=path))


WORDS = ["", "a", " b", '"', "\\", "\n", "\x00", "é", "😀", "日本", "\u2028", "{", "}", "data: {", "\n\n", "[DONE]"]
NUMBERS = st.one_of(st.integers(-(10**17), 10**17), st.floats(-1e9, 1e9).filter(lambda x: "e" not in repr(x)))
# Stands for another word in each event that is written from the same chunk.
ANY = "WORD"
TEXTS = st.just(ANY) | st.sampled_from(WORDS)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=5
)
TOKENS = st.none() | st.lists(st.integers(0, 9), max_size=3)
LOGPROBS = st.none() | st.fixed_dictionaries({"content": st.none() | st.lists(VALUES, max_size=2)})
TOOL = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={
        "id": st.none() | st.sampled_from("xy"),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {}, optional={"name": st.none() | st.sampled_from("fg"), "arguments": st.none() | TEXTS}
        ),
        "extra": VALUES,
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from([None, "assistant"]),
        "content": st.none() | TEXTS,
        "reasoning": st.none() | TEXTS,
        "tool_calls": st.none() | st.lists(TOOL, max_size=2),
        "new_text": TEXTS,
        "new_list": st.lists(VALUES, max_size=2),
        "new_number": NUMBERS,
    },
)
ENDS = {
    "logprobs": LOGPROBS,
    "finish_reason": st.sampled_from([None, "stop", "length", "abort"]),
    "stop_reason": st.sampled_from([None, 7, "\n"]),
    "token_ids": TOKENS,
    "prompt_token_ids": TOKENS,
}
CHOICES = st.fixed_dictionaries({"index": st.integers(0, 2), "delta": DELTAS}, optional={**ENDS, "odd": NUMBERS})
TEXT_CHOICES = st.fixed_dictionaries({"index": st.integers(0, 2), "text": st.none() | TEXTS}, optional=ENDS)


def chunks_of(choices: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    members = {
        "id": st.none() | st.sampled_from("cd"),
        "object": st.sampled_from([None, "chat.completion.chunk", "text_completion"]),
        "created": NUMBERS,
        "model": st.none() | st.sampled_from("mn"),
        "choices": st.none() | st.lists(choices, max_size=2),
        "usage": VALUES,
        "metrics": VALUES,
        "system_fingerprint": st.none() | TEXTS,
        "prompt_token_ids": TOKENS,
        "tools": VALUES,
        "new": VALUES,
        "error": st.none(),
    }
    return st.permutations(list(members)).flatmap(
        lambda names: st.fixed_dictionaries({}, optional={name: members[name] for name in names})
    )


WRITERS: list[Callable[[Any], str]] = [json.dumps, partial(json.dumps, ensure_ascii=False, separators=(",", ":"))]


@st.composite
def ordinary_streams(draw: st.DrawFn) -> bytes:
    """Chunks of one route; most come several times, with other words."""
    kinds = draw(st.lists(chunks_of(draw(st.sampled_from([CHOICES, TEXT_CHOICES]))), min_size=1, max_size=5))
    write = draw(st.sampled_from(WRITERS))
    order = draw(st.lists(st.sampled_from(kinds), max_size=12))
    words = draw(st.lists(st.sampled_from(WORDS), min_size=len(order), max_size=len(order)))
    if not any(kind.get("choices") for kind in order):  # what has no choices, and something else, may be an error
        order = [{key: value for key, value in kind.items() if key in TOP_ORDER} for kind in order]
    texts = [write(kind).replace(ANY, write(word)[1:-1]) for kind, word in zip(order, words, strict=True)]
    events = [f"data: {text}\n\n".encode() for text in texts]
    if draw(st.booleans()):
        events.append(DONE)
    return b"".join(events)


CUTS = st.sets(st.integers(0, 2_000), max_size=20)


@settings(max_examples=300, deadline=None)
@given(ordinary_streams(), CUTS, st.booleans())
def test_ordinary_streams_are_assembled_natively(stream: bytes, places: set[int], ended: bool) -> None:
    assert is_native(streamed(cut(stream, places), ended=ended))


PIECES = [
    *(piece.encode() for piece in '{}[],:" \n\\'),
    b"\n\n", b"\r", b"data: ", b"data: [DONE]\n\n", b": c\n", b"\xff", b"\xf0\x9f", b"null", b"true", b"1", b"-0",
    b"1e5", b"1e400", b"12345678901234567890", b'"a"', b'"error":1,', b'"id"', b'"delta"', b'"content"', b'"index"',
    b'"text"', b'"tool_calls":[{}],', b'"prompt":1,', b'"message":{},', b"\\u00e9",
    b"\\ud83d", b"\\ude00", b"{}}\n\n", b'"stop"',
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.one_of(ordinary_streams(), st.sampled_from([b"".join(parts[:12]) for _, _, parts, _ in ORDINARY])), st.data())
def test_broken_and_changed_streams_give_the_same_record(stream: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(stream)))
        end = min(len(stream), start + data.draw(st.integers(0, 8)))
        stream = stream[:start] + data.draw(st.sampled_from([b"", *PIECES])) + stream[end:]
    for ended in (True, False):
        is_native(streamed(cut(stream, data.draw(CUTS)), ended=ended))
