"""Records for the engines: lines as they stand in a spool, and the rows made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_json.engine import ParsePlan, ParseStats, build_plan
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.reference import ReferenceEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_TESTS = Path(__file__).parent
CONTENTS = [json.loads(t) for t in (_TESTS / "corpus/content.jsonl").read_text(encoding="utf-8").splitlines()]
RECORDS = [json.loads(t) for t in (_TESTS / "corpus/records.jsonl").read_text(encoding="utf-8").splitlines()]
ANSWERS = (_TESTS / "fixtures/vllm/answers.ndjson").read_text(encoding="utf-8").splitlines()
SPOOL_ID = "0b7f6a52-3c1e-4d89-9f60-5a2b8c4d7e01"
LANE = "0003"
FIRST_SEQ = 70
APPENDED = 1_764_400_000_000_000


@dataclass(frozen=True, slots=True)
class Spans:
    """Records in memory."""

    buffer: memoryview
    ends: Sequence[int]
    appended_at: Sequence[int]
    spool_id: str = SPOOL_ID
    lane: str = LANE
    first_seq: int = FIRST_SEQ

    def __len__(self) -> int:
        return len(self.ends)


def spans(lines: Sequence[bytes]) -> Spans:
    ends: list[int] = []
    for one in lines:
        ends.append((ends[-1] if ends else 0) + len(one))
    return Spans(memoryview(b"".join(lines)), ends, [APPENDED + i for i in range(len(lines))])


def line(answer: str = "", record: str = '"path":"/v1/chat/completions","status":200,"completed":true') -> bytes:
    """A line: the members of the answer's object behind those of ``_dspark``."""
    return ('{"_dspark":{"seq":1,"lane":"0003",' + record + "}" + ("," + answer if answer else "") + "}\n").encode()


def choice_line(content: str | None, finish_reason: str | None = "stop", **record: Any) -> bytes:
    """A line whose answer is one choice with this content; ``record`` are members of ``_dspark``."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    members = {"path": "/v1/chat/completions", "status": 200, "completed": True, **record}
    return line(json.dumps({"choices": [choice]})[1:-1], json.dumps(members)[1:-1])


def parse(lines: Sequence[bytes], plan: ParsePlan | None = None) -> tuple[pa.RecordBatch, ParseStats]:
    return ReferenceEngine().parse(spans(lines), plan or build_plan())


def rows(lines: Sequence[bytes], plan: ParsePlan | None = None) -> list[Any]:
    found: list[Any] = parse(lines, plan)[0].to_pylist(maps_as_pydicts="strict")
    return found


def row(one: bytes, plan: ParsePlan | None = None) -> Any:
    return rows([one], plan)[0]


def choice(one: bytes, plan: ParsePlan | None = None) -> Any:
    return row(one, plan)["choices"][0]


def rows_of_both_engines(lines: Sequence[bytes], plan: ParsePlan | None = None) -> list[Any]:
    """The rows that the reference and the native engine make alike."""
    plan = plan or build_plan()
    expected, _ = ReferenceEngine().parse(spans(lines), plan)
    made, _ = NativeEngine().parse(spans(lines), plan)
    assert made.equals(expected)
    found: list[Any] = made.to_pylist(maps_as_pydicts="strict")
    return found
