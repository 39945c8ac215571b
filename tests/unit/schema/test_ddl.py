"""Spark DDL to content types and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dspark_json.errors import ContentSchemaError, SchemaError
from dspark_json.schema.ddl import columns_to_ddl, from_ddl, to_ddl
from dspark_json.schema.fields import wire_names


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("a BIGINT", "STRUCT<a: BIGINT>"),
        ("a: long, b: Integer,c double", "STRUCT<a: BIGINT, b: INT, c: DOUBLE>"),
        (
            " a struct<x:string,y:array<map<string,boolean>>> ",
            "STRUCT<a: STRUCT<x: STRING, y: ARRAY<MAP<STRING, BOOLEAN>>>>",
        ),
        ("a STRING NOT NULL COMMENT 'it''s', b INT NOT NULL", None),
        ("a STRING NOT NULL COMMENT 'it\\'s <>,', b INT", "STRUCT<a: STRING, b: INT>"),
        ("STRING", "STRING"),
        ("ARRAY<STRUCT<a: INT>>", "ARRAY<STRUCT<a: INT>>"),
        ("array ARRAY<INT>, string INT, 1st INT", "STRUCT<array: ARRAY<INT>, string: INT, `1st`: INT>"),
        ("`a.b``c` INT", "STRUCT<`a.b``c`: INT>"),
        ("id INT, ID INT, `a b` INT", "STRUCT<id: INT, ID_2: INT, a_b: INT>"),
    ],
)
def test_columns_or_one_type_are_taken(text: str, ddl: str | None) -> None:
    if ddl is None:
        with pytest.raises(ContentSchemaError):
            from_ddl(text)
    else:
        assert to_ddl(from_ddl(text)) == ddl


def test_a_renamed_column_keeps_its_wire_name() -> None:
    assert wire_names(from_ddl("`first name` STRING").field(0)) == ("first name",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "position 0 it ends where a column's name"),
        ("a", "A is not a type"),
        ("a INT,", "position 6 it ends"),
        ("a INT b INT", 'position 6 "b" stands'),
        ("a ARRAY<INT", 'where ">" should be'),
        ("a STRUCT<>", "where a column's name"),
        ("a INT; DROP", '"; DROP" is not DDL'),
        ("a DECIMAL(10,2)", "is not DDL"),
        ("a DATE", "DATE is not a type.*STRING, BIGINT, INT"),
        ("a FLOAT", "FLOAT is not a type"),
        ("a TIMESTAMP", '"parsed.a" is of a type that JSON text'),
        ("a MAP<INT, INT>", "keys are not STRING"),
        ("a INT, a STRING", "there twice"),
        ("a " + "ARRAY<" * 60 + "INT" + ">" * 60, "deeper than 50"),
        ("a INT NOT", "NULL should be"),
        ("a INT COMMENT b", "a text between single quotes"),
    ],
)
def test_anything_else_is_refused_and_says_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(ContentSchemaError, match=says):
        from_ddl(text)


def test_columns_are_written_to_be_pasted() -> None:
    content = from_ddl("a INT, `x.y` ARRAY<STRING>")
    assert columns_to_ddl([content.field(0), content.field(1)]) == "a INT, `x.y` ARRAY<STRING>"


def test_a_type_that_no_row_has_has_no_ddl() -> None:
    with pytest.raises(SchemaError, match="date32"):
        to_ddl(pa.date32())
