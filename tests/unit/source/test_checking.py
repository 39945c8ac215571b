"""``checkConstraints``: which rows have ``violations``, and that nothing else of them changes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typed_spools import answer, write

from dspark_json.engine.native import NativeEngine
from dspark_json.engine.reference import ReferenceEngine
from dspark_json.errors import MissingPackageError, SchemaError
from dspark_json.source.query import Query
from dspark_json.source.read_task import TaskReader
from dspark_json.source.rows import row_batches
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record

if TYPE_CHECKING:
    from pathlib import Path

    from dspark_json.engine.base import Engine
    from dspark_json.spool.access import Chunk


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}, "kind": {"enum": ["a", "b"]}},
    "required": ["amount"],
}
DDL = "amount BIGINT, kind STRING"
ON = {"checkConstraints": "true"}


def asked(content: str | None, schema: object = SCHEMA, *, form: str = "response_format", **choice: Any) -> Record:
    """The record of an answer to a request that asked for a schema."""
    settings: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}},
        "structured_outputs": {"json": schema},
        "guided_json": schema,
    }
    request = {form: settings[form]} if form else {}
    meta = {"path": "/v1/chat/completions", "status": 200, "completed": True, "request": request}
    given = {"index": 0, "message": {"content": content}, "finish_reason": "stop", **choice}
    return Record(json.dumps(meta).encode()[1:-1], json.dumps({"id": "x", "choices": [given]}).encode()[1:-1])


def rows(folder: Path, options: dict[str, str] | None = None, wanted: pa.Schema | None = None) -> list[dict[str, Any]]:
    query = Query.resolve({"path": str(folder), **(options or {})})
    task = query.task(query.schema() if wanted is None else wanted)
    found: list[dict[str, Any]] = []
    for split in query.batch_splits():
        for batch in TaskReader(task).batches(split):
            assert batch.schema.equals(task.wanted)
            found += batch.to_pylist()
    return found


def violations(folder: Path, **options: str) -> list[Any]:
    found = rows(folder, {**ON, **options})
    return [choice["violations"] for row in found for choice in row["choices"] or [{"violations": "no choices"}]]


def test_values_are_held_against_the_schema_of_their_own_request(tmp_path: Path) -> None:
    stricter = {**SCHEMA, "properties": {**SCHEMA["properties"], "kind": {"enum": ["b"]}}}  # type: ignore[dict-item]
    text = '{"amount": 0, "kind": "a"}'
    forms = ("response_format", "structured_outputs", "guided_json")
    write(
        tmp_path, asked(text), asked(text, stricter), *(asked(text, form=form) for form in forms), asked('{"kind":"b"}')
    )
    assert violations(tmp_path) == [
        ["#/amount minimum"],
        ["#/amount minimum", "#/kind enum"],
        *[["#/amount minimum"]] * 3,
        ["#/amount required"],
    ]
    assert violations(tmp_path, contentSchema=DDL) == violations(tmp_path)


def test_what_is_no_json_value_or_was_asked_for_without_a_schema_is_not_checked(tmp_path: Path) -> None:
    write(
        tmp_path,
        asked('{"amount": 1}'),
        asked('{"amount": '),
        asked('{"amount": ', finish_reason="length"),
        asked(""),
        asked(None),
        asked("no JSON"),
        asked('{"amount": 0}', form=""),
        answer('{"amount": 0}'),
        asked("null"),
    )
    assert violations(tmp_path) == [[], None, None, None, None, None, None, None, ["# type"]]


def test_repaired_contents_are_checked_unless_repairs_are_refused(tmp_path: Path) -> None:
    contents = (
        '```json\n{"amount": 0}\n```',
        '<think>{"amount": 7}</think>{"amount": 0}',
        '{"amount": 0} and so on',
        '{"amount": 0, "kind": "a\tb"}',
        '{"amount": "0"}',
    )
    write(tmp_path, *map(asked, contents))
    minimum = ["#/amount minimum"]
    assert violations(tmp_path, contentSchema=DDL) == [
        minimum,
        minimum,
        minimum,
        [*minimum, "#/kind enum"],
        ["#/amount type"],
    ]
    assert violations(tmp_path, contentRepair="strict") == [*[None] * 4, ["#/amount type"]]


def test_completions_are_checked_and_answers_without_choices_stay_so(tmp_path: Path) -> None:
    completion = {"index": 0, "text": '{"amount": 0}', "message": None}
    write(tmp_path, asked(None, **completion), Record(b'"status":500', b'"error":{"message":"x"}'), Record(b"", b""))
    assert violations(tmp_path) == [["#/amount minimum"], "no choices", "no choices"]


def test_a_schema_that_can_not_be_used_is_told_and_its_neighbours_are_checked(tmp_path: Path) -> None:
    write(tmp_path, asked("1", {"type": "nope"}), asked("1", {"$ref": "http://127.0.0.1:9/"}), asked('{"amount": 0}'))
    assert violations(tmp_path) == [["schema invalid"], ["schema refers outside"], ["#/amount minimum"]]


def test_without_the_option_there_is_no_such_field(tmp_path: Path) -> None:
    write(tmp_path, asked('{"amount": 0}'))
    wanted = pa.schema([("choices", pa.list_(pa.struct([("violations", pa.list_(pa.string()))])))])
    with pytest.raises(SchemaError, match="violations"):
        rows(tmp_path, wanted=wanted)
    assert rows(tmp_path, ON, wanted) == [{"choices": [{"violations": ["#/amount minimum"]}]}]


def test_all_other_columns_are_those_of_a_read_without_it(tmp_path: Path) -> None:
    write(tmp_path, asked('{"amount": 0, "x": 1}'), asked(None), asked("{"), Record(b'"status":500', b'"id":"e"'))
    plain, checked = rows(tmp_path, {"contentSchema": DDL}), rows(tmp_path, {"contentSchema": DDL, **ON})
    for row in checked:
        for choice in row["choices"] or []:
            del choice["violations"]
    assert checked == plain


@pytest.mark.parametrize(
    "wanted",
    [
        pa.schema([("id", pa.string())]),
        pa.schema([("choices", pa.list_(pa.struct([("index", pa.int64())])))]),
        pa.schema([]),
    ],
)
def test_nothing_is_checked_where_violations_are_not_asked_for(
    wanted: pa.Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, asked('{"amount": 0}'), asked('{"amount": 1}'))
    query = Query.resolve({"path": str(tmp_path), **ON})
    task = query.task(wanted)
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)  # whoever checks would fail now
    batches = [batch for split in query.batch_splits() for batch in TaskReader(task).batches(split)]
    assert sum(batch.num_rows for batch in batches) == 2
    with pytest.raises(MissingPackageError, match=r"dspark-json\[checks\]"):
        Query.resolve({"path": str(tmp_path), **ON})


def test_nested_columns_in_any_order_go_with_it(tmp_path: Path) -> None:
    choice = pa.struct([("violations", pa.list_(pa.string())), ("message", pa.struct([("role", pa.string())]))])
    wanted = pa.schema(
        [("_dspark", pa.struct([("seq", pa.int64())])), ("choices", pa.list_(choice)), ("id", pa.string())]
    )
    write(tmp_path, asked('{"amount": 0}', message={"role": "assistant", "content": '{"amount": 0}'}), asked("1"))
    assert rows(tmp_path, ON, wanted) == [
        {
            "_dspark": {"seq": 0},
            "choices": [{"violations": ["#/amount minimum"], "message": {"role": "assistant"}}],
            "id": "x",
        },
        {"_dspark": {"seq": 1}, "choices": [{"violations": ["# type"], "message": {"role": None}}], "id": "x"},
    ]


def test_dropped_rows_and_filters_leave_the_others_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, asked("{"), asked('{"amount": 0}'), asked("{"), asked('{"amount": 1}'))
    assert violations(tmp_path, mode="DROPMALFORMED") == [["#/amount minimum"], []]


def test_both_engines_and_any_number_of_threads_give_the_same(tmp_path: Path) -> None:
    contents = ({"amount": number % 3, "kind": "ab"[number % 2] * 1_000} for number in range(3_000))
    write(tmp_path, *(asked(json.dumps(content)) for content in contents))
    query = Query.resolve({"path": str(tmp_path), **ON})
    task = query.task(query.schema())
    reader = SpoolReader(tmp_path)
    starts = [0]
    chunks = []
    while starts[-1] < 3_000:
        chunks.append(reader.read("0000", starts[-1], 3_000))
        starts.append(chunks[-1].next_seq)
    assert len(chunks) > 2

    def made(engine: Engine, threads: int, of: list[Chunk]) -> list[Any]:
        batches = row_batches(of, engine, task.plan, task.wanted, threads=threads)
        return [row["choices"] for batch in batches for row in batch.select(["choices"]).to_pylist()]

    found = made(NativeEngine(), 1, chunks)
    assert len(found) == 3_000
    assert made(NativeEngine(), 3, chunks) == found
    assert made(ReferenceEngine(), 1, [reader.read("0000", 0, 50)]) == found[:50]
