"""Whether a text reader does what the GPU engine's proof expects of it, asked of the reader itself (DESIGN §7).

Versions of cuDF differ in how they take what is not quite JSON. So before the first batch some thousand records, odd
ones of every kind that is known and numbers around every edge, go through it, and their rows must be those of the
native engine.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.engine.base import build_plan
from dspark_json.engine.cudf import CudfEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.base import Engine, ParsePlan
    from dspark_json.engine.text_reader import TextReader

__all__ = ["NUMBERS", "TRIAL_BYTES", "self_test", "trial"]

_KIND: Final = pa.struct(
    [
        pa.field("a", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("c", pa.float64()),
        pa.field("d", pa.bool_()),
        pa.field("i", pa.int32()),
        pa.field("l", pa.list_(pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())]))),
        pa.field("s", pa.list_(pa.int64())),
        pa.field("größe", pa.struct([pa.field("k", pa.string())])),
    ]
)
# Contents of answers.
_PLAIN: Final = (
    r'{"a":1,"b":"x","c":0.5,"d":true}',
    r'{"a":-12,"l":[{"x":1.25,"y":"é"},{"x":2}],"s":[1,2,3]}',
    r'{"a":0,"s":[]}',
    r'{"b":"😀 \u00e9 \t \/ \\","größe":{"k":"v"}}',
    r'{"a":999999999999999999,"b":null}',
    r'{"b":"{"}',
    r'{"b":{"x":[1,2],"y":"z"}}',
    r'{"b":12.50}',
    r'{"c":1e3,"l":[]}',
    ' {\n\t"a" : 7 }\r\n',
    r'{"a":-999999999999999999,"i":999999999,"d":false}',
    r'{"a":9007199254740993,"i":-999999999,"s":[-0,12345678901]}',
    r'{"l":[{"x":99999999.9999999},{"x":-99999999.9999999},{"x":0.0},{"x":-0.0000001},{"x":8.41},{"x":12.1234567}]}',
)
# Numbers around each edge there is: of the patterns that say what is converted, of 32 and 64 bits, of what a double
# holds; and what is no number.
NUMBERS: Final = """
0 -0 00 01 -01 +1 .5 1. 1.0 -1.0 1e0 1e3 1E3 1e+3 1e-3 1e22 1e23 -1e22 5e-324 2e-324 1e308 2e308 7e-6122 1e400
0.0 -0.0 0.00 -0.00 0e0 -0e0 0.5 -0.5 -0.50 0.1 0.2 0.3 1.1 1.005 2.675 8.41 12.99 -12.99 123456.789 1.10 10.010
0.0000001 -0.0000001 0.00000001 -0.00000001 0.9999999 0.99999999 0.12345678 -0.1234567 1.00000001
99999999 99999999.9 99999999.9999999 -99999999.9999999 99999999.99999999 100000000 100000000.1 -100000000.1
123456789.123456 1234567.12345678 12345678.1234567 0.123456789012345 0.1234567890123456 0.12345678901234567
123456789012345 1234567890123456 12345678901234567 1234567890.12345678 -0.001134384120814502
999999999 -999999999 1000000000 2147483647 2147483648 -2147483648 -2147483649 4294967295 4294967296 4294967297
9007199254740991 9007199254740992 9007199254740993 -9007199254740993 9007199254740995.0
99999999999 100000000000 253402300799 253402300800 99999999999999999 100000000000000000 253402300799999999
999999999999999999 -999999999999999999 1000000000000000000 1234567890123456789 9223372036854775807
9223372036854775808 -9223372036854775808 -9223372036854775809 10000000000000000000 12345678901234567890
18446744073709551615 18446744073709551616 18446744073709551617 340282366920938463463374607431768211457
true false tru NaN Infinity -Infinity nan inf -inf 0x10 1_000 1,000 -- - 12a 1e 1e+ -.5 1.2.3
"""
_ODD: Final = (
    r'{"a":1,"a":2}',
    r'{"a":1,"a":null}',
    r'{"s":[1,2],"s":[3]}',
    r'{"l":[{}],"l":[{},{}]}',
    r'{"a":1},"e":0}',
    r'{"a":1},"v":{"a":2}',
    r'{"a":1}}',
    r'{"a":1,"z":2}',
    r'{"a":"1"}',
    r'{"a":1.0}',
    r'{"a":9223372036854775808}',
    r'{"a":1e400}',
    r"{}",
    r'{"a":1} x',
    r'{"a":1}{"a":2}',
    r'{"a":1',
    r'{"a":null',
    r'{"a":null}',
    r'{"a":01}',
    r'{"a":+1}',
    r'{"a":.5}',
    r'{"a":NaN}',
    r"{'a':1}",
    r'{"a":1,}',
    r'{"a" 1}',
    r"{a:1}",
    r"[1]",
    r"5",
    r'"x"',
    r"null",
    r"nul",
    r"true",
    "",
    "x",
    r"Hello.",
    r"the end",
    r'{"b":"\x"}',
    r'{"b":"\ud83d"}',
    r'{"b":"\ud83d\ude00"}',
    r'{"b":"\u0000"}',
    r'{"l":{}}',
    r'{"l":[null]}',
    r'{"l":[5]}',
    r'{"l":5}',
    r'{"l":[[1]]}',
    r'{"s":["1"]}',
    r'{"s":[[1]]}',
    r'{"s":[null,1]}',
    r'{"d":"true"}',
    r'{"d":1}',
    r'{"d":null,"a":4}',
    r'{"b":[1,{"q":null}]}',
    r'{"b":{"a":{"a":{"a":[]}}}}',
    r'{"größe":"x"}',
    r'{"\u0061":1}',
    r'{"a":":null","z":5}',
    r'{"b":":null","z":5}',
    r'{"b\\":1,"a":2}',
    r'{"b":"\"k\":1"}',
    r'{"":1}',
    r"<think>x</think>{}",
    r'{"A":1}',
    r'1,"v":2',
    r"1}",
    r"12 x",
    *('```json\n{"a":1}\n```', "\ufeff{}", '{"a":1,"b":{"\n":1}}', '{"b":"\n"}', '{"b":"\t"}', '{"b":"\x01"}', " \t\n"),
    '{"b":' + "[" * 120 + "]" * 120 + "}",
    '{"b":' + "[" * 300 + "]" * 300 + "}",  # libcudf counts levels in 8 bits
    '{"b":"' + "x" * 5000 + '"}',
)
_RECORDS: Final = (
    r"{broken",
    r"5",
    r"{}",
    r'{"_dspark":null}',
    r'{"_dspark":5,"id":"x"}',
    r'{"id":"x"} y',
    r'["_dspark"]',
    r'{"_dspark":{}}',
    r'{"_dspark":{"completed":true},"_dspark":{"completed":false},"id":"a"}',
    r'{"_dspark":{"completed":true},"usage":5,"created":1.5,"id":7}',
    r'{"_dspark":{"completed":true},"usage":{"total_tokens":"5","x":1},"created":"now"}',
    r'{"_dspark":{"completed":true},"choices":5}',
    r'{"_dspark":{"completed":true},"choices":[5,null]}',
    r'{"_dspark":{"completed":true},"choices":[]}',
    r'{"_dspark":{"completed":true},"metadata":{"k":"v"},"prompt_token_ids":[1,2]}',
    r'{"_dspark":{"completed":false,"error":{"message":"m"}},"error":null}',
    r'{"_dspark":{"completed":true},"kv_transfer_params":{"a":[1,{"b":null}]},"created":253402300800}',
)
_REPEATS: Final = 5
_REPEATS_OF_NUMBERS: Final = 3
_GROUP: Final = 16
TRIAL_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class _Spans:
    """Records in memory."""

    buffer: memoryview
    ends: Sequence[int]
    appended_at: Sequence[int]
    spool_id: str = "self-test"
    lane: str = "0000"
    first_seq: int = 0

    def __len__(self) -> int:
        return len(self.ends)


def self_test(reader: TextReader, native: Engine) -> str:
    """What is wrong with the reader, for people; empty where its rows are right and plain records are read by it.

    Whatever the reader raises is raised.
    """
    engine = CudfEngine(reader, native)
    plain = [_answer(text) for text in _PLAIN]
    odd = [_answer(text) for text in _ODD] + [text.encode() + b"\n" for text in _RECORDS]
    typed, untyped = build_plan(content_type=_KIND), build_plan()
    for lines, plan in ((plain, typed), (plain, untyped)):
        problem = _difference(engine, native, lines, plan)
        if problem:
            return problem
        left_over = engine.parse(_spans(lines), plan)[1].fallback
        if left_over:
            return f"{left_over} of {len(lines)} plain records were not read by it"
    for plan in (typed, untyped):
        for group in (odd[i : i + _GROUP] for i in range(0, len(odd), _GROUP)):
            problem = _difference_among(engine, native, plain, group, plan)
            if problem:
                return problem
    for numbers in (_numbers_in_contents(), _numbers_in_records()):
        problem = _difference_among(engine, native, plain, numbers, typed, _REPEATS_OF_NUMBERS)
        if problem:
            return problem
    return ""


def trial(reader: TextReader, native: Engine, size: int = TRIAL_BYTES) -> tuple[float, float]:
    """Seconds that a batch of ``size`` bytes takes the GPU engine, and the native one; the better of two tries each.

    The records are plain ones, the best case of the GPU engine.
    """
    lines = [_answer(text) for text in _PLAIN]
    spans = _spans(lines * max(1, size // sum(map(len, lines))))
    plan = build_plan()

    def seconds(engine: Engine) -> float:
        started = time.perf_counter()
        engine.parse(spans, plan)
        return time.perf_counter() - started

    gpu = CudfEngine(reader, native)
    return min(seconds(gpu), seconds(gpu)), min(seconds(native), seconds(native))


def _difference_among(
    engine: Engine,
    native: Engine,
    plain: Sequence[bytes],
    odd: Sequence[bytes],
    plan: ParsePlan,
    repeats: int = _REPEATS,
) -> str:
    """What is wrong with odd ones among plain ones, and with which; empty where nothing is."""
    if not _difference(engine, native, _among(plain, odd, repeats), plan):
        return ""
    alone = ((one, _difference(engine, native, _among(plain, [one]), plan)) for one in odd)
    return next((f"{what} for {one!r}" for one, what in alone if what), f"other rows for {odd!r}")


def _among(plain: Sequence[bytes], odd: Sequence[bytes], repeats: int = _REPEATS) -> list[bytes]:
    """The odd ones, each with enough plain ones that the batch is taken apart."""
    return [line for one in odd for line in (*plain[:repeats], one)]


def _numbers_in_contents() -> list[bytes]:
    """Answers with one member, a number that may or may not be one of its type."""
    kinds = ('"a":%s', '"c":%s', '"d":%s', '"i":%s', '"l":[{"x":%s}]', '"s":[7,%s]')
    return [_answer("{" + kind % number + "}") for kind in kinds for number in NUMBERS.split()]


def _numbers_in_records() -> list[bytes]:
    """Records of which one number may or may not be one of its type."""
    kinds = (
        '{"_dspark":{"completed":true},"created":%s}\n',
        '{"_dspark":{"completed":true,"received_at":%s},"id":"a"}\n',
    )
    return [(kind % number).encode() for kind in kinds for number in NUMBERS.split()]


def _answer(content: str) -> bytes:
    record = {"lane": "0000", "status": 200, "completed": True, "received_at": 1_764_400_000_000_000}
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    members = {
        "_dspark": record,
        "id": "a",
        "created": 1_764_400_000,
        "choices": [choice],
        "usage": {"total_tokens": 3},
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _spans(lines: Sequence[bytes]) -> _Spans:
    ends: list[int] = []
    for line in lines:
        ends.append((ends[-1] if ends else 0) + len(line))
    return _Spans(memoryview(b"".join(lines)), ends, range(len(lines)))


def _difference(engine: Engine, native: Engine, lines: Sequence[bytes], plan: ParsePlan) -> str:
    """The first column that differs from the native engine's; empty where none does."""
    spans = _spans(lines)
    made, expected = engine.parse(spans, plan)[0], native.parse(spans, plan)[0]
    if made.num_rows != expected.num_rows:
        return f"{made.num_rows} rows instead of {expected.num_rows}"
    for name in expected.schema.names:
        ours, theirs = made.column(name), expected.column(name)
        # To Arrow zeros are equal whatever their sign.
        if not ours.equals(theirs) or repr(ours.to_pylist()) != repr(theirs.to_pylist()):
            return f"another value of {name}"
    return ""
