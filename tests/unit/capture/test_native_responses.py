"""Native code makes of a response the same record as the way that knows all cases, or leaves it to that way."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import (
    RESPONSES,
    corpus_cases,
    event,
    recorded_exchanges,
    recorded_messages,
    spec_decode_exchanges,
)

from dspark_json.capture.captured import Captured
from dspark_json.capture.glance import Glance
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.recording import Recording, make_recording
from dspark_json.capture.redaction import ECHOED, ECHOED_IN_OUTPUT
from dspark_json.capture.responses import choices_member

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json.capture.settings import RequestCapture

Json = dict[str, Any]
MODES: list[RequestCapture] = ["none", "settings", "full"]
STREAM = "text/event-stream; charset=utf-8"


def glance_for(mode: RequestCapture) -> Glance:
    glance = Glance.load(mode)
    assert glance is not None
    return glance


GLANCES = {mode: glance_for(mode) for mode in MODES}


def captured(bodies: Sequence[bytes], *, status: int = 200, kind: str = "application/json") -> Captured:
    headers, size = [(b"content-type", kind.encode())], sum(map(len, bodies))
    request = b'{"model":"m"}'
    return Captured(
        RESPONSES, [], 7, [request], len(request), status, headers, [*bodies], size, None, 1.0, 2.0, ended=True
    )


def pairs(text: bytes) -> Any:
    """A JSON value with the order and the repetitions of its members."""
    return json.loads(text, object_pairs_hook=tuple, parse_int=float)


def facts(recording: Recording) -> tuple[Any, ...]:
    meta, members = recording.record
    assert b"\n" not in members
    assert b"\r" not in members
    return json.loads(b"{" + meta + b"}"), pairs(b"{" + members + b"}"), recording.failed, recording.disconnected


def record_of(given: Captured, mode: RequestCapture, glance: Glance | None = None) -> Recording:
    return make_recording(given, mode, Pacer(), lambda *_: None, glance=glance)


def is_taken(given: Captured, mode: RequestCapture) -> bool:
    """Whether native code takes the answer, whose record is asserted to be the same either way."""
    streamed = given.headers[0][1].startswith(b"text/event-stream")
    glance = GLANCES[mode]
    assert facts(record_of(given, mode, glance)) == facts(record_of(given, mode))
    return glance.response(given, streamed=streamed) is not None


def is_taken_whole_cut_and_streamed(text: str, mode: RequestCapture) -> bool:
    whole = text.encode("utf-8", "surrogatepass")
    taken = is_taken(captured([whole]), mode)
    middle = len(whole) // 2
    assert is_taken(captured([whole[:middle], b"", whole[middle:]]), mode) is taken
    if not {"\n", "\r"} & set(text):
        last = b'event: response.completed\ndata: {"response":%s,"sequence_number":1,"type":"response.completed"}\n\n'
        assert is_taken(captured([CREATED, last % whole], kind=STREAM), mode) is taken
    return taken


CREATED = event("response.created", response={"id": "r", "status": "in_progress", "output": []}, sequence_number=0)


# -- what was recorded -----------------------------------------------------------------------------------------------


def exchanges() -> list[tuple[str, Captured]]:
    """Answers of real servers and of the corpus, with their names."""
    found = []
    for number, exchange in enumerate((*recorded_exchanges(), *spec_decode_exchanges(), *corpus_cases())):
        if exchange["path"] == RESPONSES:
            start, *rest = recorded_messages(exchange) if "id" not in exchange else case_messages(exchange)
            kind = dict(start["headers"])[b"content-type"].decode()
            bodies = [message["body"] for message in rest]
            found.append(
                (exchange.get("id", f"recorded-{number}"), captured(bodies, status=start["status"], kind=kind))
            )
    return found


def case_messages(case: Json) -> list[Json]:
    start = {"status": case["status"], "headers": [(b"content-type", case["content_type"].encode())]}
    return [start, *({"body": chunk.encode()} for chunk in case["chunks"])]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_recorded_whole_and_without_an_error_is_taken(mode: RequestCapture) -> None:
    taken = {name: is_taken(given, mode) for name, given in exchanges()}
    completed = {name: facts(record_of(given, mode))[0]["completed"] for name, given in exchanges()}
    assert taken == completed
    assert sum(taken.values()) >= 8
    assert sorted(taken.values())[:2] == [False, False]


# -- ordinary responses ----------------------------------------------------------------------------------------------

WORDS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
LOGPROBS = st.floats(-20, 0, width=32)
TOKENS = st.fixed_dictionaries(
    {"token": WORDS, "logprob": LOGPROBS},
    optional={"bytes": st.none() | st.lists(st.integers(0, 255), max_size=3), "top_logprobs": st.lists(
        st.fixed_dictionaries({"token": WORDS, "logprob": LOGPROBS}), max_size=2)},
)  # fmt: skip
PARTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("output_text"), "text": WORDS, "annotations": st.lists(VALUES, max_size=2)},
        optional={"logprobs": st.none() | st.lists(TOKENS, max_size=2)},
    ),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": WORDS}),
    st.fixed_dictionaries({"text": WORDS, "type": st.just("reasoning_text")}),
)
LISTS_OF_PARTS = st.none() | st.lists(PARTS, max_size=3)
ORDINARY_ITEMS = st.one_of(
    st.fixed_dictionaries(
        {"id": WORDS, "content": LISTS_OF_PARTS, "role": st.just("assistant"), "type": st.just("message")},
        optional={"phase": st.sampled_from([None, "commentary", "final_answer"]), "status": WORDS},
    ),
    st.fixed_dictionaries(
        {"arguments": WORDS, "call_id": WORDS, "name": WORDS, "type": st.just("function_call"), "id": st.none() | WORDS}
    ),
    st.fixed_dictionaries(
        {"id": WORDS, "summary": LISTS_OF_PARTS, "type": st.just("reasoning")},
        optional={"content": LISTS_OF_PARTS, "encrypted_content": st.none() | WORDS},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["web_search_call", "mcp_call", "mcp_list_tools", "code_interpreter_call", "new"])},
        optional={
            "action": VALUES,
            "arguments": VALUES,
            "tools": VALUES,
            "outputs": VALUES,
            "encrypted_content": VALUES,
        },
    ),
)
ORDINARY = st.fixed_dictionaries(
    {"status": st.sampled_from(["completed", "incomplete", "failed", "cancelled", "queued", "in_progress"])},
    optional={
        "id": st.none() | st.just("resp_1"),
        "model": st.none() | st.just("m/1"),
        "object": st.just("response"),
        "incomplete_details": st.sampled_from([None, {}, {"reason": "max_output_tokens"}, {"reason": "x", "a": 1}]),
        "error": st.none(),
        "metadata": VALUES,
        "text": st.sampled_from(
            [None, {}, {"format": None}, {"format": {"type": "json_schema", "schema": {"a": [1]}}}]
        ),
        **dict.fromkeys(sorted(ECHOED), VALUES),
    },
)
# The ways that servers write JSON.
WRITERS: list[Callable[[Any], str]] = [
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, indent=1),
    lambda value: " \r\n" + json.dumps(value, indent="\t").replace("\n", "\r\n") + "\n",
]


@settings(max_examples=300, deadline=None)
@given(ORDINARY, st.lists(ORDINARY_ITEMS, max_size=4), st.sampled_from(WRITERS), st.sampled_from(MODES), st.data())
def test_an_ordinary_response_is_taken(
    response: Json, output: list[Json], write: Callable[[Any], str], mode: RequestCapture, data: st.DataObject
) -> None:
    members = data.draw(st.permutations([*response.items(), ("output", output)]))
    text = write(dict(members))
    assert is_taken_whole_cut_and_streamed(text, mode)
    _, _, _, found = GLANCES[mode].response(captured([text.encode()]), streamed=False) or (None, None, None, b"")
    choices, *rest = pairs(b"{" + found + b"}")
    assert (choices,) == pairs(b"{" + choices_member(json.loads(text)) + b"}")
    if mode == "full":
        assert (*rest,) == pairs(text.encode())
    else:
        assert all(value is None for key, value in rest if key in ECHOED)


# -- hostile ones ----------------------------------------------------------------------------------------------------

KEYS = [
    *ECHOED, *ECHOED_IN_OUTPUT, "text", "format", "schema", "choices", "message", "output", "status", "error", "object",
    "id", "model", "type", "content", "summary", "phase", "refusal", "logprobs", "call_id", "name", "arguments",
    "incomplete_details", "reason", "x", "te\\u0078t", "out\\u0070ut", "tools\\u0000", "pr\\u006fmpt", "\u00e9",
]  # fmt: skip
STRINGS = [
    "completed", "incomplete", "failed", "message", "function_call", "reasoning", "commentary", "error", "",
    "max_output_tokens", "\\ud83d", "\\ude00", "\\ud83d\\ude00", "\\\\ud83d", "\u00e9", "\\u00e9", 'a\\"b', "\\n",
    '\\"tools\\":1', "SECRET", "\U0001f600",
]  # fmt: skip
SCALARS = st.sampled_from(
    ["null", "true", "1", "-0", "1e5", "-0.012345678901234567", "123456789012345678901", "[]", "{}"]
) | st.sampled_from(STRINGS).map('"{}"'.format)
BLANKS = st.sampled_from(["", "", "", " ", "\n", "\r\n"])


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str], keys: Sequence[str] = KEYS) -> str:
    """An object's text, whose names may come twice."""
    names = draw(st.lists(st.sampled_from(keys), max_size=4))
    return "{" + ",".join(f'{draw(BLANKS)}"{name}"{draw(BLANKS)}:{draw(values)}' for name in names) + draw(BLANKS) + "}"


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda texts: "[" + ",".join(texts) + "]")


def mostly(usual: st.SearchStrategy[str], odd: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 9).flatmap(lambda number: odd if number == 9 else usual)


ANY = st.recursive(SCALARS, lambda inner: lists(inner) | objects(inner), max_leaves=6)
HARMLESS = st.recursive(SCALARS, lambda inner: lists(inner) | objects(inner, [*ECHOED, "schema", "x"]), max_leaves=4)
TEXTS = st.sampled_from(STRINGS).map('"{}"'.format)
ODD_PARTS = lists(
    mostly(
        st.builds('{{"text":{},"logprobs":{}}}'.format, mostly(TEXTS, ANY), mostly(lists(HARMLESS), ANY))
        | objects(TEXTS, ["text", "refusal", "type", "x"]),
        objects(ANY, ["text", "refusal", "logprobs", "type", "text\\u0000"]) | ANY,
    )
)
ODD_ITEMS = lists(
    mostly(
        st.builds(
            '{{"type":"{}","{}":{},{}'.format,
            st.sampled_from(["message", "message", "reasoning", "new"]),
            st.sampled_from(["content", "content", "summary"]),
            ODD_PARTS,
            mostly(objects(HARMLESS, [*ECHOED_IN_OUTPUT, "x", "name"]), objects(ANY)).map(lambda text: text[1:]),
        )
        | st.builds('{{"call_id":{},"name":{},"type":"function_call"}}'.format, mostly(TEXTS, ANY), mostly(TEXTS, ANY)),
        ANY,
    ).map(lambda item: item.replace(",}", "}"))
)
STATUSES = st.sampled_from(["completed", "incomplete", "queued"]).map(json.dumps)
MEMBERS = mostly(
    objects(HARMLESS, [*ECHOED, "metadata", "schema"])
    | st.builds('{{"text":{{"format":{},"x":{}}}}}'.format, objects(HARMLESS, ["schema", "type"]), HARMLESS),
    objects(ANY),
)


@st.composite
def odd_responses(draw: st.DrawFn) -> str:
    members = [
        f'"status":{draw(mostly(STATUSES, SCALARS))}',
        f'"output":{draw(mostly(ODD_ITEMS, ANY))}',
        *(text[1:-1] for text in draw(st.lists(MEMBERS, max_size=2)) if ":" in text),
    ]
    text = "{" + ",".join(draw(st.permutations(members))) + "}"
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 4)))
        piece = st.sampled_from(["", *'{}[],:"\\ \n', "null", '"x":1,', "\ufeff", "\ud800", "\x00"])
        text = text[:start] + draw(piece) + text[end:]
    return text


@settings(max_examples=600, deadline=None)
@given(odd_responses(), st.sampled_from(MODES))
def test_a_hostile_response_is_recorded_alike(text: str, mode: RequestCapture) -> None:
    is_taken_whole_cut_and_streamed(text, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("logprobs", "taken"),
    [
        ("[-0.0123456789012345678]", True),
        ("[1e400]", False),
        ('[{"a":1,"b":{"a":1}}]', True),
        ('[{"a":1,"a":2}]', False),
        ('[{"a":1,"\\u0061":2}]', False),
        ("{}", False),
    ],
)
def test_log_probabilities_are_recorded_alike(logprobs: str, taken: bool, mode: RequestCapture) -> None:
    text = '{"status":"completed","output":[{"type":"message","content":[{"text":"a","logprobs":%s}]}]}'
    assert is_taken_whole_cut_and_streamed(text % logprobs, mode) is taken


EVENTS = [
    CREATED,
    event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="a"),
    event("response.output_text.done", item_id="m", output_index=0, content_index=0, text="a"),
    event("response.completed", response={"status": "completed", "output": []}),
    event("response.incomplete", response={"status": "incomplete", "output": [{"type": "message"}], "tools": "SECRET"}),
    event("response.failed", response={"status": "failed", "output": []}),
    event("response.completed", response={"status": "completed", "output": []}).replace(b"completed", b"failed", 1),
    event("response.new", a=1),
    event("error", message="m"),
    b"data: [DONE]\n\n",
    b": ping\n\n",
    b"event: response.created\n\n",
    b'data: {"error":{"message":"m"}}\n\n',
    b"\n",
    b"\r\n",
    b"event: response.completed\n",
    b"x",
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=5), st.integers(1, 60), st.sampled_from(MODES))
def test_a_stream_of_any_events_is_recorded_alike(events: list[bytes], size: int, mode: RequestCapture) -> None:
    stream = b"".join(events)
    taken = is_taken(captured([stream], kind=STREAM), mode)
    cut = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert is_taken(captured(cut, kind=STREAM), mode) is taken


@pytest.mark.parametrize("size", [1_000, 100_000, 1_000_000])
def test_a_response_of_any_size_is_recorded_alike(size: int) -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": 'a "\n\u00e9' * (size // 6)}]}
    text = json.dumps({"status": "completed", "output": [item] * 2, "tools": ["SECRET"] * (size // 10)})
    assert is_taken_whole_cut_and_streamed(text, "settings")


def test_an_answer_of_another_status_is_left_to_the_other_way() -> None:
    given = captured([b'{"status":"completed","output":[]}'])
    for mode in MODES:
        assert is_taken(given, mode)
        other = dataclasses.replace(given, status=400)
        assert is_taken(other, mode)
        assert facts(record_of(other, mode, GLANCES[mode]))[0]["completed"] is False


def test_other_threads_run_while_a_large_response_is_looked_at() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "x" * 8_000_000}]}
    given = captured([json.dumps({"status": "completed", "output": [item]}).encode()])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)  # from now on a thread runs only where another one lets it
    try:
        assert any(runs_meanwhile(lambda: GLANCES["settings"].response(given, streamed=False)) for _ in range(100))
        assert not any(runs_meanwhile(lambda: json.loads(given.body[0])) for _ in range(3))
    finally:
        sys.setswitchinterval(interval)


def runs_meanwhile(work: Callable[[], object]) -> bool:
    """Whether another thread, which could run at once, does so before ``work`` is done."""
    gate, ran = threading.Semaphore(0), threading.Event()

    def run() -> None:
        gate.acquire()
        ran.set()

    thread = threading.Thread(target=run)
    thread.start()
    gate.release()
    work()
    has_run = ran.is_set()
    thread.join()
    return has_run
