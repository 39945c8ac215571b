"""Records made at random along the type of the rows, through both engines: for a moment, or for DSPARK_FUZZ_SECONDS.

The seed is printed where engines differ; ``DSPARK_FUZZ_SEED`` repeats it.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from engine_support import spans

from dspark_json.engine import ParsePlan, ParseStats, build_plan
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.reference import ReferenceEngine
from dspark_json.errors import MalformedRecordError
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.fields import wire_names
from dspark_json.schema.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).parents[2]
ANSWERS = (TESTS / "fixtures" / "vllm" / "answers.ndjson").read_text(encoding="utf-8").splitlines()
CORPUS = [
    json.loads(text)["content"] or ""
    for text in (TESTS / "corpus" / "content.jsonl").read_text(encoding="utf-8").splitlines()
]
ORDER = from_ddl(
    "order_id STRING, amount DOUBLE, paid BOOLEAN, items ARRAY<STRUCT<sku: STRING, qty: BIGINT>>, "
    "customer STRUCT<name: STRING, tags: ARRAY<STRING>>, m MAP<STRING, STRUCT<x: INT, y: STRING>>, `a b` INT"
)
WEATHER = from_ddl("city STRING, days BIGINT, opts MAP<STRING, DOUBLE>")
PROFILE = Profile(
    "p",
    "",
    "",
    (
        ("choices[].message.reasoning_content", "STRING"),
        ("usage.input_tokens", "DOUBLE"),
        ("choices[].message.x", "MAP<STRING, BIGINT>"),
        ("status", "STRING"),
        ("error.extra", "BIGINT"),
    ),
)
WRITTEN_NUMBERS = """
0 1 -1 1.0 1e3 1.5 -0 0.1 9223372036854775807 9223372036854775808 -9223372036854775808 1e19 1e400 -1e-400
123456789012345678 1234567890123456789 12345678901234567890 0.30000000000000004 11.311806000776414 1E+2
2147483648 1764400000 1764400000.123456789 0.0000005 253402300799 253402300799.4 253402300800 1e-7 99999e-5
3.0e0 5e-324 1000000000000000000000000000000e-30 1.7976931348623159e308 9007199254740993
0e99999999999999999999 1e99999999999999999999 -62135596801
"""
NUMBERS = WRITTEN_NUMBERS.split()
STRINGS = [
    *(
        "",
        "a",
        "order",
        "weather",
        "length",
        "stop",
        "abort",
        "error",
        "completed",
        "incomplete",
        "null",
        "it's",
        "a b",
    ),
    *("/v1/responses", "/v1/chat/completions", "json_object", "json_schema", "0123456789abcdef", "</think>", "```"),
    *("\\u00e9", "é😀", "\\ud83d\\ude00", "\\ud83d", "\\ude00x", '\\n\\t\\"\\\\\\/\\b\\f\\r', "\\u0000", '{\\"a\\":1}'),
    *("x" * 15, "x" * 16, "x" * 40, '\\"' * 20, "\u2028", "\\u006f"),
]
NAMES = [
    *("x", "id", "_dspark", "choices", "status", "parsed", "parse_status", "a b", "größe", "", "1a", "content", "seq"),
    *("\\u0069d", "\\u005fdspark", "reasoning", "reasoning_content", "input_tokens", "prompt_tokens", "created_at"),
    *('x\\"y', "x\\ny", "o'k", "error", "_rescued_data", "k" * 30, "lane", "spool_id", "arguments_status"),
]
BYTES = b'{}[]:,"\\0123456789.eE+-tfn \t\x00\xff\xe2\x80\xed/u'


class Maker:
    """Makes lines and plans."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows = build_plan(content_type=ORDER).declared

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def object(self, members: Sequence[tuple[str, str]]) -> str:
        space = [self.one_of(" ", "\t", "  ", "\r") if self.chance(0.1) else "" for _ in range(4)]
        return "{" + ",".join(f'{space[0]}"{k}"{space[1]}:{space[2]}{v}{space[3]}' for k, v in members) + "}"

    def anything(self, depth: int = 0) -> str:
        kind = self.random.randrange(4 if depth > 3 else 6)
        if kind == 0:
            return self.one_of(*NUMBERS)
        if kind < 3:
            return f'"{self.one_of(*STRINGS)}"'
        if kind == 3:
            return self.one_of("null", "true", "false")
        count = self.random.randrange(4)
        if kind == 4:
            return "[" + ",".join(self.anything(depth + 1) for _ in range(count)) + "]"
        return self.object([(self.one_of(*NAMES), self.anything(depth + 1)) for _ in range(count)])

    def mutated(self, text: str) -> str:
        place = self.random.randrange(len(text) + 1)
        put = self.one_of("", "{", "}", '"', ",", "\n", "\x01", "\\", ":", "[", "]", "1", "`", "</think>")
        return text[:place] + put + text[place + self.random.randrange(4) :]

    def content(self, kind: pa.DataType) -> str:
        """A content, as JSON: mostly a string that holds a value of the type, perhaps with something to repair."""
        if self.chance(0.1):
            return self.one_of("null", '""', '" \\n"', "5", '{"order_id":1}', "true", "[1]", '"Hello"', '"12"', '"nul"')
        text = self.one_of(*CORPUS) if self.chance(0.1) else self.value(kind)
        change = self.random.randrange(12)
        if change < 6:
            leading = ["```json\n%s\n```", "<think>x</think>%s", "%s thanks", "\ufeff %s", "x</think>%s", "```%s"]
            text = leading[change].replace("%s", text)
        elif change == 6:
            text = text[: self.random.randrange(len(text) + 1)]
        elif change == 7:
            text = self.mutated(text)
        return json.dumps(text, ensure_ascii=self.chance(0.5))

    def value(self, kind: pa.DataType) -> str:
        if self.chance(0.04):
            return self.anything()
        if self.chance(0.04):
            return "null"
        if pa.types.is_struct(kind):
            return self.struct(kind)
        if pa.types.is_map(kind):
            return self.map(kind)
        if pa.types.is_list(kind):
            return "[" + ",".join(self.value(kind.value_type) for _ in range(self.random.randrange(4))) + "]"
        if kind == pa.string():
            return f'"{self.one_of(*STRINGS)}"'
        if kind == pa.bool_():
            return self.one_of("true", "false")
        return self.one_of(*NUMBERS) if self.chance(0.5) else str(self.random.randrange(-100, 2_000_000_000))

    def map(self, kind: pa.DataType) -> str:
        if self.chance(0.01):
            return self.object([("m" * self.one_of(20_000, 65_530, 70_000), self.value(kind.item_type))])
        names = [
            f"{self.one_of(*STRINGS, *NAMES)}{self.random.randrange(15)}" for _ in range(self.random.randrange(12))
        ]
        return self.object([(name, self.value(kind.item_type)) for name in names])

    def struct(self, kind: pa.DataType) -> str:
        members: list[tuple[str, str]] = []
        share = self.one_of(0.1, 0.5, 0.9, 1.0)
        for field in (kind.field(i) for i in range(kind.num_fields)):
            names = [name for name in wire_names(field)[: self.one_of(1, 1, 1, 2)] if self.chance(share)]
            members += [(json.dumps(name)[1:-1], self.member(field)) for name in names]
        if self.chance(0.15):
            members.append((self.one_of(*NAMES), self.anything()))
        if self.chance(0.04):
            members += [(self.one_of(*NAMES), self.anything()) for _ in range(self.random.randrange(2, 12))]
        if self.chance(0.002):
            members += [(f"u{i}", self.one_of("1", '"x"', "null")) for i in range(self.one_of(900, 1000, 1001, 1500))]
        if members and self.chance(0.05):
            members.append((self.one_of(*members)[0], self.anything()))
        if self.chance(0.3):
            self.random.shuffle(members)
        return self.object(members)

    def member(self, field: pa.Field) -> str:
        """A member's value: one that means something where the reader looks into it."""
        meant = {
            "finish_reason": ['"stop"', '"length"', "null", '"abort"', '"tool_calls"', "1", '"\\u006cength"'],
            "completed": ["true", "false", "null", "null", '"x"'],
            "status": ["200", "200", "400", "2e2", '"200"', "99999999999"],
            "path": ['"/v1/chat/completions"', '"/v1/responses"', "5"],
            "error": ["null", "null", '{"message":"m"}', '"text"'],
            "schema": ["null", '{"name":"order","hash":"0123456789abcdef00"}', '{"name":null}'],
            "response_format": [
                '{"type":"json_object"}',
                '{"type":"text"}',
                '"{\\"type\\":\\"json_schema\\"}"',
                "null",
            ],
            "structured_outputs": ['{"json":{}}', '{"json":null,"json_object":true}', '{"regex":"x"}', "null"],
            "name": ['"weather"', '"clock"', "null", '"w\\u0065ather"'],
            "logprobs": ["null"],
        }
        if field.name in {"content", "text"} and field.type == pa.string():
            return self.content(ORDER)
        if field.name == "arguments":
            return self.content(WEATHER)
        return self.one_of(*meant[field.name]) if field.name in meant and self.chance(0.8) else self.value(field.type)

    def line(self) -> bytes:
        record = self.value(self.rows.field("_dspark").type)
        if self.chance(0.4):
            record = (
                f'{{"path":"/v1/chat/completions","status":200,"completed":{self.one_of("true", "false", "null")}}}'
            )
        answer = self.one_of(*ANSWERS)
        if self.chance(0.85):
            answer = self.struct(pa.struct([field for field in self.rows if field.name != "_dspark"]))
        members = [f'"_dspark":{record}', answer[1:-1]] if self.chance(0.95) else [answer[1:-1], f'"_dspark":{record}']
        text = bytearray("{" + ",".join(one for one in members if one.strip()) + "}", "utf-8", "replace")
        if self.chance(0.15):
            for _ in range(self.random.randrange(1, 4)):
                place = self.random.randrange(len(text) + 1)
                text[place : place + self.random.randrange(3)] = bytes([self.one_of(*BYTES)])
        return bytes(text).replace(b"\n", b" ") + b"\n"

    def plan(self) -> ParsePlan:
        settings: dict[str, Any] = {
            "content_type": self.one_of(None, ORDER, ORDER),
            "tool_type": self.one_of(None, WEATHER),
            "mode": self.one_of("PERMISSIVE", "PERMISSIVE", "DROPMALFORMED"),
            "repair": self.one_of("auto", "auto", "strict"),
            "tools": self.one_of(None, None, None, frozenset({"weather"})),
            "answers_of": self.one_of(None, None, None, None, "order", "0123456789AB", "none"),
            "rescue_unknown": self.chance(0.9),
            "profiles": (PROFILE,) if self.chance(0.15) else (),
        }
        plan = build_plan(**settings)
        return plan if self.chance(0.5) else build_plan(self.narrowed(plan.declared), **settings)

    def narrowed(self, rows: pa.Schema) -> pa.Schema:
        columns = [self.narrow(field) for field in rows if self.chance(0.4)]
        self.random.shuffle(columns)
        return pa.schema(columns)

    def narrow(self, field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            fields = [kind.field(i) for i in range(kind.num_fields)]
            kept = [self.narrow(one) for one in fields if self.chance(0.5)] or [self.one_of(*fields)]
            self.random.shuffle(kept)
            return field.with_type(pa.struct(kept))
        if pa.types.is_list(kind):
            return field.with_type(pa.list_(self.narrow(kind.value_field)))
        return field


def check(lines: Sequence[bytes], plan: ParsePlan) -> None:
    native, reference = NativeEngine(), ReferenceEngine()
    expected, counts = reference.parse(spans(lines), plan)
    made, found = native.parse(spans(lines), plan)
    made.validate(full=True)
    assert made.schema.equals(expected.schema, check_metadata=True)
    assert made.equals(expected), (made.to_pylist(), expected.to_pylist())
    assert comparable(found, counts, plan) == comparable(counts, counts, plan)
    said = []
    for engine in (native, reference):
        try:
            engine.parse(spans(lines), replace(plan, mode="FAILFAST"))
        except MalformedRecordError as error:
            said.append(str(error))
    assert not said or said == said[:1] * 2


def comparable(stats: ParseStats, reference: ParseStats, plan: ParsePlan) -> ParseStats:
    """The counts without the time; where not all is looked at, what may be smaller is only checked not to be larger."""
    if plan.columns.names == plan.declared.names:
        return replace(stats, parse_ns=0)
    for name in ("mismatches", "invalid", "truncated"):
        assert getattr(stats, name) <= getattr(reference, name)
    return replace(stats, parse_ns=0, mismatches=0, invalid=0, truncated=0)


def test_random_records_are_the_same_rows_in_both_engines() -> None:
    seconds = float(os.environ.get("DSPARK_FUZZ_SECONDS", "5"))
    seed = int(os.environ.get("DSPARK_FUZZ_SEED", str(random.SystemRandom().randrange(2**32))))
    records, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends or not records:
        maker = Maker(seed)
        plan, lines = maker.plan(), [maker.line() for _ in range(maker.random.randrange(1, 20))]
        for one in ([one] for one in lines):
            check_said(one, plan, seed)
        check_said(lines, plan, seed)
        records += len(lines)
        seed += 1
    print(f"{records} records, the last seed is {seed - 1}")


def check_said(lines: Sequence[bytes], plan: ParsePlan, seed: int) -> None:
    try:
        check(lines, plan)
    except BaseException as error:
        error.add_note(f"DSPARK_FUZZ_SEED={seed}, lines {lines!r}")
        raise
