"""The native engine gives exactly the rows and counts of the reference, whatever the records hold."""

from __future__ import annotations

import itertools
import json
import mmap
import pickle
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from engine_support import FIRST_SEQ, LANE, SPOOL_ID, Spans, choice_line, line, spans
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.engine import ParsePlan, build_plan
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.reference import ReferenceEngine
from dspark_json.errors import MalformedRecordError
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.jsonschema import from_json_schema
from dspark_json.schema.profiles import Profile
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.base import RecordSpans

TESTS = Path(__file__).parents[2]
NATIVE, REFERENCE = NativeEngine(), ReferenceEngine()
ORDER = from_ddl(
    "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e INT, l ARRAY<STRUCT<x: DOUBLE, y: STRING>>, m MAP<STRING, ARRAY<INT>>, "
    "s STRUCT<t: STRING, u: BIGINT>, `x y` BIGINT"
)
TOOL = from_ddl("city STRING, days BIGINT")
PLAN = build_plan(content_type=ORDER, tool_type=TOOL)
CORPUS = [json.loads(text) for text in (TESTS / "corpus" / "content.jsonl").read_text(encoding="utf-8").splitlines()]


def compare(records: RecordSpans, plan: ParsePlan = PLAN) -> pa.RecordBatch:
    """The batch that both engines make."""
    expected, counts = REFERENCE.parse(records, plan)
    made, found = NATIVE.parse(records, plan)
    made.validate(full=True)
    assert made.schema.equals(expected.schema, check_metadata=True)
    if not made.equals(expected):
        assert made.to_pylist() == expected.to_pylist()
    assert replace(found, parse_ns=0) == replace(counts, parse_ns=0)
    return made


def compare_lines(lines: Sequence[bytes], plan: ParsePlan = PLAN) -> pa.RecordBatch:
    return compare(spans(lines), plan)


@pytest.mark.parametrize("case", CORPUS, ids=[case["id"] for case in CORPUS])
@pytest.mark.parametrize("repair", ["auto", "strict"])
def test_the_corpus(case: dict[str, Any], repair: str) -> None:
    for content_type in (from_json_schema(case["schema"]), None):
        plan = build_plan(content_type=content_type, repair=repair)
        for completed in (True, False, None):
            compare_lines([choice_line(case["content"], case["finish_reason"], completed=completed)], plan)


def test_the_golden_spool() -> None:
    reader = SpoolReader(TESTS / "golden" / "v1" / "spool")
    for lane, extent in reader.offsets().lanes.items():
        seq = extent.first
        while seq < extent.next:
            chunk = reader.read(lane, seq, extent.next)
            compare(chunk, build_plan())
            seq = chunk.next_seq


def recorded() -> list[bytes]:
    folder = TESTS / "fixtures" / "vllm"
    bodies = (folder / "answers.ndjson").read_text(encoding="utf-8").splitlines()
    for text in (folder / "asgi-exchanges.jsonl").read_text(encoding="utf-8").splitlines():
        bodies.append("".join(one["body"] for one in json.loads(text)["messages"] if one["type"] == "body"))
    for exchange in json.loads((folder / "exchanges-spec-decode.json").read_text(encoding="utf-8")):
        bodies.append("".join(exchange["chunks"]))
    lines = []
    for body in bodies:
        path = "/v1/responses" if '"object":"response"' in body else "/v1/chat/completions"
        members = body.strip()[1:-1].replace("\n", " ") if body.startswith("{") else '"x":1'
        lines += [line(members, f'"path":"{path}","status":200,"completed":{known}') for known in ("true", "null")]
    return lines


def test_the_recordings_of_a_real_server() -> None:
    lines = recorded()
    assert len(lines) > 800
    for content_type in (None, from_ddl("order_id STRING, amount BIGINT, items ARRAY<STRUCT<sku: STRING>>, score INT")):
        compare_lines(lines, build_plan(content_type=content_type))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["\ud83d", "\ude00\ud83d", "</think>", "```", '"\\/\b', "x" * 40, 10**19, -(2**63), 2**31, 1e300]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NUMBERS = st.sampled_from(
    ["1", "1.0", "1e3", "1.5", "-0", "1e400", "9223372036854775808", "1e-400", "0.1", "1E+2", "01"]
)


@st.composite
def texts_of(draw: st.DrawFn, kind: pa.DataType) -> str:
    """JSON text that mostly has this type."""
    if draw(st.integers(0, 11)) == 0:
        return json.dumps(draw(JSON), ensure_ascii=draw(st.booleans()))
    if pa.types.is_struct(kind):
        chosen = [kind.field(i) for i in draw(st.lists(st.integers(0, kind.num_fields - 1), max_size=6))]
        members = [json.dumps(one.name.replace("_", " ")) + ": " + draw(texts_of(one.type)) for one in chosen]
        if draw(st.integers(0, 4)) == 0:
            members.append(json.dumps(draw(st.text(max_size=5))) + ":" + json.dumps(draw(JSON)))
        return "{" + ",".join(members) + "}"
    if pa.types.is_map(kind):
        names = draw(st.lists(st.text(max_size=3), max_size=10))
        return "{" + ",".join(json.dumps(name) + ":" + draw(texts_of(kind.item_type)) for name in names) + "}"
    if pa.types.is_list(kind):
        return "[" + ",".join(draw(st.lists(texts_of(kind.value_type), max_size=3))) + "]"
    if kind == pa.string():
        return json.dumps(draw(st.text(max_size=40)), ensure_ascii=draw(st.booleans()))
    if kind == pa.bool_():
        return draw(st.sampled_from(["true", "false"]))
    return draw(NUMBERS | st.integers().map(str) | st.floats(allow_nan=False, allow_infinity=False).map(repr))


WRAPPINGS = st.sampled_from(
    [
        "%s",
        "%s",
        "%s",
        "```json\n%s\n```",
        "<think>x</think>%s",
        "\ufeff%s",
        "%s ok",
        " %s ",
        '"%s',
        "x</think>%s",
        "```%s",
    ]
)
CONTENTS = st.one_of(
    st.none(),
    st.text(max_size=30),
    st.builds(lambda wrapping, text: wrapping % text, WRAPPINGS, texts_of(ORDER)),
    st.builds(lambda text, end: text[:end], texts_of(ORDER), st.integers(0, 60)),
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A line with choices, calls and settings that mean something."""
    choices = []
    for _ in range(draw(st.integers(0, 2))):
        message: dict[str, Any] = {"content": draw(CONTENTS)}
        if draw(st.booleans()):
            names = draw(st.lists(st.sampled_from(["weather", "clock", None]), max_size=2))
            arguments = [draw(st.none() | texts_of(TOOL) | st.text(max_size=9)) for _ in names]
            message["tool_calls"] = [
                {"function": {"name": name, "arguments": text}} for name, text in zip(names, arguments, strict=True)
            ]
        choice: dict[str, Any] = {"message": message, "finish_reason": draw(st.sampled_from(["stop", "length", None]))}
        if draw(st.booleans()):
            choice = dict(reversed(choice.items()))
        choices.append(choice)
    answer: dict[str, Any] = {"choices": choices, "error": draw(st.none() | st.just({"message": "m", "code": 5}))}
    answer |= draw(st.dictionaries(st.sampled_from(["id", "usage", "extra", "status", "metadata"]), JSON, max_size=3))
    record: dict[str, Any] = {
        "path": draw(st.sampled_from(["/v1/chat/completions", "/v1/responses"])),
        "status": draw(st.sampled_from([200, 500, None, "200"])),
        "completed": draw(st.sampled_from([True, False, None, "x"])),
        "error": draw(st.none() | st.just({"message": "r", "param": 1})),
        "schema": draw(st.none() | st.just({"name": "order", "hash": "0123456789abcdef"})),
        "request": draw(st.none() | st.just({"response_format": {"type": "json_object"}})),
    }
    return line(json.dumps(answer)[1:-1], json.dumps(record)[1:-1])


@given(
    st.lists(answers(), max_size=4),
    st.sampled_from([PLAN, build_plan(), build_plan(content_type=ORDER, repair="strict")]),
)
@settings(max_examples=120, deadline=None)
def test_answers_made_at_random(lines: list[bytes], plan: ParsePlan) -> None:
    compare_lines(lines, plan)


@given(answers(), st.data())
@settings(max_examples=120, deadline=None)
def test_answers_with_bytes_mutated(good: bytes, data: st.DataObject) -> None:
    text = bytearray(good[:-1])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text[place : place + cut] = bytes(
            [data.draw(st.sampled_from(b'{}[]:,"\\0123456789.eE+-tfn \t\x00\xff\xe2\x80/u'))]
        )
    compare_lines([good, bytes(text) + b"\n", good])


@given(texts_of(pa.struct([one for one in PLAN.declared if one.name != "choices"])), st.data())
@settings(max_examples=100, deadline=None)
def test_rows_with_members_of_other_types(text: str, data: st.DataObject) -> None:
    lines = [text.replace("\n", " ").encode("utf-8", "replace") + b"\n"]
    names = data.draw(st.lists(st.sampled_from(PLAN.declared.names), unique=True))
    compare_lines(lines)
    columns = pa.schema([PLAN.declared.field(name) for name in names])
    made, _ = NATIVE.parse(spans(lines), build_plan(columns, content_type=ORDER, tool_type=TOOL))
    whole, _ = REFERENCE.parse(spans(lines), PLAN)
    assert made.to_pylist() == whole.select(names).to_pylist()


@pytest.mark.parametrize(
    "answer",
    [
        '"id":1,"id":"x"',
        '"choices":[{"message":{"content":"{}","content":"{\\"a\\":1}"}}]',
        '"usage":{"input_tokens":7,"prompt_tokens":5}',
        '"usage":{"prompt_tokens":"x","input_tokens":5}',
        '"usage":{"input_tokens":7,"prompt_tokens":null}',
        '"x":1,"x":null',
        '"x":1,"\\u0078":2',
        '"\\u0069d":"i"',
        '"metadata":{"a":1,"\\u0061":2}',
        '"_dspark":{"seq":9},"id":"i"',
        '"id":"\\ud83d\\ude00\\ud83d\\ude00x"',
        '"created":1764400000.0000005,"error":"text"',
        '"choices":[{"message":{"content":{"a":1}}},null,5,{}]',
        '"choices":[{"message":{"content":"{\\"a\\":"},"finish_reason":"length"}]',
        '"choices":{"a":1}',
        '"deep":' + "[" * 127 + "]" * 127,
        '"deep":' + "[" * 128 + "]" * 128,
        '"choices":[{"message":{"content":"' + "[" * 128 + "]" * 128 + '"}}]',
        '"choices":[{"message":{"content":"' + "[" * 129 + "]" * 129 + '"}}]',
    ],
)
def test_what_only_the_exact_way_reads(answer: str) -> None:
    for record in ('"status":200,"completed":true', '"status":200', '"path":"/v1/responses","error":{"message":"r"}'):
        compare_lines([line(answer, record), line('"id":"i"'), line(answer, record)])
    compare_lines([b"{" + answer.encode() + b',"_dspark":{"status":200}}\n', b"{" + answer.encode() + b"}\n"])


RECORD_OBJECT = '"_dspark":{"seq":1,"lane":"0003","path":"%s","status":%d%s}'
SHORT_CONTENTS = ['{"a":1}', '{"a":', "no", "", "[1]", "```json\n{}\n```"]


@pytest.mark.parametrize(
    "place", ["none", "first", "middle", "last", "alone", "null", "twice", "first, spelled otherwise"]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("known", ["", ',"completed":true', ',"completed":false', ',"request":{"guided_json":{}}'])
def test_the_record_object_may_stand_anywhere(place: str, path: str, known: str) -> None:
    lines = []
    for status, content, reason in itertools.product([200, 500], SHORT_CONTENTS, ["stop", "length", "abort", None]):
        record = RECORD_OBJECT % (path, status, known)
        call = {"function": {"name": "weather", "arguments": content}}
        message = {"content": content, "tool_calls": [call] * (reason == "stop")}
        choices = json.dumps({"choices": [{"message": message, "finish_reason": reason}]})[1:-1]
        members = {
            "none": ['"id":"x"', choices],
            "first": [record, '"id":"x"', choices],
            "middle": ['"id":"x"', choices, record, '"error":null'],
            "last": ['"id":"x"', choices, record],
            "alone": [record],
            "null": ['"_dspark":null', choices],
            "twice": [choices, record, record.replace("completed", "complete")],
            "first, spelled otherwise": [record.replace("_d", "\\u005fd"), choices],
        }[place]
        lines.append(("{" + ",".join(members) + "}\n").encode())
    for kind in (ORDER, None):
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            compare_lines(lines, build_plan(content_type=kind, tool_type=TOOL, mode=mode))
    compare_lines(lines, build_plan(tools=frozenset({"weather"}), tool_type=TOOL))


def test_numbers_in_all_their_lengths() -> None:
    source = random.Random(1)
    digits = [str(source.randrange(10**count)) for count in range(1, 25) for _ in range(40)]
    numbers = [
        f"{sign}{one}{rest}" for one in digits for sign in ("", "-") for rest in ("", "." + source.choice(digits))
    ]
    numbers += [f"{one}.{'0' * source.randrange(8)}{source.choice(digits)}" for one in digits]
    contents = [f'{{"a":{one},"c":{one},"l":[{{"x":{one}}}],"e":{one}}}' for one in numbers]
    compare_lines([choice_line(one) for one in contents])


def test_strings_and_names_at_the_ends_of_blocks() -> None:
    contents = []
    for length in range(70):
        for text in ("x" * length, "é" * length, "\\n" * length, "x" * length + "\\u00e9", "x" * length + '\\\\\\"y'):
            contents += [
                f'{{"b":"{text}"}}',
                f'{{"b":"{text}"',
                f'{{"{text}":1,"a":2}}',
                f'{{"b" {" " * length}: "{text}"}}',
            ]
    compare_lines([choice_line(one) for one in contents])
    # The last line of a buffer has nothing behind it, and no line feed perhaps.
    for one in contents:
        compare_lines([choice_line(one)[:-1]])


@pytest.mark.parametrize("count", [999, 1000, 1001])
def test_the_bounds_of_what_is_rescued(count: int) -> None:
    members = ",".join(f'"k{i}":{i}' for i in range(count))
    compare_lines([line(members), choice_line("{" + members + "}"), line(f'"x":1,{members}')])
    compare_lines([choice_line(json.dumps({"m": {"k" * 65_517: count, "l": 1}}))])


def test_many_records_and_long_texts() -> None:
    text = 'x\n\u2028😀"' * 50_000
    lines = [choice_line(json.dumps({"b": text, "z": text[:1000]})), *([choice_line('{"a":1}'), b"bad\n"] * 500)]
    compare_lines(lines)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("tools", [None, frozenset({"weather"})])
@pytest.mark.parametrize("answers_of", [None, "order", "0123456", "other"])
@given(lines=st.lists(answers(), max_size=5))
@settings(max_examples=10, deadline=None)
def test_modes_and_filters(mode: str, tools: frozenset[str] | None, answers_of: str | None, lines: list[bytes]) -> None:
    plan = build_plan(content_type=ORDER, tool_type=TOOL, tools=tools, answers_of=answers_of, mode=mode)
    compare_lines([*lines, b"bad\n", b'{"_dspark":{"schema":{"name":"order"}},\n'], plan)


def test_profiles_that_share_a_name_of_the_wire_and_renamed_columns() -> None:
    fields = (("choices[].message.reasoning_content", "STRING"), ("usage.input_tokens", "DOUBLE"), ("status", "STRING"))
    profile = Profile("p", "", "", fields)
    plan = build_plan(profiles=(profile,), corrupt_column="bad", rescued_column="rest", rescue_unknown=False)
    answer = '"status":"s","x":1,"usage":{"input_tokens":"7"},"choices":[{"message":{"reasoning_content":"r"}}]'
    made = compare_lines([line(answer), line(answer, '"status":200,"path":"/v1/responses"'), b"no\n"], plan)
    assert made.column("bad")[2].as_py() == "no"


@given(answers())
@settings(max_examples=100, deadline=None)
def test_fail_fast_fails_with_the_same_words(one: bytes) -> None:
    plan = replace(PLAN, mode="FAILFAST")
    said = []
    for engine in (REFERENCE, NATIVE):
        try:
            engine.parse(spans([one]), plan)
        except MalformedRecordError as error:
            said.append(str(error))
    assert len(said) in {0, 2}
    assert len(set(said)) < 2


def test_what_nothing_shows_and_no_mode_needs_is_not_counted() -> None:
    lines = [choice_line("no"), choice_line('{"a":"x"}')]
    columns = pa.schema([("id", pa.string())])
    narrow, judged = (
        build_plan(columns, content_type=ORDER),
        build_plan(columns, content_type=ORDER, mode="DROPMALFORMED"),
    )
    assert (NATIVE.parse(spans(lines), narrow)[1].invalid, NATIVE.parse(spans(lines), judged)[1].invalid) == (0, 1)


def test_a_mapped_file_is_parsed_where_it_lies(tmp_path: Path) -> None:
    lines = [choice_line('{"a":1}'), choice_line("no")] * 100
    (tmp_path / "segment").write_bytes(b"".join(lines))
    with (tmp_path / "segment").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        compare(replace(spans(lines), buffer=view))
        view.release()


def test_a_buffer_that_could_change_is_refused() -> None:
    records = spans([choice_line("{}")])
    with pytest.raises(ValueError, match="read-only"):
        NATIVE.parse(replace(records, buffer=memoryview(bytearray(records.buffer))), PLAN)


def test_spans_beyond_the_buffer_are_refused() -> None:
    with pytest.raises(ValueError, match="spans"):
        NATIVE.parse(Spans(memoryview(b"{}\n"), [4], [0]), PLAN)


def test_engines_share_a_plan_of_the_same_content() -> None:
    def compiled(**options: Any) -> object:
        return NativeEngine()._plan(build_plan(content_type=from_ddl("a BIGINT"), **options))

    assert compiled() is compiled()
    assert compiled(repair="strict") is not compiled()
    assert compiled(tools=frozenset({"f"})) is not compiled()
    # Equal as schemas are compared, but with other names on the wire.
    plan = build_plan()
    other = replace(plan, declared=plan.declared.set(0, plan.declared.field(0).with_metadata({"dspark.wire": '["x"]'})))
    assert other.declared == plan.declared
    assert NativeEngine()._plan(other) is not NativeEngine()._plan(plan)


def test_threads_share_an_engine() -> None:
    lines = recorded()
    expected = NATIVE.parse(spans(lines), PLAN)[0]
    made: list[bool] = []

    def work() -> None:
        made.extend(NATIVE.parse(spans(lines), PLAN)[0].equals(expected) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [True] * 20


def test_plans_travel_between_processes() -> None:
    plan = pickle.loads(pickle.dumps(PLAN))
    made, _ = NATIVE.parse(spans([choice_line('{"a":1}')]), plan)
    position = made.column("_dspark")[0].as_py()
    assert (position["spool_id"], position["lane"], position["seq"]) == (SPOOL_ID, LANE, FIRST_SEQ)
