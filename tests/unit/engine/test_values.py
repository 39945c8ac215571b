"""JSON values to columns: which fit, which are mismatches, and where they are rescued."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.engine.json_spans import parse
from dspark_json.engine.rescue import Path, Rescue
from dspark_json.engine.values import read, shape_of
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.fields import TIMESTAMP


def column(text: str, ddl: str) -> tuple[object, Any]:
    """(column value, rescued data) of a JSON text read as a type."""
    rescue = Rescue()
    value = read(parse(text.encode()).root, shape_of(from_ddl(ddl)), None, rescue)
    kept = rescue.text()
    return value, None if kept is None else json.loads(kept)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.0", 1),
        ("1e3", 1000),
        ("1000e-3", 1),
        ("1.5e1", 15),
        ("-0", 0),
        ("-0.0e99", 0),
        ("0e99999999999999999999999", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("-9.223372036854775808e18", -(2**63)),
        ("1" + "0" * 5000 + "e-5000", 1),
        ("0." + "0" * 5000 + "1e5001", 1),
        ("1e00000000000000000000000000002", 100),
    ],
)
def test_an_integral_number_in_range_is_a_bigint(text: str, number: int) -> None:
    assert column(text, "BIGINT") == (number, None)


@pytest.mark.parametrize(
    "text",
    [
        "1.5",
        "1e-1",
        "9223372036854775808",
        "-9223372036854775809",
        "1e19",
        "1e999999999999999999999999",
        "1e-99999999999999999999",
        '"1"',
        "true",
        "[1]",
        "{}",
    ],
)
def test_anything_else_is_a_mismatch_and_rescued_as_written(text: str) -> None:
    rescue = Rescue()
    value = read(parse(text.encode()).root, shape_of(from_ddl("BIGINT")), None, rescue)
    assert (value, rescue.text(), rescue.mismatches) == (None, f'{{"": {text}}}', 1)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal("-1e25"), max_value=Decimal("1e25")))
@settings(max_examples=200, deadline=None)
def test_bigint_is_exact_arithmetic(number: Decimal) -> None:
    text = str(number)
    exact = int(number) if number == number.to_integral_value() and -(2**63) <= number < 2**63 else None
    assert column(text, "BIGINT")[0] == exact


def test_int_has_its_own_range() -> None:
    assert column("2147483647", "INT") == (2147483647, None)
    assert column("2147483648", "INT") == (None, {"": 2147483648})


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=100, deadline=None)
def test_double_takes_the_nearest_double(number: float) -> None:
    assert column(repr(number), "DOUBLE") == (number, None)


def test_double_is_mismatched_only_by_what_is_out_of_range_or_no_number() -> None:
    assert column("7e-6122", "DOUBLE") == (0.0, None)
    assert column("9" * 400 + "e-100", "DOUBLE")[0] == float("9" * 400 + "e-100")
    assert column("-1e999", "DOUBLE")[0] is None
    assert column('"1"', "DOUBLE") == (None, {"": "1"})


@pytest.mark.parametrize("text", ["128009", "2.50", "true", '{"k": [1, 2.50]}', "[ ]"])
def test_string_takes_any_value_as_written(text: str) -> None:
    assert column(text, "STRING") == (text, None)


@pytest.mark.parametrize("ddl", ["STRING", "BIGINT", "DOUBLE", "BOOLEAN", "a INT", "ARRAY<INT>", "MAP<STRING, INT>"])
def test_null_fits_every_type(ddl: str) -> None:
    assert column("null", ddl) == (None, None)


def test_a_mismatch_is_the_field_alone() -> None:
    assert column('{"a":"x","b":{"c":1}}', "a INT, b STRUCT<c: INT>") == ({"a": None, "b": {"c": 1}}, {"a": "x"})


def test_the_last_of_duplicate_names_counts_and_so_does_its_mismatch() -> None:
    assert column('{"a":"x","a":1}', "a INT") == ({"a": 1}, None)
    assert column('{"a":1,"a":"x"}', "a INT") == ({"a": None}, {"a": "x"})
    assert column('{"a":1,"a":null}', "a INT") == ({"a": None}, None)
    assert column('{"k":1,"k":2}', "MAP<STRING, INT>") == ([("k", 2)], None)


def test_unknown_members_are_rescued_in_order_unless_null() -> None:
    rescue = Rescue()
    read(parse(b'{"z":1.0,"a":"x","n":null,"y":[ ]}').root, shape_of(from_ddl("a INT")), None, rescue)
    assert rescue.text() == '{"z": 1.0, "a": "x", "y": [ ]}'


def test_values_of_an_array_are_rescued_by_their_index() -> None:
    assert column('[1,null,"x",[2],3.5]', "ARRAY<INT>") == (
        [1, None, None, None, None],
        {"[2]": "x", "[3]": [2], "[4]": 3.5},
    )


def test_paths_write_steps_that_are_no_names_in_brackets() -> None:
    text = '{"m":{"a.b":[{"q":1}],"":2,"ok_1":3,"1a":4,"t\\"x\\n":5,"größe":6}}'
    _, rescued = column(text, "m MAP<STRING, BOOLEAN>")
    assert rescued == {
        "m['a.b']": [{"q": 1}],
        "m['']": 2,
        "m.ok_1": 3,
        "m['1a']": 4,
        "m['t\\\"x\\n']": 5,
        "m['größe']": 6,
    }
    assert column('{"it\'s":1}', "a INT")[1] == {"['it\\u0027s']": 1}
    assert str(Path(Path(Path(None, "choices"), 0), "x y")) == "choices[0]['x y']"


def test_a_renamed_column_is_matched_by_its_wire_name_exactly() -> None:
    value, rescued = column('{"first name":1,"first_name":2,"Id":3,"id":4}', "`first name` INT, id INT, ID STRING")
    assert value == {"first_name": 1, "id": 4, "ID_2": None}
    assert rescued == {"first_name": 2, "Id": 3}


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1764400000", 1_764_400_000_000_000),
        ("1764400000.25", 1_764_400_000_250_000),
        ("1.7644e9", 1_764_400_000_000_000),
        ("0.0000014", 1),
        ("1e-99999999999999999999", 0),
        ("-62135596800", -62_135_596_800_000_000),
        ("253402300800", None),
        ("1e99999", None),
        ('"2026"', None),
    ],
)
def test_seconds_become_a_timestamp_within_the_years_1_to_9999(text: str, micros: int | None) -> None:
    rescue = Rescue()
    assert read(parse(text.encode()).root, shape_of(TIMESTAMP, "s"), None, rescue) == micros
    assert rescue.mismatches == (micros is None)
