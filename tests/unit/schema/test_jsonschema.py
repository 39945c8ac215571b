"""JSON Schema to column types, case by case of the table, and bounded whatever the schema."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.content_type import MAX_LEVELS, checked_content_type
from dspark_json.schema.ddl import to_ddl
from dspark_json.schema.fields import wire_names
from dspark_json.schema.jsonschema import from_json_schema, json_schema_from_text


def made(schema: Any) -> str:
    return to_ddl(from_json_schema(schema))


def member(schema: Any) -> str:
    """The type of a field with this schema."""
    return made({"type": "object", "properties": {"f": schema}}).removeprefix("STRUCT<f: ").removesuffix(">")


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "string", "format": "date-time"}, "STRING"),
        ({"type": "integer", "minimum": 0}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": "null"}, "STRING"),
        ({}, "STRING"),
        (True, "STRING"),
        (False, "STRING"),
        ({"not": {"type": "string"}}, "STRING"),
        ({"description": "no type"}, "STRING"),
        ({"type": "object"}, "STRING"),
        ({"type": "object", "properties": {}}, "STRING"),
        ({"type": "object", "additionalProperties": False}, "STRING"),
        ({"type": "object", "additionalProperties": True}, "STRING"),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, "STRING"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "MAP<STRING, BIGINT>"),
        ({"type": "object", "additionalProperties": {}}, "MAP<STRING, STRING>"),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, "STRUCT<a: STRING>"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<BIGINT>"),
        ({"type": "array"}, "ARRAY<STRING>"),
        ({"type": "array", "items": True}, "ARRAY<STRING>"),
        ({"type": "array", "items": [{"type": "integer"}]}, "ARRAY<STRING>"),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "integer"}}, "ARRAY<STRING>"),
        ({"properties": {"a": {"type": "integer"}}}, "STRUCT<a: BIGINT>"),
        ({"items": {"type": "number"}}, "ARRAY<DOUBLE>"),
        ({"type": "string", "properties": {"a": {}}, "enum": [1]}, "STRING"),
        ({"enum": ["a", "b", None]}, "STRING"),
        ({"enum": [1, 2]}, "BIGINT"),
        ({"enum": [1, 2.5]}, "DOUBLE"),
        ({"enum": [True, False]}, "BOOLEAN"),
        ({"enum": [True, 1]}, "STRING"),
        ({"enum": [{"a": 1}]}, "STRING"),
        ({"enum": []}, "STRING"),
        ({"const": 1}, "BIGINT"),
        ({"const": None}, "STRING"),
        ({"type": ["integer", "null"]}, "BIGINT"),
        ({"type": ["integer", "number", "null"]}, "DOUBLE"),
        ({"type": ["integer", "string"]}, "STRING"),
        ({"type": ["object", "null"], "properties": {"a": {"type": "boolean"}}}, "STRUCT<a: BOOLEAN>"),
        ({"type": ["array", "null"], "items": {"type": "boolean"}}, "ARRAY<BOOLEAN>"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "BIGINT"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "DOUBLE"),
        ({"anyOf": [{"type": "integer"}, {"type": "integer", "minimum": 9}]}, "BIGINT"),
        ({"anyOf": [{"type": "integer"}, {}]}, "STRING"),
        ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, "STRING"),
        ({"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "number"}]}, "DOUBLE"),
        (
            {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "STRUCT<a: STRING>",
        ),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, "BIGINT"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "STRING"),
        ({"allOf": [{"type": "object"}], "properties": {"a": {}}}, "STRUCT<a: STRING>"),
        (
            {
                "allOf": [{"properties": {"a": {"type": "integer"}, "b": {}}}],
                "properties": {"c": {"type": "number"}, "b": {"type": "boolean"}},
            },
            "STRUCT<a: BIGINT, b: BOOLEAN, c: DOUBLE>",
        ),
    ],
)
def test_the_table_of_types(schema: Any, ddl: str) -> None:
    assert made(schema) == ddl
    assert member(schema) == ddl


def test_references_are_resolved_inside_the_document_with_their_siblings() -> None:
    schema = {
        "$defs": {"P/x y": {"type": "object", "properties": {"x": {"type": "integer"}}}, "T": [{"type": "number"}]},
        "type": "object",
        "properties": {
            "p": {"$ref": "#/$defs/P~1x%20y", "description": "d", "properties": {"y": {"type": "boolean"}}},
            "t": {"$ref": "#/$defs/T/0"},
            "u": {"$ref": "#/properties/t"},
        },
    }
    assert made(schema) == "STRUCT<p: STRUCT<x: BIGINT, y: BOOLEAN>, t: DOUBLE, u: DOUBLE>"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_type_that_comes_back_to_itself_is_string(schema: Any) -> None:
    assert made(schema) == "STRING"


def test_recursion_is_cut_where_it_begins_again() -> None:
    tree = {
        "type": "object",
        "properties": {
            "v": {"type": "integer"},
            "left": {"$ref": "#"},
            "kids": {"type": "array", "items": {"$ref": "#"}},
        },
    }
    assert made(tree) == "STRUCT<v: BIGINT, left: STRING, kids: ARRAY<STRING>>"


def test_fields_are_renamed_for_delta_and_keep_their_wire_names() -> None:
    schema = {"type": "object", "properties": {"first name": {}, "id": {}, "Id": {"type": "integer"}}}
    kind = from_json_schema(schema)
    assert to_ddl(kind) == "STRUCT<first_name: STRING, id: STRING, Id_2: BIGINT>"
    assert [wire_names(kind.field(i)) for i in range(3)] == [("first name",), ("id",), ("Id",)]
    assert to_ddl(from_json_schema(schema, names="exact")) == "STRUCT<`first name`: STRING, id: STRING, Id: BIGINT>"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "https://example.com/s.json"}, "is not fetched"),
        ({"$ref": "other.json#/a"}, "is not fetched"),
        ({"$ref": "#/$defs/missing"}, "which it does not have"),
        ({"$ref": "#anchor"}, "which it does not have"),
        ({"$ref": 1}, "must be a string"),
        ({"type": "nonsense"}, '"nonsense"'),
        ({"type": 1}, "the type 1"),
        ({"properties": []}, None),
        ({"properties": [1]}, '"properties" must be an object'),
        ({"properties": {"a": 1}}, "not 1"),
        ({"anyOf": {}}, '"anyOf" must be an array'),
        ([], "not \\[\\]"),
        ("x", 'not "x"'),
        (None, "not null"),
    ],
)
def test_what_is_no_schema_is_a_named_error(schema: Any, says: str | None) -> None:
    if says is None:
        assert made(schema) == "STRING"
    else:
        with pytest.raises(ContentSchemaError, match=says):
            from_json_schema(schema)


def test_a_remote_reference_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        with pytest.raises(ContentSchemaError):
            from_json_schema({"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/s.json"})
        with pytest.raises(TimeoutError):
            server.accept()


def test_five_thousand_fields_are_taken_and_one_more_is_a_named_error() -> None:
    def schema(fields: int) -> Any:
        return {"type": "object", "properties": {f"f{i}": {"type": "integer"} for i in range(fields)}}

    assert from_json_schema(schema(5_000)).num_fields == 5_000
    with pytest.raises(ContentSchemaError, match="5,000"):
        from_json_schema(schema(5_001))


def test_two_hundred_levels_are_a_usable_type_whose_depth_is_json_text() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    kind = from_json_schema(schema)
    assert checked_content_type(kind) == kind
    levels = 0
    while pa.types.is_struct(kind):
        kind, levels = kind.field(0).type, levels + 1
    assert (levels, kind) == (MAX_LEVELS - 1, pa.string())
    # Arrow's own limit holds for a whole row.
    sink = pa.BufferOutputStream()
    row = pa.schema([("choices", pa.list_(pa.struct([("parsed", from_json_schema(schema))])))])
    pa.ipc.new_stream(sink, row).close()
    assert pa.ipc.open_stream(sink.getvalue()).schema == row


@pytest.mark.parametrize("combine", ["properties", "allOf", "anyOf"])
def test_references_that_double_at_each_step_end_in_bounded_time(combine: str) -> None:
    def step(i: int) -> Any:
        ref = {"$ref": f"#/$defs/d{i + 1}"}
        return {combine: {"x": ref, "y": ref}} if combine == "properties" else {combine: [ref, dict(ref)]}

    schema = {"$defs": {f"d{i}": step(i) for i in range(40)} | {"d40": {"type": "integer"}}, "$ref": "#/$defs/d0"}
    started = time.process_time()
    with pytest.raises(ContentSchemaError):
        from_json_schema(schema)
    assert time.process_time() - started < 10


def doubling(leaf: Any, combine: str = "anyOf", steps: int = 40) -> Any:
    pairs = {f"d{i}": {combine: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(steps)}
    return {"$defs": pairs | {f"d{steps}": leaf}, "$ref": "#/$defs/d0"}


def shared(definition: Any, times: int) -> Any:
    return {"$defs": {"e": definition}, "anyOf": [{"$ref": "#/$defs/e"}] * times}


def arrays(levels: int) -> Any:
    return {"items": arrays(levels - 1)} if levels else {}


def maps(levels: int) -> Any:
    return {"type": "object", "additionalProperties": maps(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    "schema",
    [
        doubling({"type": "string"}),
        doubling({"enum": [1] * 60_000}),
        doubling({"type": ["string"] * 20_000}),
        doubling({"$ref": "#/$defs/" + "%41" * 60_000, "$defs": {}}),
        {"allOf": [{"properties": {f"a{i}": {}}} for i in range(5_000)]},
        shared({f"k{i}": 0 for i in range(15_000)}, 3_000),
        shared({"anyOf": [True] * 24_000}, 500),
        shared({"enum": ["a"] * 40_000}, 3_000),
        {"type": ["object"] * 24_000, "properties": {}},
        {"$defs": {"a": arrays(46)}, "properties": {f"f{i}": {"$ref": "#/$defs/a"} for i in range(4_000)}},
        {"$defs": {"a": maps(23)}, "properties": {f"f{i}": {"$ref": "#/$defs/a"} for i in range(4_000)}},
        {
            "$defs": {"a": {"properties": {f"{i}" + "y" * 4_000: {} for i in range(50)}}},
            "properties": {f"f{i}": {"$ref": "#/$defs/a"} for i in range(95)},
        },
        {"type": json.loads("[" * 900 + "]" * 900)},
    ],
    ids=range(13),
)
def test_no_schema_of_a_request_costs_more_than_a_fraction_of_a_second(schema: Any) -> None:
    assert len(json.dumps(schema)) < 300_000
    started = time.process_time()
    try:
        text = to_ddl(from_json_schema(schema, names="exact"))
    except ContentSchemaError:
        text = ""
    assert len(text) < 1_000_000
    assert time.process_time() - started < 1  # about 40 ms; it was minutes before there was a limit


def test_large_schemas_of_every_day_are_within_the_limits() -> None:
    def wide(fields: int, part: Any) -> Any:
        return {"type": "object", "properties": {f"field_{i:04}": part for i in range(fields)}}

    words = {"$defs": {"e": {"enum": [f"word {i}" for i in range(1_000)]}}}
    for schema in (
        wide(4_500, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        wide(2_500, {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}),
        wide(2_500, {"type": "object", "additionalProperties": {"type": "number"}}),
        wide(2_000, {"$ref": "#/$defs/e", "description": "one of many words"}) | words,
        {"allOf": [wide(20, {"type": "string"})] * 100},
    ):
        kind = from_json_schema(schema)
        assert checked_content_type(kind) == kind


def test_a_name_that_is_not_unicode_is_a_named_error() -> None:
    with pytest.raises(ContentSchemaError, match="not Unicode"):
        from_json_schema({"properties": {"\ud800": {}}})


def test_a_schema_text_that_is_no_json_or_too_deep_is_a_named_error() -> None:
    assert json_schema_from_text('{"type":"string"}') == {"type": "string"}
    for text in ("{", "[" * 100_000):
        with pytest.raises(ContentSchemaError, match="is not JSON"):
            json_schema_from_text(text)


KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "additionalProperties", "a", "$defs"]
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["object", "array", "string", "integer", "#", "#/$defs/a", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=15,
)


@given(ANYTHING)
@settings(max_examples=200, deadline=None)
def test_any_document_gives_a_type_that_content_can_have_or_a_named_error(schema: Any) -> None:
    try:
        kind = from_json_schema(json.loads(json.dumps(schema)))
    except ContentSchemaError:
        return
    assert checked_content_type(kind) == kind
