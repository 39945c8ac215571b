"""What the registry holds of a schema, which ones a name means, and how several become one type."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.jsonschema import from_json_schema
from dspark_json.schema.registry import RegisteredSchema, merged_type, register, select

T = 1_795_970_578_000_000


def struct(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}


def registered(*schemas: object, name: str | None = "order") -> list[RegisteredSchema]:
    return [register("content", name, schema, T + number) for number, schema in enumerate(schemas)]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = struct(a=schema)
    return schema


def test_the_hash_is_over_kind_name_and_type_and_the_same_for_ever() -> None:
    found = register("content", "order", struct(id=TEXT, **{"unit price": NUMBER}), T)
    assert found.type_text == "STRUCT<id: STRING, `unit price`: DOUBLE>"
    assert found.hash == "93190fe05c10e31128dc89f75bfd8f3aaa788a4e66e5ca8a0937f95f15e6fd62"


def test_schemas_that_differ_in_enum_values_or_descriptions_share_a_hash() -> None:
    plain = register("content", "order", struct(size={"enum": ["s", "m"]}), T)
    other = struct(size={"enum": ["s", "m", "l"], "description": "new"})
    assert register("content", "order", {**other, "title": "x"}, T + 9).hash == plain.hash


@pytest.mark.parametrize(
    ("kind", "name", "schema"),
    [
        ("tool", "order", struct(a_b=TEXT)),
        ("content", "risk", struct(a_b=TEXT)),
        ("content", None, struct(a_b=TEXT)),
        ("content", "order", struct(a_b=WHOLE)),
        ("content", "order", struct(**{"a b": TEXT})),  # the same column name, another name on the wire
        ("content", "order", struct(a_b=TEXT, c=TEXT)),
    ],
)
def test_another_kind_name_type_or_wire_name_is_another_hash(kind: Any, name: str | None, schema: object) -> None:
    assert register(kind, name, schema, T).hash != register("content", "order", struct(a_b=TEXT), T).hash


def test_the_order_of_fields_is_part_of_the_type() -> None:
    assert len({s.hash for s in registered(struct(a=TEXT, b=TEXT), struct(b=TEXT, a=TEXT))}) == 2


def test_a_schema_that_no_type_can_be_made_of_is_registered_with_its_error() -> None:
    first = register("content", "bad", {"type": "nonsense"}, T)
    assert first.type_text is None
    assert first.error == {
        "code": "DSPARK_JSON_CONTENT_SCHEMA",
        "message": 'the JSON Schema has the type "nonsense"',
    }
    assert first.hash == register("content", "bad", {"type": "nonsense"}, T + 1).hash
    assert first.hash != register("content", "bad", {"type": "nonsense", "description": "x"}, T).hash
    assert (
        register("content", "bad", {"$ref": "#/x", "a": 1}, T).hash
        == register("content", "bad", {"a": 1, "$ref": "#/x"}, T).hash
    )
    with pytest.raises(ContentSchemaError, match=r'the schema "bad" \([0-9a-f]{12}\) can\'t be made a column type'):
        first.arrow_type()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"\ud800": {}}},
        {"$ref": "#/\udfff" + "x" * 10_000},
        {"type": json.loads("[" * 900 + "]" * 900)},
        {"properties": json.loads('{"a":' * 900 + "1" + "}" * 900)},
        {"$ref": "http://example.com/schema.json"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"enum": [10**400]},
        {"not": {}, "patternProperties": {"^a": {}}},
        struct(**{f"f{i}": TEXT for i in range(6_000)}),
        nested(200),
        True,
        False,
        {},
    ],
    ids=lambda schema: str(schema)[:30].encode("ascii", "replace").decode(),
)
def test_any_schema_gives_a_document_that_can_be_written_and_read(schema: object) -> None:
    found = register("content", "n", schema, T)
    assert (found.type_text is None) != (found.error is None)
    document = found.to_document()
    assert len(orjson.dumps({"schemas": [document]})) < 300_000
    read = json.loads(json.dumps(document, ensure_ascii=False).encode())
    assert RegisteredSchema.from_document(read).hash == found.hash
    if found.type_text is not None:
        assert found.arrow_type("safe") == from_json_schema(schema)


def test_a_schema_nested_too_deeply_to_be_kept_still_has_its_type() -> None:
    found = register("content", "deep", nested(200), T)
    assert found.schema is None
    assert found.error is None
    assert found.arrow_type() == from_json_schema(nested(200))


def test_a_document_comes_back_as_the_schema_it_was_made_of() -> None:
    found = register("tool", None, struct(a=TEXT), T)
    document = found.to_document()
    assert list(document) == ["hash", "name", "kind", "type", "error", "schema", "first_seen"]
    assert RegisteredSchema.from_document({**document, "count": 3, "last_used": T}) == found


@pytest.mark.parametrize("broken", [{}, {"hash": 1}, {"first_seen": "x"}, {"type": []}, {"error": "x"}, {"name": 3}])
def test_a_document_without_its_members_is_refused_with_a_named_error(broken: dict[str, Any]) -> None:
    document = register("content", "order", struct(a=TEXT), T).to_document()
    with pytest.raises(ContentSchemaError, match="a document of the schema registry has no usable"):
        RegisteredSchema.from_document({**document, **broken} if broken else {})


NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
SCHEMAS = st.recursive(
    st.sampled_from((TEXT, WHOLE, NUMBER, {"type": "boolean"}, {})),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=4).map(lambda parts: struct(**parts))
        | inner.map(lambda item: {"type": "array", "items": item})
        | inner.map(lambda value: {"type": "object", "additionalProperties": value})
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS)
def test_the_type_of_a_document_is_that_of_its_schema_under_either_rule_of_names(schema: object) -> None:
    found = register("content", "n", schema, T)
    for names in ("safe", "exact"):
        made = from_json_schema(schema, names=names)
        read = found.arrow_type(names)
        assert read == made
        assert pa.schema([("x", read)]).equals(pa.schema([("x", made)]), check_metadata=True)


def test_a_name_means_all_schemas_of_that_name_and_kind_in_first_seen_order() -> None:
    late, early = registered(struct(a=TEXT), struct(b=TEXT))
    late, early = (
        RegisteredSchema.from_document({**s.to_document(), "first_seen": at}) for s, at in ((late, 9), (early, 5))
    )
    tool = register("tool", "order", struct(a=TEXT), 1)
    risk = register("content", "risk", struct(a=TEXT), 7)
    everything = [late, early, tool, risk]
    assert select(everything, "order", "content") == [early, late]
    assert select(everything, "order", "tool") == [tool]
    assert select(everything, "*", "content") == [early, risk, late]
    assert select(everything, "absent", "content") == []


def test_six_hex_digits_mean_a_hash_unless_a_schema_has_that_name() -> None:
    one, two = registered(struct(a=TEXT), struct(b=TEXT))
    assert select([one, two], one.hash, "content") == [one]
    assert select([one, two], two.hash[:6].upper(), "content") == [two]
    assert select([one, two], two.hash[:5], "content") == []
    named = register("content", two.hash[:6], struct(c=TEXT), T)
    assert select([one, two, named], two.hash[:6], "content") == [named]


def test_merged_fields_come_in_first_seen_order_at_every_level() -> None:
    first = struct(id=TEXT, items={"type": "array", "items": struct(sku=TEXT)})
    second = struct(new=WHOLE, items={"type": "array", "items": struct(price=NUMBER, sku=TEXT)}, id=TEXT)
    kind, notes = merged_type(registered(first, second))
    assert kind == from_json_schema(
        struct(id=TEXT, items={"type": "array", "items": struct(sku=TEXT, price=NUMBER)}, new=WHOLE)
    )
    assert notes == ()


def test_types_that_differ_become_text_and_the_notes_say_where() -> None:
    def of_maps(value: object) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": value}

    first = struct(a=WHOLE, b=WHOLE, c=struct(d=TEXT), e=of_maps(struct(f=WHOLE)), g={"type": "array", "items": TEXT})
    second = struct(
        a=NUMBER, b=TEXT, c=TEXT, e=of_maps(struct(f={"type": "boolean"})), g={"type": "array", "items": WHOLE}
    )
    kind, notes = merged_type(registered(first, second, first))
    assert kind == from_json_schema(
        struct(a=NUMBER, b=TEXT, c=TEXT, e=of_maps(struct(f=TEXT)), g={"type": "array", "items": TEXT})
    )
    assert notes[:4] == (
        "b: BIGINT and STRING",
        "c: STRUCT<d: STRING> and STRING",
        "e['…'].f: BIGINT and BOOLEAN",
        "g[]: STRING and BIGINT",
    )
    assert merged_type(registered(TEXT, WHOLE)) == (pa.string(), ("the value: STRING and BIGINT",))


def test_merging_goes_by_the_names_on_the_wire_and_keeps_the_columns_that_were_there() -> None:
    schemas = registered(struct(**{"a b": TEXT}), struct(a_b=WHOLE, **{"A B": TEXT}))
    assert merged_type(schemas)[0] == from_json_schema(struct(**{"a b": TEXT, "a_b": WHOLE, "A B": TEXT}))
    assert merged_type(schemas)[0].field(0).name == "a_b"
    exact, _ = merged_type(schemas, field_names="exact")
    assert [exact.field(i).name for i in range(3)] == ["a b", "a_b", "A B"]


def test_a_schema_without_a_type_has_no_part_in_the_merged_one_and_is_noted() -> None:
    good, bad = registered(struct(a=TEXT), {"type": "nonsense"})
    kind, notes = merged_type([bad, good])
    assert kind == good.arrow_type()
    assert notes == (f'the schema "order" ({bad.hash[:12]}) has no type: the JSON Schema has the type "nonsense"',)
    for without in ([bad], [bad, bad], []):
        with pytest.raises(ContentSchemaError):
            merged_type(without)


def test_a_merged_type_of_too_many_fields_is_refused() -> None:
    with pytest.raises(ContentSchemaError, match="5,000 fields"):
        merged_type(registered(*(struct(**{f"{part}{i}": TEXT for i in range(3_000)}) for part in "ab")))


def test_importing_the_registry_does_not_import_pyarrow() -> None:
    code = "import sys, dspark_json.schema.registry, dspark_json.schema.requested; print('pyarrow' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
