"""Values against the constraints of JSON Schemas, those of hostile clients too."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from dspark_json.errors import MissingPackageError
from dspark_json.schema.checking_cost import CheckingCost, SchemaRefusedError
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
    assert check(EXPRESSION, nested(5)) == []
    assert check(EXPRESSION, nested(20)) == ["schema too costly"]
    kids: dict[str, Any] = {"v": 3}
    for _ in range(60):
        kids = {"kids": [kids]}
    assert check(TREE, kids) == []
    assert check(TREE, {"kids": [{"kids": [{"v": 4}]}]}) == ["#/kids/0/kids/0/v maximum"]


def test_wide_schemas_and_long_chains_are_affordable() -> None:
    wide = {"properties": {f"p{i}": {"properties": {"id": {"type": "integer"}}} for i in range(2_000)}}
    assert check(wide, {f"p{i}": {"id": i} for i in range(2_000)}) == []
    parts = {f"a{i}": {"properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(4_000)}
    found: list[list[str]] = []
    chain = {"$ref": "#/$defs/a0", "$defs": {**parts, "a4000": {}}}
    thread = threading.Thread(target=lambda: found.append(check(chain, {"x": {"x": 1}})))
    thread.start()
    thread.join()
    assert found == [[]]
    with pytest.raises(SchemaRefusedError):
        CheckingCost({"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(900)}})


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


def everywhere(definitions: int, properties: int) -> dict[str, Any]:
    """Definitions whose properties lead to any of them, all evaluated at once: each place differs."""
    chosen = random.Random(1)
    parts = {
        f"d{i}": {
            "properties": {f"p{j}": {"$ref": f"#/$defs/d{chosen.randrange(definitions)}"} for j in range(properties)}
        }
        for i in range(definitions)
    }
    return {"allOf": [{"$ref": f"#/$defs/{name}"} for name in parts], "$defs": parts}


def bushy(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {f"p{i}": value for i in range(6)}
    return value


# Schemas and values of a few kilobytes to a megabyte; the work that they ask for is a product of parts of both.
PRODUCTS: dict[str, tuple[Any, Any]] = {
    "required": ({"items": {"required": names(5_000)}}, [{}] * 5_000),
    "dependentRequired": ({"items": {"dependentRequired": {"a": names(5_000)}}}, [{"a": 1}] * 5_000),
    "required in anyOf": ({"anyOf": [{"items": {"required": names(5_000)}}]}, [{}] * 5_000),
    "required of a large value": ({"required": names(5_000)}, {"a": list(range(100_000))}),
    "enum": ({"items": {"enum": names(20_000)}}, ["x"] * 50_000),
    "enum of objects": (
        {"items": {"enum": [{"a": [*range(40), i]} for i in range(2_000)]}},
        [{"a": [*range(41)]}] * 5_000,
    ),
    "const": ({"items": {"const": list(range(20_000))}}, [1] * 50_000),
    "anyOf": ({"items": {"anyOf": [{"const": i} for i in range(1_900)]}}, [-1] * 20_000),
    "oneOf": ({"items": {"oneOf": [{"const": i} for i in range(1_900)]}}, [-1] * 20_000),
    "type": ({"items": {"type": "string"}}, [1] * 300_000),
    "properties": (
        {"items": {"properties": {n: {"type": "string"} for n in names(300)}}},
        [dict.fromkeys(names(300), 1)] * 200,
    ),
    "patternProperties": (
        {"patternProperties": {f"^n.*{i}$": False for i in range(900)}},
        dict.fromkeys(names(20_000), 1),
    ),
    "pattern": ({"items": {"pattern": "[01]*1[01]{6000}x"}}, ["0110100110010110" * 4_000] * 10),
    "propertyNames": ({"propertyNames": {"pattern": "[01]*1[01]{6000}x"}}, {"0110100110010110" * 40_000: 1}),
    "names": ({"propertyNames": {"maxLength": 1, "enum": names(9_000)}}, {f"name {i}": 1 for i in range(40_000)}),
    "long way": (
        {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{i}": {"items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(99)} | {"a99": {"items": False}},
        },
        json.loads("[" * 100 + ",".join("1" * 20_000) + "]" * 100),
    ),
    "states": (everywhere(64, 10), bushy(5)),
    "more states": (everywhere(64, 20), bushy(5)),
    "most states": (everywhere(90, 90), bushy(5)),
}
LIMITED = """
import json, resource, sys
from dspark_json.schema.constraints import Constraints
schema, value = json.load(sys.stdin)
text = json.dumps(value).encode()
constraints = Constraints({})
constraints.violations(text)
used = resource.getrusage(resource.RUSAGE_SELF)
resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 10, resource.RLIM_INFINITY))
with open("/proc/self/statm") as file:
    mapped = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (256 << 20), resource.RLIM_INFINITY))
print(json.dumps(Constraints(schema).violations(text)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process, as Linux has them")
@pytest.mark.parametrize("kind", PRODUCTS)
def test_no_product_of_a_schema_and_a_value_takes_long_or_much_memory(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], input=json.dumps(PRODUCTS[kind]), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found == ["schema too costly"] or (found[0].startswith("#") and found[-1] == "…")


def test_where_all_violations_cost_too_much_the_first_is_told_and_that_there_are_more() -> None:
    assert check({"items": {"required": names(400)}}, [{}] * 400) == ["#/0/n0 required", "…"]
    assert check({"items": {"enum": ["a", *names(5_000)]}}, ["a"] * 200 + ["b"] * 200) == ["#/200 enum", "…"]
    assert check({"anyOf": [{"items": {"required": names(400)}}]}, [{}] * 400) == ["schema too costly"]


def test_hundreds_of_members_in_hundreds_of_items_are_checked_and_all_their_violations_found() -> None:
    kinds: tuple[dict[str, Any], ...] = ({"type": "integer"}, {"type": ["string", "null"]}, {"type": "number"})
    known = {name: kinds[i % 3] for i, name in enumerate(names(200))}
    item = {"type": "object", "properties": known, "required": names(200), "additionalProperties": False}
    kept = [{name: (i, "x", 0.5)[i % 3] for i, name in enumerate(names(200))} for _ in range(300)]
    schema = {"type": "object", "properties": {"rows": {"type": "array", "maxItems": 299, "items": item}}}
    assert check(schema, {"rows": kept[:299]}) == []
    kept[7]["n0"] = "0"
    del kept[290]["n5"]
    assert set(check(schema, {"rows": kept})) == {"#/rows/7/n0 type", "#/rows/290/n5 required", "#/rows maxItems"}
    assert check({"items": {"type": "integer"}}, list(range(100_000))) == []


def test_without_its_package_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(MissingPackageError, match=r"dspark-json\[checks\]"):
        require_checker()
