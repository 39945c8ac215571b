"""The declared rows are what DESIGN §5 says, and what Delta and Spark take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.schema.ddl import from_ddl, to_ddl
from dspark_json.schema.envelope import row_schema
from dspark_json.schema.fields import timestamp_unit, wire_names

if TYPE_CHECKING:
    from collections.abc import Iterator


def fields(kind: pa.DataType, path: str = "") -> Iterator[tuple[str, pa.Field]]:
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            here = f"{path}.{kind.field(i).name}".lstrip(".")
            yield here, kind.field(i)
            yield from fields(kind.field(i).type, here)
    elif pa.types.is_map(kind):
        yield from fields(kind.item_type, path)
    elif pa.types.is_list(kind):
        yield from fields(kind.value_type, path)


ALL = dict(fields(pa.struct(list(row_schema()))))


def test_the_columns_are_named_and_ordered_as_designed() -> None:
    names = row_schema().names
    assert names[:5] == ["id", "object", "created", "model", "choices"]
    assert names[-3:] == ["_dspark", "_rescued_data", "_corrupt_record"]
    choices = row_schema().field("choices").type.value_type
    assert [choices.field(i).name for i in range(8)] == [
        "index",
        "message",
        "text",
        "parsed",
        "parse_status",
        "finish_reason",
        "stop_reason",
        "logprobs",
    ]


def test_nothing_is_void_or_an_empty_struct_and_everything_is_nullable() -> None:
    for path, field in ALL.items():
        assert field.nullable, path
        assert not pa.types.is_null(field.type), path
        assert not (pa.types.is_struct(field.type) and field.type.num_fields == 0), path


def test_sibling_names_differ_by_more_than_case() -> None:
    lowered = [path.lower() for path in ALL]
    assert len(set(lowered)) == len(lowered)


def test_every_type_is_one_that_spark_has() -> None:
    assert to_ddl(pa.struct(list(row_schema()))).startswith("STRUCT<id: STRING, object: STRING, created: TIMESTAMP,")


def test_timestamps_say_what_their_numbers_count() -> None:
    timestamps = {path: timestamp_unit(field) for path, field in ALL.items() if pa.types.is_timestamp(field.type)}
    assert timestamps == {
        "created": "s",
        "completed_at": "s",
        "choices.message.audio.expires_at": "s",
        "_dspark.received_at": "us",
        "_dspark.appended_at": None,
    }


def test_aliases_and_what_the_reader_makes_are_in_the_metadata() -> None:
    assert wire_names(ALL["created"]) == ("created", "created_at")
    assert wire_names(ALL["choices.message.reasoning"]) == ("reasoning", "reasoning_content")
    assert wire_names(ALL["usage.prompt_tokens"]) == ("prompt_tokens", "input_tokens")
    assert wire_names(ALL["usage.completion_tokens"]) == ("completion_tokens", "output_tokens")
    made = {path for path, field in ALL.items() if wire_names(field) == ()}
    assert made == {
        "choices.parsed",
        "choices.parse_status",
        "choices.message.tool_calls.function.parsed_arguments",
        "choices.message.tool_calls.function.arguments_status",
        "_dspark.spool_id",
        "_dspark.appended_at",
        "_rescued_data",
        "_corrupt_record",
    }


def test_parsed_has_the_content_type() -> None:
    content = from_ddl("a BIGINT")
    assert row_schema(content).field("choices").type.value_type.field("parsed").type == content
    assert ALL["choices.parsed"].type == pa.string()
