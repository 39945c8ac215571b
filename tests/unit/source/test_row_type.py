"""From options and registered schemas to the types of the rows."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from dspark_json.errors import (
    ContentSchemaError,
    InvalidOptionError,
    MissingOptionError,
    OptionError,
    SchemaLocationError,
)
from dspark_json.options import reader_values
from dspark_json.schema.ddl import to_ddl
from dspark_json.schema.fields import wire_names
from dspark_json.schema.registry import RegisteredSchema, register
from dspark_json.source.row_type import RowType, resolve_row_type
from dspark_json.source.type_settings import TypeSettings, type_settings

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

ORDER = register("content", "order", {"properties": {"a": {"type": "integer"}, "b c": {"type": "string"}}}, 1)
ORDER_2 = register("content", "order", {"properties": {"a": {"type": "number"}, "d": {"type": "boolean"}}}, 2)
INVOICE = register("content", "invoice", {"properties": {"total": {"type": "number"}}}, 3)
BROKEN = register("content", "broken", {"$ref": "http://elsewhere/schema"}, 4)
WEATHER = register("tool", "weather", {"type": "object", "properties": {"city": {"type": "string"}}}, 5)
ALL = [ORDER, ORDER_2, INVOICE, BROKEN, WEATHER]


def settings(**options: str) -> TypeSettings:
    return type_settings(reader_values({"path": "/spool", **options}))


def resolved(*schemas: RegisteredSchema, **options: str) -> RowType:
    return resolve_row_type(settings(**options), lambda: list(schemas))


def never() -> list[RegisteredSchema]:
    raise AssertionError("nobody is asked")


def ddl(kind: pa.DataType | None) -> str | None:
    return None if kind is None else to_ddl(kind)


def test_without_options_parsed_is_text_and_nobody_is_asked() -> None:
    row_type = resolve_row_type(settings(), never)
    assert (row_type.content_type, row_type.tool_type) == (None, None)
    plan = row_type.plan()
    assert (plan.tools, plan.answers_of, plan.mode, plan.repair, plan.rescue_unknown) == (
        None,
        None,
        "PERMISSIVE",
        "auto",
        True,
    )


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        ("a BIGINT, b ARRAY<STRING>", "STRUCT<a: BIGINT, b: ARRAY<STRING>>"),
        ("ARRAY<INT>", "ARRAY<INT>"),
        ('{"properties": {"a": {"type": "integer"}}}', "STRUCT<a: BIGINT>"),
        (' \n{"type": "string"}', "STRING"),
        ("{}", "STRING"),
    ],
)
def test_a_content_schema_is_ddl_or_json_schema(given: str, type_: str) -> None:
    assert ddl(resolve_row_type(settings(contentSchema=given), never).content_type) == type_


@pytest.mark.parametrize(
    ("name", "text"),
    [("s.json", '\ufeff{"properties": {"a": {"type": "integer"}}}'), ("s.ddl", "a BIGINT"), ("plain", "a BIGINT\n")],
)
def test_a_content_schema_can_be_a_path(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    for given in (str(tmp_path / name), f"file://{tmp_path / name}"):
        assert ddl(resolve_row_type(settings(contentSchema=given), never).content_type) == "STRUCT<a: BIGINT>"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("/nowhere/s.json", "can't be read: No such file"),
        ("a DATE", "DATE is not a type"),
        ('{"type": "strin"}', 'the type "strin"'),
        ('{"type": ', "is not JSON"),
        ("x" * 5000, "is not a type"),
        ("a INT\0", "is not DDL"),
    ],
)
def test_a_bad_content_schema_is_a_named_error(given: str, says: str) -> None:
    with pytest.raises(ContentSchemaError, match=says):
        resolve_row_type(settings(contentSchema=given), never)


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[1]")
    with pytest.raises(ContentSchemaError, match=r"s\.json: a JSON Schema is an object"):
        resolve_row_type(settings(contentSchema=str(tmp_path / "s.json")), never)


def test_a_response_schema_gives_the_type_and_the_filter() -> None:
    row_type = resolved(*ALL, responseSchema="invoice")
    assert ddl(row_type.content_type) == "STRUCT<total: DOUBLE>"
    assert row_type.plan().answers_of == "invoice"
    assert row_type.kept.hashes == (INVOICE.hash,)


def test_a_hash_prefix_means_its_schema() -> None:
    row_type = resolved(*ALL, responseSchema=ORDER_2.hash[:8])
    assert ddl(row_type.content_type) == "STRUCT<a: DOUBLE, d: BOOLEAN>"
    assert row_type.plan().answers_of == ORDER_2.hash[:8]


def test_several_schemas_of_a_name_are_merged_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    row_type = resolved(*ALL, responseSchema="order")
    assert ddl(row_type.content_type) == "STRUCT<a: DOUBLE, b_c: STRING, d: BOOLEAN>"
    assert row_type.content_type is not None
    assert wire_names(row_type.content_type.field(1)) == ("b c",)
    assert "2 schemas are merged" in caplog.text


def test_types_that_differ_become_string_and_the_log_says_where(caplog: pytest.LogCaptureFixture) -> None:
    other = register("content", "order", {"properties": {"a": {"type": "boolean"}}}, 9)
    assert ddl(resolved(ORDER, other, responseSchema="order").content_type) == "STRUCT<a: STRING, b_c: STRING>"
    assert "a: BIGINT and BOOLEAN" in caplog.text


def test_a_star_merges_all_schemas_and_filters_nothing() -> None:
    row_type = resolved(*ALL, responseSchema="*")
    assert ddl(row_type.content_type) == "STRUCT<a: DOUBLE, b_c: STRING, d: BOOLEAN, total: DOUBLE>"
    assert row_type.plan().answers_of is None


def test_a_tool_schema_gives_the_type_of_its_arguments_and_the_filter() -> None:
    row_type = resolved(*ALL, toolSchema="weather")
    assert (row_type.content_type, ddl(row_type.tool_type)) == (None, "STRUCT<city: STRING>")
    assert row_type.plan().tools == frozenset({"weather"})
    assert resolved(*ALL, toolSchema=WEATHER.hash[:10]).plan().tools == frozenset({"weather"})
    assert resolved(*ALL, toolSchema="*").plan().tools is None


def test_a_content_schema_gives_the_type_and_a_response_schema_the_filter() -> None:
    row_type = resolve_row_type(settings(contentSchema="x INT", responseSchema="not seen yet"), never)
    assert ddl(row_type.content_type) == "STRUCT<x: INT>"
    assert row_type.plan().answers_of == "not seen yet"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"responseSchema": "ordr"}, 'responseSchema "ordr" is not registered.*Did you mean "order".*order, invoice'),
        ({"responseSchema": "weather"}, "is not registered"),
        ({"toolSchema": "order"}, 'toolSchema "order" is not registered.*weather'),
        ({"responseSchema": "broken"}, "outside of it and is not fetched"),
    ],
)
def test_what_cannot_be_resolved_is_a_named_error(options: dict[str, str], says: str) -> None:
    with pytest.raises(ContentSchemaError, match=says):
        resolved(*ALL, **options)


def test_with_nothing_registered_the_error_says_so() -> None:
    with pytest.raises(ContentSchemaError, match="None is registered yet"):
        resolved(responseSchema="order")


def test_the_schema_location_wins_over_what_the_server_says_now(tmp_path: Path) -> None:
    options = {"responseSchema": "order", "toolSchema": "weather", "schemaLocation": str(tmp_path / "types")}
    first = resolved(ORDER, WEATHER, **options)
    assert resolve_row_type(settings(**options), never) == first
    assert ddl(first.content_type) == "STRUCT<a: BIGINT, b_c: STRING>"
    assert first.kept.hashes == (ORDER.hash, WEATHER.hash)


def test_the_rule_of_names_is_not_kept_in_the_schema_location(tmp_path: Path) -> None:
    resolved(ORDER, responseSchema="order", schemaLocation=str(tmp_path))
    exact = settings(responseSchema="order", schemaLocation=str(tmp_path), fieldNames="exact")
    assert ddl(resolve_row_type(exact, never).content_type) == "STRUCT<a: BIGINT, `b c`: STRING>"


def test_another_name_than_the_schema_location_has_is_a_named_error(tmp_path: Path) -> None:
    resolved(*ALL, responseSchema="order", schemaLocation=str(tmp_path))
    with pytest.raises(SchemaLocationError, match='responseSchema "order", and responseSchema is "invoice"'):
        resolved(*ALL, responseSchema="invoice", schemaLocation=str(tmp_path))


def test_a_schema_location_gets_what_it_lacks(tmp_path: Path) -> None:
    resolved(*ALL, responseSchema="order", schemaLocation=str(tmp_path))
    both = {"responseSchema": "order", "toolSchema": "weather", "schemaLocation": str(tmp_path)}
    resolved(*ALL, **both)
    assert ddl(resolve_row_type(settings(**both), never).tool_type) == "STRUCT<city: STRING>"


def test_what_a_schema_location_has_of_a_tool_means_nothing_without_the_option(tmp_path: Path) -> None:
    both = {"responseSchema": "order", "toolSchema": "weather", "schemaLocation": str(tmp_path)}
    resolved(*ALL, **both)
    del both["toolSchema"]
    row_type = resolve_row_type(settings(**both), never)
    assert (row_type.tool_type, row_type.plan().tools) == (None, None)


@pytest.mark.parametrize(
    ("hints", "type_"),
    [
        ("a DOUBLE", "a: DOUBLE, b: STRUCT<x: BIGINT>, l: ARRAY<STRUCT<y: STRING>>"),
        ("b.x: STRING", "a: BIGINT, b: STRUCT<x: STRING>, l: ARRAY<STRUCT<y: STRING>>"),
        ("l.element.y INT, l.element.z INT", "a: BIGINT, b: STRUCT<x: BIGINT>, l: ARRAY<STRUCT<y: INT, z: INT>>"),
        ("l STRING COMMENT 'as text', a INT", "a: INT, b: STRUCT<x: BIGINT>, l: STRING"),
        ("b.m MAP<STRING, INT>", "a: BIGINT, b: STRUCT<x: BIGINT, m: MAP<STRING, INT>>, l: ARRAY<STRUCT<y: STRING>>"),
    ],
)
def test_hints_change_types_and_add_fields(hints: str, type_: str) -> None:
    schema = "a BIGINT, b STRUCT<x: BIGINT>, l ARRAY<STRUCT<y: STRING>>"
    row_type = resolve_row_type(settings(contentSchema=schema, schemaHints=hints), never)
    assert ddl(row_type.content_type) == f"STRUCT<{type_}>"


def test_a_hint_finds_a_field_by_its_name_on_the_wire() -> None:
    row_type = resolved(ORDER, responseSchema="order", schemaHints="`b c` BIGINT, `x y` INT")
    assert ddl(row_type.content_type) == "STRUCT<a: BIGINT, b_c: BIGINT, x_y: INT>"
    assert row_type.content_type is not None
    assert wire_names(row_type.content_type.field(2)) == ("x y",)


@pytest.mark.parametrize(
    ("hints", "says"),
    [
        ("a.b INT", '"b" is not inside a STRUCT'),
        ("x.y INT", 'no "x".*fields there are: a, b_c'),
        ("a DECIMAL", "DECIMAL is not a type"),
        ("a", "it ends where a type should be"),
        ("a TIMESTAMP", "JSON text can't be parsed to"),
        ("a INT b INT", '"b" stands'),
    ],
)
def test_a_bad_hint_is_a_named_error(hints: str, says: str) -> None:
    with pytest.raises(ContentSchemaError, match=says):
        resolved(ORDER, responseSchema="order", schemaHints=hints)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"schemaHints": "a INT"}, InvalidOptionError, "no content type"),
        ({"schemaEvolutionMode": "addNewColumns"}, InvalidOptionError, "no type comes from the server"),
        (
            {"schemaEvolutionMode": "addNewColumns", "responseSchema": "x", "contentSchema": "a INT"},
            InvalidOptionError,
            "contentSchema",
        ),
        ({"schemaEvolutionMode": "addnewcolumns", "responseSchema": "x"}, MissingOptionError, "schemaLocation"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, str], error: type[OptionError], says: str
) -> None:
    with pytest.raises(error, match=says):
        settings(**options)


def test_the_rows_have_the_types_and_the_names_of_the_options() -> None:
    row_type = resolved(
        *ALL, responseSchema="invoice", toolSchema="weather", rescuedDataColumn="rest", columnNameOfCorruptRecord="bad"
    )
    rows = row_type.plan().declared
    assert rows.names[-2:] == ["rest", "bad"]
    choice = rows.field("choices").type.value_type
    assert ddl(choice.field("parsed").type) == "STRUCT<total: DOUBLE>"
    function = choice.field("message").type.field("tool_calls").type.value_type.field("function").type
    assert ddl(function.field("parsed_arguments").type) == "STRUCT<city: STRING>"


def test_new_schemas_add_fields_at_the_end_and_change_no_type() -> None:
    nested = register(
        "content", "n", {"properties": {"o": {"properties": {"x": {"type": "integer"}}}, "l": {"type": "array"}}}, 1
    )
    later = register(
        "content",
        "n",
        {
            "properties": {
                "new": {"type": "string"},
                "o": {"properties": {"y": {"type": "string"}, "x": {"type": "string"}}},
                "l": {"type": "string"},
            }
        },
        2,
    )
    row_type = resolved(nested, responseSchema="n")
    grown = row_type.grown([nested, later])
    assert ddl(grown.content_type) == "STRUCT<o: STRUCT<x: BIGINT, y: STRING>, l: ARRAY<STRING>, new: STRING>"
    assert row_type.grown([nested]) == row_type
    assert grown.grown([nested, later]) == grown


def test_a_row_type_travels_between_processes_with_its_wire_names() -> None:
    row_type = resolved(*ALL, responseSchema="order", toolSchema="weather")
    back = pickle.loads(pickle.dumps(row_type))
    assert back == row_type
    assert back.plan().declared.equals(row_type.plan().declared, check_metadata=True)


def test_any_field_name_of_a_schema_comes_back_from_the_schema_location(tmp_path: Path) -> None:
    names = ["a`b", "a\nb", "``", "a.b", "é", "", "Select", "1", "A", "a", "\u2028", "x:y<z>", '"']
    schema = register("content", "odd", {"properties": {name: {"type": "integer"} for name in names}}, 1)
    options: dict[str, Any] = {"responseSchema": "odd", "schemaLocation": str(tmp_path)}
    first = resolved(schema, **options)
    again = resolve_row_type(settings(**options), never)
    assert again.plan().declared.equals(first.plan().declared, check_metadata=True)
    assert first.content_type is not None
    found = [wire_names(first.content_type.field(i))[0] for i in range(first.content_type.num_fields)]
    assert found == names
    assert json.loads((tmp_path / "dspark_schema.json").read_text())["hashes"] == [schema.hash]
