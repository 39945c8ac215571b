"""What the GPU engine asks of cuDF: every call fits the real one's signature, and its odd ways make no row wrong."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import random
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cudf_support import SIGNATURES, HostCudf, stub_signatures
from engine_support import ANSWERS, CONTENTS, RECORDS, choice_line, line, spans
from unit.engine.test_native_fuzz import Maker

from dspark_json.engine import build_plan
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.cudf_reader import CudfTextReader
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.repeated import has_list_once, has_null_alone
from dspark_json.engine.selftest import self_test
from dspark_json.engine.text_fields import TextField, text_fields
from dspark_json.errors import EngineFailedError, MalformedRecordError
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.jsonschema import from_json_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dspark_json.engine.base import ParsePlan, ParseStats

NATIVE = NativeEngine()
ORDER = from_ddl("a BIGINT, b STRING, l ARRAY<STRUCT<x: DOUBLE, y: STRING>>, s ARRAY<INT>, m STRUCT<s: ARRAY<STRING>>")
PLAN = build_plan(content_type=ORDER)
MEMBERS = (TextField("a"), TextField("s", item=TextField("element")))


@pytest.fixture(params=[0, -1], ids=["first-counts", "last-counts"])
def cudf(request: pytest.FixtureRequest) -> HostCudf:
    return HostCudf(pick=request.param)


def both(cudf: HostCudf, lines: Sequence[bytes], plan: ParsePlan = PLAN) -> ParseStats:
    """Compare the rows with the native engine's, and give the GPU engine's counts."""
    expected, _ = NATIVE.parse(spans(lines), plan)
    made, stats = CudfEngine(CudfTextReader(cudf), NATIVE).parse(spans(lines), plan)
    made.validate(full=True)
    if not made.equals(expected):
        assert made.to_pylist() == expected.to_pylist()
    return stats


def read(cudf: HostCudf, lines: Sequence[bytes], members: Sequence[TextField] = MEMBERS) -> pa.StructArray:
    records = spans(lines)
    return CudfTextReader(cudf).read(records.buffer, records.ends, members).rows


def test_the_corpus_gives_the_rows_of_the_native_engine_whatever_cudf_does_with_odd_input(cudf: HostCudf) -> None:
    padding = [choice_line("Hello."), choice_line('{"a":1,"s":[7]}')]
    for case in CONTENTS:
        one = choice_line(case["content"], case["finish_reason"])
        both(cudf, [*padding * 4, one, *padding * 4], build_plan(content_type=from_json_schema(case["schema"])))
    both(cudf, [choice_line(case["content"], case["finish_reason"]) for case in CONTENTS] + padding * 600, build_plan())
    for case in RECORDS:
        tool = None if case["tool_schema"] is None else from_json_schema(case["tool_schema"])
        plan = build_plan(content_type=from_json_schema(case["schema"]), tool_type=tool)
        both(cudf, [*padding * 4, case["line"].encode() + b"\n", *padding], plan)


def test_random_records_give_the_rows_of_the_native_engine() -> None:
    seconds = float(os.environ.get("DSPARK_FUZZ_SECONDS", "4"))
    seed = int(os.environ.get("DSPARK_FUZZ_SEED", str(random.SystemRandom().randrange(1 << 32))))
    print("seed", seed)
    maker, draw = Maker(seed), random.Random(seed)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        plan = maker.plan()
        lines = [choice_line("Hello." if plan.content_type is None else '{"a":1}')] * 24
        for one in (maker.line() for _ in range(6)):
            if one == one.decode("utf-8", "replace").encode():  # what a spool has is UTF-8
                lines.append(one)
        draw.shuffle(lines)
        try:
            NATIVE.parse(spans(lines), plan)
        except MalformedRecordError as error:
            with pytest.raises(MalformedRecordError, match=re.escape(str(error))):
                CudfEngine(CudfTextReader(HostCudf(pick=draw.choice((0, -1)))), NATIVE).parse(spans(lines), plan)
        else:
            both(HostCudf(pick=draw.choice((0, -1))), lines, plan)


def test_recorded_answers_need_no_other_engine(cudf: HostCudf) -> None:
    assert both(cudf, [line(answer[1:-1]) for answer in ANSWERS], build_plan()).fallback == 0
    assert both(cudf, [choice_line('{"a":12,"b":"x","l":[{"x":1,"y":"z"}],"s":[1,2]}')] * 9).fallback == 0


def test_the_self_test_holds_for_cudf_as_its_sources_say_it_is(cudf: HostCudf) -> None:
    assert self_test(CudfTextReader(cudf), NATIVE) == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"s":[1,2],"s":[3]}',
        '{"s":[],"s":[3,4]}',
        '{"l":[{}],"l":[{},{}]}',
        '{"m":{"s":["a"]},"m":{"s":["b","c"]}}',
        '{"a":1,"a":null}',
        '{"a":null,"a":1}',
        '{"s":[1],"s":null}',
        '{"l":[{"x":1,"x":null}],"a":2}',
        '{"a":1} x',
        '{"a":1}}',
        '{"a":1},"e":0}',
        '{"a":1},"v":{"a":2}',
        '{"a":1,"e":0}',
        "5",
        "[1]",
    ],
)
def test_a_name_twice_or_text_behind_the_value_spoils_neither_its_own_row_nor_the_next_ones(
    cudf: HostCudf, text: str
) -> None:
    plain = [choice_line('{"a":1,"s":[]}'), choice_line('{"a":2,"s":[8,9],"l":[{"x":2}]}'), choice_line('{"a":3}')] * 3
    assert both(cudf, [*plain, choice_line(text), *plain]).fallback > 0


def test_a_line_that_is_more_or_less_than_one_object_has_no_members(cudf: HostCudf) -> None:
    lines = [b'{"a":1}\n', b'{"a":1} x\n', b'{"a":1}}\n', b"5\n", b"[1]\n", b'{"a":\n', b' {"a":2} \n', b'{"a":1}{}\n']
    assert [row["a"] for row in read(cudf, lines).to_pylist()] == ["1", None, None, None, None, None, "2", None]
    assert read(cudf, [b"5\n", b"x\n"]).to_pylist() == [{"a": None, "s": None}] * 2


def test_lines_in_device_memory_are_read_where_they_are(cudf: HostCudf) -> None:
    lines = [b'{"a":1,"s":[1,"x"]}\n', b'{"s":[]}\n']
    held = ctypes.create_string_buffer(b"".join(lines))
    rows = CudfTextReader(cudf).read(ctypes.addressof(held), spans(lines).ends, MEMBERS).rows
    assert rows.to_pylist() == [{"a": "1", "s": ["1", '"x"']}, {"a": None, "s": []}]


def test_cudf_is_asked_for_text_alone_and_strictly() -> None:
    cudf = HostCudf()
    read(cudf, [b'{"a":1}\n'])
    assert cudf.settings == {
        "lines": True,
        "dtypes": [
            ("v", "STRUCT", [("a", "STRING", []), ("s", "LIST", [("element", "STRING", [])])]),
            ("e", "STRING", []),
        ],
        "prune_columns": True,
        "keep_quotes": True,
        "mixed_types_as_string": True,
        "normalize_whitespace": False,
        "normalize_single_quotes": False,
        "recovery_mode": "null",
        "experimental": True,
        "built": None,
        "set_strict_validation": True,
        "allow_unquoted_control_chars": False,
        "allow_numeric_leading_zeros": False,
        "allow_nonnumeric_numbers": False,
    }


def test_a_batch_is_one_read_of_its_lines_and_one_of_its_contents_and_the_plan_says_of_what() -> None:
    cudf = HostCudf()
    assert both(cudf, [choice_line('{"a":1}')] * 20).fallback == 0
    assert cudf.calls.count("io.json.read_json") == 2
    assert cudf.calls.count("strings.contains.count_re") == 6
    (_, kind, inside), _ = cudf.settings["dtypes"]
    assert kind == "STRUCT"
    assert [name for name, *_ in inside] == [one.name for one in text_fields(ORDER)]
    assert {name: rest for name, *rest in inside}["l"] == [
        "LIST",
        [("element", "STRUCT", [("x", "STRING", []), ("y", "STRING", [])])],
    ]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("CUDF failure at: read_json.cu:1: Should be 1"), "Should be 1"),
        (None, "it read 1 rows out of 20 lines"),
    ],
)
def test_a_batch_that_cudf_does_not_take_is_the_native_engines_said_once_and_counted(
    error: Exception | None, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    cudf = HostCudf()
    real = cudf.io.json.read_json

    def refusing(options: Any) -> Any:
        if error is not None:
            raise error
        options.source.held = options.source.held.splitlines(keepends=True)[0]
        return real(options)

    cudf.io.json.read_json = refusing
    engine = CudfEngine(CudfTextReader(cudf), NATIVE)
    records = spans([choice_line('{"a":1}')] * 20)
    for _ in range(2):
        made, stats = engine.parse(records, PLAN)
        assert made.equals(NATIVE.parse(records, PLAN)[0])
        assert stats.fallback == 20
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.startswith("the native engine parses 20 record(s) of lane 0003 from 70 on, the GPU engine can't: ")
    assert says in told


def test_an_error_of_cuda_is_no_refusal_and_ends_the_task() -> None:
    cudf = HostCudf()

    def broken(_options: object) -> None:
        raise RuntimeError("CUDA error encountered at: x.cu:7: 700 cudaErrorIllegalAddress")

    cudf.io.json.read_json = broken
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        CudfEngine(CudfTextReader(cudf), NATIVE).parse(spans([choice_line("x")]), build_plan())


def test_a_batch_beyond_what_a_column_of_strings_holds_is_an_error_with_what_to_do() -> None:
    reader = CudfTextReader(HostCudf())
    with pytest.raises(EngineFailedError, match="is more than the GPU engine takes at once") as caught:
        reader.read(0, [(1 << 31) - (1 << 20)], MEMBERS)
    assert "maxBytesPerTrigger" in caught.value.remedy


def test_memory_comes_from_cudas_pool_unless_somebody_chose_another_way() -> None:
    cudf = HostCudf()
    reader = CudfTextReader(cudf)
    records = spans([b"{}\n"])
    for _ in range(2):
        reader.read(records.buffer, records.ends, MEMBERS)
    assert cudf.resource == f"a pool that keeps {256 << 20}"
    chosen = HostCudf()
    chosen.resource = "somebody's own"
    CudfTextReader(chosen).read(records.buffer, records.ends, MEMBERS)
    assert chosen.resource == "somebody's own"


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ('{"a":[1],"b":{"a":[2]}}', True),
        ('{"a":1,"a":2}', True),
        ('{"a":[1],"a":[2]}', False),
        ('[{"a":{"b":[1]},"a":{"b":[]}}]', False),
        ('{"a":1} x', False),
        ('{"a":NaN}', False),
        ("[" * 100_000, False),
        ("1" * 5_000, True),
    ],
)
def test_lists_that_are_there_twice_are_found(text: str, once: bool) -> None:
    assert has_list_once(text.encode()) == once


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ('{"a":1,"b":null}', True),
        ('[{"a":null},{"a":1,"b":null}]', True),
        ('{"a":1,"b":"\\n","c":null}', True),
        ('{"a":1,"a": null}', False),
        ('{"a":null,"a":1}', False),
        ('{"a":1,"\\u0061":null}', False),
        ('{"\\u0061":1,"a":null}', False),
        ('{"l":[{"x":1,"x":null}]}', False),
    ],
)
def test_a_null_beside_another_value_of_its_name_is_found(text: str, alone: bool) -> None:
    assert has_null_alone(text) == alone


def test_the_signatures_are_those_of_the_installed_pylibcudf() -> None:
    if importlib.util.find_spec("pylibcudf") is None:
        pytest.skip("no pylibcudf here (extras gpu, gpu-cu13)")
    package = Path(importlib.util.find_spec("pylibcudf").origin).parent  # type: ignore[union-attr, arg-type]
    known = json.loads(SIGNATURES.read_text(encoding="utf-8"))["signatures"]
    assert stub_signatures(package, known) == known
