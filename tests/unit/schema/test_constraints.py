"""Values against the constraints of JSON Schemas, those of hostile clients too."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pytest

from dspark_json.errors import MissingPackageError
from dspark_json.schema.checking_cost import SchemaRefusedError, affordable_depth
from dspark_json.schema.constraints import Constraints, require_checker

ORDER = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 1, "multipleOf": 0.01},
        "kind": {"enum": ["a", "b"]},
        "code": {"type": "string", "pattern": "^[A-Z]{3}$", "maxLength": 3},
        "items": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/item"}},
    },
    "required": ["amount", "kind"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}},
}


def check(schema: object, value: object) -> list[str]:
    return Constraints(schema).violations(value if isinstance(value, bytes) else json.dumps(value).encode())


def test_a_value_that_keeps_all_constraints_has_no_violations() -> None:
    assert check(ORDER, {"amount": 1.15, "kind": "a", "code": "ABC", "items": [{"id": 1}]}) == []


def test_violations_are_a_pointer_and_the_keyword() -> None:
    value = {"amount": 0.001, "code": "abcd", "items": [{"id": 1}, {"id": "x"}, {}], "a/b~c": 1}
    assert set(check(ORDER, value)) == {
        "#/amount minimum",
        "#/amount multipleOf",
        "#/kind required",
        "#/code pattern",
        "#/code maxLength",
        "#/items/1/id type",
        "#/items/2/id required",
        "#/a~1b~0c additionalProperties",
    }
    assert check(ORDER, 5) == ["# type"]
    assert check(False, 5) == ["# falseSchema"]
    assert check({"anyOf": [{"type": "string"}, {"minimum": 6}]}, 5) == ["# anyOf"]


def test_of_many_violations_the_first_are_told_and_that_there_are_more() -> None:
    found = check({"items": {"type": "string"}}, list(range(100)))
    assert found == [*(f"#/{i} type" for i in range(16)), "…"]
    assert len(check({"items": {"type": "string"}}, list(range(16)))) == 16
    (long,) = check({"additionalProperties": False}, {"x" * 1000: 1})
    assert len(long) < 240


def test_numbers_have_all_their_digits() -> None:
    assert check({"maximum": 123456789012345678901234567890}, b"123456789012345678901234567891") == ["# maximum"]
    assert check({"const": 0.1234567890123456}, b"0.1234567890123456") == []
    assert check({"type": "integer"}, b"1e400") == []
    assert check({"maximum": 5}, b"1e400") == ["# maximum"]


def test_lone_surrogates_are_replacement_characters() -> None:
    assert check({"const": "\ufffd"}, b'"\\ud800"') == []
    assert check({"required": ["\ufffd"]}, b'{"\\udfff": 1}') == []


def test_formats_are_not_checked() -> None:
    assert check({"format": "email"}, "nobody") == []
    assert check({"$schema": "http://json-schema.org/draft-07/schema#", "format": "ipv4"}, "x") == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "nope"}, "schema invalid"),
        ({"pattern": "["}, "schema invalid"),
        ({"pattern": "(?=look)around"}, "schema invalid"),
        ({"pattern": "((a{100}){100}){100}"}, "schema invalid"),
        ({"$schema": "http://nowhere.invalid/schema"}, "schema invalid"),
        ({"$ref": "#/none"}, "schema invalid"),
        ({"$ref": 5}, "schema invalid"),
        ({"required": ["\ud800"]}, "schema invalid"),
        (5, "schema invalid"),
        ({"$ref": "http://127.0.0.1:9/x"}, "schema refers outside"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "schema refers outside"),
        ({"properties": {"a": {"$id": "http://x/y", "$ref": "#/z"}}}, "schema refers outside"),
        ({"$ref": "#"}, "schema too costly"),
        ({"$dynamicRef": "#x"}, "schema too costly"),
    ],
)
def test_a_schema_that_can_not_be_used_is_told_and_nothing_is_raised(schema: object, why: str) -> None:
    assert check(schema, {"a": 1}) == [why]


def test_a_pattern_takes_linear_time_whatever_it_is() -> None:
    started = time.monotonic()
    assert check({"pattern": "^(a+)+$"}, "a" * 50_000 + "b") == ["# pattern"]
    assert time.monotonic() - started < 10  # a backtracking engine would need longer than there is


def doubling(steps: int) -> dict[str, Any]:
    parts = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(steps)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{steps}": {"type": "string"}}}


EXPRESSION = {
    "anyOf": [
        {"type": "integer"},
        {"properties": {"op": {"const": "+"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["op"]},
        {"properties": {"op": {"const": "-"}, "left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["op"]},
    ]
}
TREE = {"type": "object", "properties": {"v": {"maximum": 3}, "kids": {"type": "array", "items": {"$ref": "#"}}}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"op": "-", "left": value, "right": 1}
    return value


def test_work_that_doubles_at_every_step_is_refused_before_it_begins() -> None:
    assert check(doubling(5), 1) == ["# type"]
    assert check(doubling(60), "x") == ["schema too costly"]
    unevaluated: dict[str, Any] = {"type": "object"}
    for _ in range(12):
        unevaluated = {"allOf": [unevaluated], "unevaluatedProperties": False}
    assert check(unevaluated, {}) == ["schema too costly"]


def test_work_that_doubles_at_every_level_is_done_as_deep_as_it_is_affordable() -> None:
    depth = affordable_depth(EXPRESSION)
    assert 5 <= depth < 20
    assert check(EXPRESSION, nested(depth)) == []
    assert check(EXPRESSION, nested(depth + 1)) == ["schema too costly"]
    assert affordable_depth(TREE) == 128
    assert check(TREE, {"kids": [{"kids": [{"v": 4}]}]}) == ["#/kids/0/kids/0/v maximum"]


def test_wide_schemas_and_long_chains_are_affordable() -> None:
    wide = {"properties": {f"p{i}": {"properties": {"id": {"type": "integer"}}} for i in range(2_000)}}
    assert affordable_depth(wide) == 128
    parts = {f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(4_000)}
    found: list[list[str]] = []
    chain = {"$ref": "#/$defs/a0", "$defs": {**parts, "a4000": {}}}
    thread = threading.Thread(target=lambda: found.append(check(chain, {"x": {"x": 1}})))
    thread.start()
    thread.join()
    assert found == [[]]
    with pytest.raises(SchemaRefusedError):
        affordable_depth({"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(900)}})


def test_without_its_package_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingPackageError, match=r"dspark-json\[checks\]"):
        require_checker()
