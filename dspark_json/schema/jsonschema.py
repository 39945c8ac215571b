"""JSON Schema to column type, by the table of DESIGN §5.

A schema is read as the little that matters for a column: which kind of value it allows, which fields it has. ``allOf``
and ``$ref`` narrow that, ``anyOf``, ``oneOf`` and lists of types widen it, and all other keywords (``not``,
``patternProperties``, ``minimum``, …) say nothing about a type. What no column type can express is STRING, the JSON
text.

References are resolved inside the document only; nothing is ever fetched. Size and time are bounded, see the constants.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.content_type import MAX_FIELDS, MAX_LEVELS
from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, STRING, field
from dspark_json.schema.names import FieldNames, column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["from_json_schema", "json_schema_from_text"]

# How far references and `allOf` may be nested in each other, and how much work one document may make: 2 µs a step. A
# subschema is a step each time it is read, an array in it one more, a map two; and so many small things are one.
_MAX_NESTING: Final = 150
_MAX_STEPS: Final = 20_000
_ARRAY_STEPS: Final = 1
_MAP_STEPS: Final = 2
_KEYWORDS_A_STEP: Final = 16
_VALUES_A_STEP: Final = 8
_MERGED_FIELDS_A_STEP: Final = 16
_CHARACTERS_A_STEP: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class _Scalar:
    """A kind of value without parts; there is one object of each.

    ``anything`` allows every kind, ``text`` is what no column type expresses.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class _Array:
    item: _Node


@dataclass(frozen=True, slots=True)
class _Map:
    value: _Node


@dataclass(frozen=True, slots=True)
class _Object:
    fields: tuple[tuple[str, _Node], ...]


_Node = _Scalar | _Array | _Map | _Object

_ANYTHING: Final = _Scalar("anything")
_TEXT: Final = _Scalar("text")
_NULL: Final = _Scalar("null")
_BARE_OBJECT: Final = _Scalar("object")
_INTEGER: Final = _Scalar("integer")
_NUMBER: Final = _Scalar("number")
_BOOLEAN: Final = _Scalar("boolean")
_STRING: Final = _Scalar("string")

_PLAIN_TYPES: Final = {scalar.kind: scalar for scalar in (_NULL, _INTEGER, _NUMBER, _BOOLEAN, _STRING)}
_OWN_KEYWORDS: Final = frozenset(
    {"type", "properties", "items", "prefixItems", "enum", "const", "additionalProperties"}
)


def json_schema_from_text(text: str) -> object:
    """The JSON Schema document that a text holds; raises ``ContentSchemaError`` where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContentSchemaError(f"the JSON Schema is not JSON: {error}") from None


def from_json_schema(schema: object, *, names: FieldNames = "safe") -> pa.DataType:
    """The column type of the values that a JSON Schema describes.

    ``schema`` is the parsed document. A renamed field keeps its wire name in its metadata. Raises
    ``ContentSchemaError`` for a document that is no JSON Schema, a reference that leads nowhere or out of it, and one
    of more than 5,000 fields or that takes more than some 50 ms to read.
    """
    try:
        return _lowered(_Reading(schema).node(schema, 1), names)
    except UnicodeEncodeError:
        raise ContentSchemaError(
            "the JSON Schema has a property whose name is not Unicode text (a lone surrogate)",
            remedy="Mend that name.",
        ) from None


class _Reading:
    """The reading of one document: how much has been read, and which references are open."""

    def __init__(self, document: object) -> None:
        self._document = document
        self._steps = 0
        self._fields = 0
        self._nesting = 0
        self._open: set[int] = set()
        self._targets: dict[str, object] = {}
        self._kinds: dict[int, _Node] = {}

    def node(self, schema: object, level: int) -> _Node:
        """What a (sub)schema allows; ``level`` is how deep in the column type it stands, the root at 1."""
        self._spend(1)
        if isinstance(schema, bool):
            return _ANYTHING
        if not isinstance(schema, dict):
            raise ContentSchemaError(
                f"a JSON Schema is an object, true or false, not {_shown(schema)}",
                remedy="Mend that part of the schema.",
            )
        if id(schema) in self._open:
            return _TEXT
        if self._nesting >= _MAX_NESTING:
            raise _too_large()
        self._spend(len(schema) // _KEYWORDS_A_STEP)
        self._nesting += 1
        self._open.add(id(schema))
        try:
            return self._combined(schema, level)
        finally:
            self._open.discard(id(schema))
            self._nesting -= 1

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise _too_large()

    def _combined(self, schema: dict[str, object], level: int) -> _Node:
        """All that the keywords of one schema say together, in their order (it is the order of the fields)."""
        result: _Node = _ANYTHING
        own_is_read = False
        for keyword, value in schema.items():
            if keyword == "$ref":
                result = self._meet(result, self.node(self._target(value), level))
            elif keyword == "allOf":
                for part in _listed(keyword, value):
                    result = self._meet(result, self.node(part, level))
            elif keyword in {"anyOf", "oneOf"}:
                result = self._meet(result, _union([self.node(part, level) for part in _listed(keyword, value)]))
            elif keyword in _OWN_KEYWORDS and not own_is_read:
                own_is_read = True
                result = self._meet(result, self._own(schema, level))
        return result

    def _own(self, schema: dict[str, object], level: int) -> _Node:
        """What a schema says by itself: ``type`` wins, then ``properties``, ``items``, then the values allowed."""
        if "type" in schema:
            kinds = schema["type"]
            if not isinstance(kinds, list):
                return self._typed(kinds, schema, level)
            self._spend(len(kinds) // _VALUES_A_STEP)
            return _union([self._typed(kind, schema, level) for kind in kinds])
        if "properties" in schema:
            return self._object(schema, level)
        if "items" in schema or "prefixItems" in schema:
            return self._array(schema, level)
        if "const" in schema:
            return _kind_of(schema["const"])
        if "enum" in schema:
            return self._kind_of_any(_listed("enum", schema["enum"]))
        return _ANYTHING

    def _typed(self, kind: object, schema: dict[str, object], level: int) -> _Node:
        if kind == "object":
            return self._object(schema, level)
        if kind == "array":
            return self._array(schema, level)
        if isinstance(kind, str) and kind in _PLAIN_TYPES:
            return _PLAIN_TYPES[kind]
        raise ContentSchemaError(
            f"the JSON Schema has the type {_shown(kind)}",
            remedy="Types are string, integer, number, boolean, object, array and null.",
        )

    def _object(self, schema: dict[str, object], level: int) -> _Node:
        if level >= MAX_LEVELS:
            return _BARE_OBJECT
        properties = schema.get("properties")
        if properties:
            if not isinstance(properties, dict):
                raise ContentSchemaError(f'"properties" must be an object, not {_shown(properties)}')
            self._fields += len(properties)
            self._spend(sum(map(len, properties)) // _CHARACTERS_A_STEP)
            if self._fields > MAX_FIELDS:
                raise ContentSchemaError(
                    f"the JSON Schema makes more than {MAX_FIELDS:,} fields",
                    remedy="Give the columns you need as DDL; what has no column is kept in _rescued_data.",
                )
            return _Object(tuple((name, self.node(part, level + 1)) for name, part in properties.items()))
        others = schema.get("additionalProperties")
        # Arrow makes two levels of a map.
        if isinstance(others, dict) and level + 2 <= MAX_LEVELS:
            self._spend(_MAP_STEPS)
            return _Map(self.node(others, level + 2))
        return _BARE_OBJECT

    def _array(self, schema: dict[str, object], level: int) -> _Node:
        if level >= MAX_LEVELS:
            return _TEXT
        self._spend(_ARRAY_STEPS)
        items = schema.get("items")
        if isinstance(items, dict) and "prefixItems" not in schema:
            return _Array(self.node(items, level + 1))
        return _Array(_TEXT)

    def _kind_of_any(self, values: list[object]) -> _Node:
        """What the values of one ``enum`` have in common; looked at once, however often it is referred to."""
        if id(values) not in self._kinds:
            self._spend(len(values) // _VALUES_A_STEP)
            self._kinds[id(values)] = _union([_kind_of(value) for value in values])
        return self._kinds[id(values)]

    def _meet(self, left: _Node, right: _Node) -> _Node:
        """A value of both of these; text where no column type is both."""
        for nothing in (_ANYTHING, _NULL):
            if left is nothing:
                return right
            if right is nothing:
                return left
        if left == right:
            return left
        if isinstance(left, _Object) and isinstance(right, _Object):
            return self._merged(left, right)
        if isinstance(left, _Array) and isinstance(right, _Array):
            return _Array(self._meet(left.item, right.item))
        if isinstance(left, _Map) and isinstance(right, _Map):
            return _Map(self._meet(left.value, right.value))
        for narrow, wide in ((left, right), (right, left)):
            if isinstance(narrow, _Object) and (wide is _BARE_OBJECT or isinstance(wide, _Map)):
                return narrow
            if (isinstance(narrow, _Map) and wide is _BARE_OBJECT) or (narrow is _INTEGER and wide is _NUMBER):
                return narrow
        return _TEXT

    def _merged(self, left: _Object, right: _Object) -> _Object:
        self._spend((len(left.fields) + len(right.fields)) // _MERGED_FIELDS_A_STEP)
        fields = dict(left.fields)
        for name, node in right.fields:
            fields[name] = self._meet(fields[name], node) if name in fields else node
        return _Object(tuple(fields.items()))

    def _target(self, reference: object) -> object:
        """What a ``$ref`` points to; each text is looked up once."""
        if not isinstance(reference, str):
            raise ContentSchemaError(f'"$ref" must be a string, not {_shown(reference)}')
        if reference not in self._targets:
            self._spend(len(reference) // _CHARACTERS_A_STEP)
            self._targets[reference] = self._found(reference)
        return self._targets[reference]

    def _found(self, reference: str) -> object:
        """What a JSON pointer into the document (RFC 6901, as a URI fragment) leads to."""
        if not reference.startswith("#"):
            raise ContentSchemaError(
                f'the JSON Schema refers to "{reference}", which is outside of it and is not fetched',
                remedy='Put that schema under "$defs" and refer to it as "#/$defs/…".',
            )
        place: object = self._document
        for encoded in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
            step = encoded.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and step in place:
                place = place[step]
            elif isinstance(place, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(place):
                place = place[int(step[:9])]
            else:
                raise _leads_nowhere(reference)
        if reference != "#" and not reference.startswith("#/"):
            raise _leads_nowhere(reference)
        return place


def _too_large() -> ContentSchemaError:
    return ContentSchemaError(
        "the JSON Schema is too large, or its references and allOf are nested too deeply",
        remedy="Simplify it, or give the columns you need as DDL.",
    )


def _leads_nowhere(reference: str) -> ContentSchemaError:
    return ContentSchemaError(
        f'the JSON Schema refers to "{reference}", which it does not have', remedy='Add it, usually under "$defs".'
    )


def _union(nodes: Sequence[_Node]) -> _Node:
    """A value of any of these: null is dropped, one left is it, integer and number are number, else text."""
    distinct: list[_Node] = []
    for node in nodes:
        if node is not _NULL and node not in distinct:
            distinct.append(node)
            if len(distinct) > 2:
                return _TEXT
    if not distinct:
        return _NULL if nodes else _ANYTHING
    if len(distinct) == 1:
        return distinct[0]
    return _NUMBER if _INTEGER in distinct and _NUMBER in distinct else _TEXT


def _kind_of(value: object) -> _Node:
    """What a value of ``enum`` or ``const`` is."""
    if value is None:
        return _NULL
    for kind, node in ((bool, _BOOLEAN), (int, _INTEGER), (float, _NUMBER), (str, _STRING)):
        if isinstance(value, kind):
            return node
    return _TEXT


_SCALAR_TYPES: Final[dict[_Node, pa.DataType]] = {_INTEGER: BIGINT, _NUMBER: DOUBLE, _BOOLEAN: BOOLEAN}


def _lowered(node: _Node, names: FieldNames) -> pa.DataType:
    if isinstance(node, _Object):
        wire = [name for name, _ in node.fields]
        columns = column_names(wire, names)
        return pa.struct(
            [
                field(column, _lowered(part, names), wire=(name,))
                for column, (name, part) in zip(columns, node.fields, strict=True)
            ]
        )
    if isinstance(node, _Array):
        return pa.list_(_lowered(node.item, names))
    if isinstance(node, _Map):
        return pa.map_(STRING, _lowered(node.value, names))
    return _SCALAR_TYPES.get(node, STRING)


def _listed(keyword: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise ContentSchemaError(f'"{keyword}" must be an array, not {_shown(value)}')
    return value


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= 60 else text[:57] + "..."
