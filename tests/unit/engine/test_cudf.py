"""The GPU engine gives exactly the rows of the native one; here its reader is one of the host."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import ANSWERS, CONTENTS, RECORDS, choice_line, line, spans
from text_reader_support import HostTextReader
from unit.engine.test_native_fuzz import Maker

from dspark_json.engine import ParsePlan, build_plan
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf
from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.text_fields import text_fields
from dspark_json.engine.text_reader import MEMBER, NULL_MEMBER, ODD
from dspark_json.errors import EngineUnavailableError, MalformedRecordError
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.jsonschema import from_json_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dspark_json.engine.base import ParseStats

NATIVE = NativeEngine()
ORDER = from_ddl("a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e INT, l ARRAY<STRUCT<x: DOUBLE, y: STRING>>, s ARRAY<INT>")
PLAN = build_plan(content_type=ORDER)
RECORD = '{"path":"/v1/chat/completions","status":200,"completed":true,"received_at":1764400000000000}'


def both(lines: Sequence[bytes], plan: ParsePlan = PLAN) -> tuple[pa.RecordBatch, ParseStats]:
    """The batch that both engines make of these records, however many of them are plain."""
    plain = choice_line("Hello." if plan.content_type is None else '{"a":1}')
    padding = [plain] * (4 * len(lines))  # so that what is not plain is taken apart, and not the whole batch given up
    records = spans([*lines, *padding])
    expected, counts = NATIVE.parse(records, plan)
    made, found = CudfEngine(HostTextReader(), NATIVE).parse(records, plan)
    made.validate(full=True)
    assert made.schema.equals(expected.schema, check_metadata=True)
    if not made.equals(expected):
        assert made.to_pylist() == expected.to_pylist()
    assert (found.records, found.bytes) == (counts.records, counts.bytes)
    assert (found.filtered, found.dropped, found.corrupt) == (counts.filtered, counts.dropped, counts.corrupt)
    assert (found.invalid, found.mismatches, found.truncated) == (counts.invalid, counts.mismatches, counts.truncated)
    return made, found


def is_plain(one: bytes, plan: ParsePlan = PLAN) -> bool:
    return both([one], plan)[1].fallback == 0


def content(text: str) -> bytes:
    """An answer as vLLM writes it: UTF-8 as it is."""
    return choice_line("?").replace(b'"?"', json.dumps(text, ensure_ascii=False).encode())


@pytest.mark.parametrize("case", CONTENTS, ids=[case["id"] for case in CONTENTS])
def test_every_content_of_the_corpus_gives_the_rows_of_the_native_engine(case: dict[str, Any]) -> None:
    kind = from_json_schema(case["schema"])
    one = choice_line(case["content"], case["finish_reason"], completed=case.get("completed", True))
    for plan in (build_plan(content_type=kind), build_plan(content_type=kind, repair="strict"), build_plan()):
        both([one, one], plan)


@pytest.mark.parametrize("case", RECORDS, ids=[case["id"] for case in RECORDS])
def test_every_record_of_the_corpus_gives_the_rows_of_the_native_engine(case: dict[str, Any]) -> None:
    tool = case["tool_schema"]
    tool_type = None if tool is None else from_json_schema(tool)
    both(
        [case["line"].encode() + b"\n"], build_plan(content_type=from_json_schema(case["schema"]), tool_type=tool_type)
    )


def test_recorded_answers_are_plain_as_a_server_gives_them() -> None:
    lines = [line(answer[1:-1], RECORD[1:-1]) for answer in ANSWERS]
    _, stats = both(lines, build_plan())
    plain = len(lines) - stats.fallback
    assert plain > 0
    _, stats = both([choice_line('{"a":12,"b":"x","c":1.25,"d":true,"e":null,"l":[{"x":1,"y":"z"}],"s":[1,2]}')] * 9)
    assert stats.fallback == 0


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":9223372036854775808}', '{"a":1.0}', '{"a":"1"}', '{"a":1,"a":2}', '{"a":1,"z":2}', '{"a":1} x', "{}"),
        *('{"a":null}', '{"a":null', '{"a":1', '{"b":"\\ud83d"}', '{"b":"\\u0000"}', '{"a":true}', '{"d":"true"}'),
        *('{"l":{}}', '{"l":[null]}', '{"l":[5]}', '{"s":[[1]]}', '{"s":["1"]}', '{"c":1e400}', '{"e":2147483648}'),
        *('{"a":01}', "{'a':1}", '{"a":1,}', '{"a":NaN}', '```json\n{"a":1}\n```', '{"b":"\n"}', "[1]", "5", "null"),
        *(
            '{"c":1e3,"b":"\\"q\\": \\n{"}',
            '{"a":":null","z":5}',
            '{"b":":null","z":5}',
            '{"b\\\\":1,"a":2}',
            '{"b":"\x1e"}',
        ),
        '{"b":' + "[" * 101 + "]" * 101 + "}",
    ],
)
def test_what_the_text_does_not_prove_goes_to_the_native_engine(text: str) -> None:
    assert not is_plain(content(text))


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":1}', ' {"a" : -12 , "c":0.5}\n', '{"c":1e3,"b":"\\"q\\" \\n{:"}', '{"b":{"x":[1,"]"]}}', '{"b":12.50}'),
        *('{"a":1,"b":null}', '{"l":[],"a":0}', '{"s":[1,null],"d":false}', '{"b":"😀 é \\u00e9"}', "", " \n"),
        *('{"c":0.1234567890123456}', '{\n  "a": 1,\r\n  "b": "x"\n}'),
    ],
)
def test_what_the_text_proves_stays_on_the_gpu(text: str) -> None:
    assert is_plain(content(text))


def test_without_a_type_prose_and_json_are_told_apart_on_the_gpu() -> None:
    plan = build_plan()
    for text in (
        "Hello there.",
        "the end",
        ' {"a":1,\n"a":[2]}\n',
        "true",
        '"x"',
        "12",
        "[1]",
        "",
        " ",
    ):
        assert is_plain(content(text), plan), text
    for text in (
        "12 apples",
        "true enough",
        "x</think>{}",
        "\ufeffx",
        '1,"v":2',
        "1}",
        '1}\x1e{"v":1',
        "null",
        '{"a":',
    ):
        assert not is_plain(content(text), plan), text


@pytest.mark.parametrize(
    "settings", [{"answers_of": "order"}, {"answers_of": "0123456789"}, {"tools": frozenset({"t"})}]
)
def test_filters_keep_the_same_records(settings: dict[str, Any]) -> None:
    schema = {"name": "order", "hash": "0123456789abcdef"}
    lines = [choice_line('{"a":1}', schema=schema), choice_line('{"a":2}', schema={"name": "x", "hash": "ff"})]
    _, stats = both([*lines, choice_line('{"a":')] * 3, build_plan(content_type=ORDER, **settings))
    assert stats.filtered >= 6


def test_modes_do_to_malformed_answers_what_they_do_in_the_native_engine() -> None:
    lines = [choice_line('{"a":1}'), choice_line("no"), choice_line('{"a":2}'), b"{broken\n"]
    _, stats = both(lines, build_plan(content_type=ORDER, mode="DROPMALFORMED"))
    assert stats.dropped == 2
    with pytest.raises(MalformedRecordError, match="record 71 "):
        CudfEngine(HostTextReader(), NATIVE).parse(
            spans([*lines, *lines[:1] * 20]), build_plan(content_type=ORDER, mode="FAILFAST")
        )


def test_a_batch_of_mostly_odd_records_is_the_native_engines_as_a_whole_and_counted() -> None:
    records = spans([choice_line('{"a":1,"z":1}')] * 3 + [choice_line('{"a":1}')])
    batch, stats = CudfEngine(HostTextReader(), NATIVE).parse(records, PLAN)
    assert batch.equals(NATIVE.parse(records, PLAN)[0])
    assert stats.fallback == 4


def test_batches_below_the_least_size_are_not_sent_to_the_gpu() -> None:
    reader = HostTextReader()
    _, stats = CudfEngine(reader, NATIVE, min_bytes=10_000).parse(spans([choice_line('{"a":1}')] * 5), PLAN)
    assert reader.calls == []
    assert stats.fallback == 5
    _, stats = CudfEngine(reader, NATIVE, min_bytes=10_000).parse(spans([]), PLAN)
    assert (stats.records, reader.calls) == (0, [])


def test_a_batch_is_one_read_of_its_lines_and_one_of_its_contents() -> None:
    reader = HostTextReader()
    _, stats = CudfEngine(reader, NATIVE).parse(spans([choice_line('{"a":1}')] * 50), PLAN)
    names = tuple(field.name for field in ORDER)
    (records, top), contents = reader.calls
    assert records == 50
    assert {"id", "created", "created_at", "choices", "usage", "_dspark"} <= set(top)
    assert "metadata" not in top, "a map is none that the reader can read"
    assert contents == (50, names)
    assert stats.gpu_ns > 0


def members_of(value: Value) -> tuple[int, int]:
    """(members, those that are null) of a value, at all depths."""
    if value.kind == Kind.OBJECT:
        inside = [one for _, one in value.occurrences()]
    else:
        inside = value.items() if value.kind == Kind.ARRAY else []
    below = [members_of(one) for one in inside]
    own = len(inside) if value.kind == Kind.OBJECT else 0
    nulls = sum(one.is_null for one in inside) if own else 0
    return own + sum(n for n, _ in below), nulls + sum(n for _, n in below)


def test_counting_never_finds_fewer_members_than_there_are() -> None:
    """What the whole proof rests on: in a text that is not odd no member can hide."""
    draw = random.Random(7)
    pieces = ['"', '":', '"a"', ":null", "null", "\\\\", '\\"', ":", ",", "{", "}", "[", "]", " ", "1", '":null', "x"]
    checked = 0
    for _ in range(150_000):
        text = "{" + "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 14))) + "}"
        try:
            root = parse(text.encode()).root
        except JsonSyntaxError:
            continue
        if re.search(ODD, text):
            continue
        checked += 1
        members, nulls = members_of(root)
        assert len(re.findall(MEMBER, text)) - len(re.findall(NULL_MEMBER, text)) >= members - nulls, text
    assert checked > 500


def test_random_records_give_the_rows_of_the_native_engine() -> None:
    seconds = float(os.environ.get("DSPARK_FUZZ_SECONDS", "4"))
    seed = int(os.environ.get("DSPARK_FUZZ_SEED", str(random.SystemRandom().randrange(1 << 32))))
    print("seed", seed)
    maker = Maker(seed)
    deadline = time.monotonic() + seconds
    plain = 0
    while time.monotonic() < deadline:
        lines = [maker.line() for _ in range(6)]
        _, stats = both([one for one in lines if _is_text(one)], maker.plan())
        plain += stats.records - stats.fallback
    assert plain > 0


def _is_text(one: bytes) -> bool:
    """Lines of a spool are UTF-8 (DESIGN §3)."""
    try:
        one.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_pylibcudf_takes_all_that_the_reader_asks_of_it_before_it_needs_a_gpu() -> None:
    pytest.importorskip("pylibcudf", reason="no pylibcudf here (extras gpu, gpu-cu13)")
    reader = CudfTextReader(import_pylibcudf())
    assert reader.options(b'{"a":1}\n', text_fields(PLAN.declared)) is not None
    assert reader.options(b'{"a":1}\n', text_fields(ORDER)) is not None


def test_an_installation_without_pylibcudf_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(EngineUnavailableError, match="pylibcudf can't be imported") as caught:
        import_pylibcudf()
    assert "dspark-json[gpu-cu13]" in caught.value.remedy
