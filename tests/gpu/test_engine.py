"""The GPU engine on a GPU: the rows of the native engine, on the corpus, recordings, random records and much of it."""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING

import pytest
from engine_support import ANSWERS, CONTENTS, RECORDS, choice_line, line, spans
from text_reader_support import HostTextReader
from unit.engine.test_conversions import PLAN, drawn, lines_of, read
from unit.engine.test_native_fuzz import Maker

from dspark_json.cli.bench.answers import content_type, write_answers
from dspark_json.device.cuda import CudaTaken, import_cupy
from dspark_json.engine import build_plan
from dspark_json.engine.conversions import TO_BIGINT, TO_DOUBLE, TO_INT
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.selftest import NUMBERS, self_test
from dspark_json.schema.jsonschema import from_json_schema
from dspark_json.source.device_reading import DeviceChunk
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from pathlib import Path

NATIVE = NativeEngine()


@pytest.fixture(scope="module")
def engine() -> CudfEngine:
    return CudfEngine(CudfTextReader(import_pylibcudf()), NATIVE)


def compare(engine: CudfEngine, lines: list[bytes], plan: object) -> int:
    """Compare the rows; how many records the GPU read."""
    records = spans(lines)
    expected, _ = NATIVE.parse(records, plan)  # type: ignore[arg-type]
    made, stats = engine.parse(records, plan)  # type: ignore[arg-type]
    if not made.equals(expected):
        assert made.to_pylist() == expected.to_pylist()
    return stats.records - stats.fallback


def test_the_self_test_holds() -> None:
    assert self_test(CudfTextReader(import_pylibcudf()), NATIVE) == ""


def test_the_corpus(engine: CudfEngine) -> None:
    padding = [choice_line("Hello."), choice_line('{"a":1}')]
    for case in CONTENTS:
        one = choice_line(case["content"], case["finish_reason"])
        plan = build_plan(content_type=from_json_schema(case["schema"]))
        compare(engine, [*padding * 4, one, *padding * 4], plan)
    compare(
        engine, [choice_line(case["content"], case["finish_reason"]) for case in CONTENTS] + padding * 600, build_plan()
    )
    for case in RECORDS:
        tool = case["tool_schema"]
        plan = build_plan(
            content_type=from_json_schema(case["schema"]), tool_type=None if tool is None else from_json_schema(tool)
        )
        compare(engine, [*padding * 4, case["line"].encode() + b"\n"], plan)


def test_recorded_answers(engine: CudfEngine) -> None:
    lines = [line(answer[1:-1]) for answer in ANSWERS]
    assert compare(engine, lines, build_plan()) == len(lines)


def test_the_gpu_converts_the_texts_that_it_must_and_to_what_they_say() -> None:
    draw = random.Random(random.SystemRandom().randrange(1 << 32))
    lines = lines_of([*NUMBERS.split(), *(drawn(draw) for _ in range(3_000))])
    made, expected = read(CudfTextReader(import_pylibcudf()), lines), read(HostTextReader(), lines)
    for name in (field.name for field in expected.type):
        ours, theirs = made.field(name), expected.field(name)
        if not ours.equals(theirs):
            assert ours.to_pylist() == theirs.to_pylist(), name
            assert ours.type == theirs.type, name


def test_random_numbers(engine: CudfEngine) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    patterns = {"a": TO_BIGINT.pattern, "c": TO_DOUBLE.pattern, "i": TO_INT.pattern}
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        numbers = [(name, drawn(draw)) for _ in range(4_000) for name in patterns]
        plain = [f'{{"{name}":{number}}}' for name, number in numbers if re.search(patterns[name], number)]
        assert compare(engine, [choice_line(text) for text in plain], PLAN) == len(plain)
        mixed = [*plain, *(f'{{"{name}":{number}}}' for name, number in numbers[: len(plain) // 4])]
        draw.shuffle(mixed)
        compare(engine, [choice_line(text) for text in mixed], PLAN)


def test_random_records(engine: CudfEngine) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    maker = Maker(seed)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines = []
        while len(lines) < 30:
            one = maker.line()
            try:
                one.decode()
            except UnicodeDecodeError:
                continue
            lines.append(one)
        compare(engine, lines + [choice_line("x")] * 90, maker.plan())


def test_256_mib_of_answers_from_the_host_and_from_the_gpus_memory(engine: CudfEngine, tmp_path: Path) -> None:
    file = write_answers(tmp_path / "answers", 256 << 20, 0.01)
    data = file.path.read_bytes()
    times = [0] * len(file.ends)
    plan = build_plan(content_type=content_type())
    step = file.within(64 << 20)
    for first in range(0, len(file.ends), step):
        begin = file.ends[first - 1] if first else 0
        ends = [end - begin for end in file.ends[first : first + step]]
        part = memoryview(data)[begin : begin + ends[-1]]
        chunk = Chunk("s", "0000", first, part, ends, times[: len(ends)])
        expected, _ = NATIVE.parse(chunk, plan)
        made, stats = engine.parse(chunk, plan)
        assert made.equals(expected)
        assert stats.fallback < stats.records * 0.2
        taken = CudaTaken(import_cupy(), 0, len(part))
        taken.fill(0, part)
        there, _ = engine.parse(DeviceChunk("s", "0000", first, taken, ends, times[: len(ends)]), plan)
        assert there.equals(expected)
