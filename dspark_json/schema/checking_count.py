"""What the check of one value against a JSON Schema costs, counted without checking anything."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dspark_json.schema.subschema import OTHER_ITEMS, OTHER_PROPERTIES, any_item, any_property, property_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.schema.subschema import Subschema

__all__ = ["FRACTION", "MOST_AT_A_PLACE", "MOST_CHECKED", "MOST_ERRORS", "SchemaRefusedError", "ValueCount"]

# Budgets, each some tens of milliseconds at most.
MOST_AT_A_PLACE: Final = 2_000
MOST_CHECKED: Final = 2_000_000  # subschemas evaluated; compared values and alternatives count as well
_MOST_STEPS: Final = 120_000  # of the counting itself
MOST_ERRORS: Final = 6_000  # each about 6 µs and 1.4 KB
FRACTION: Final = 64  # errors are counted in such parts

_WITH_CONTEXT: Final = ("anyOf", "oneOf")  # one error of these holds those of all their branches
_OF_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ASSERTIONS: Final[Mapping[str, frozenset[str]]] = {
    "any": frozenset({"enum", "const", "not", "anyOf", "oneOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"}),
    "number": _OF_NUMBERS,
    "integer": _OF_NUMBERS,
    "array": frozenset({"minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", *OTHER_ITEMS}),
    "object": frozenset({"minProperties", "maxProperties", *OTHER_PROPERTIES, "propertyNames"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}


class SchemaRefusedError(Exception):
    """Values are not checked against this schema; its text says why, in the words of ``violations``."""


@dataclass(slots=True)
class Place:
    """What is evaluated at the places of a kind, and what follows from it."""

    nodes: list[tuple[Subschema, int]]  # and how often each is
    total: int
    compared: int
    alternatives: int
    patterns: int
    unique: int
    per_member: int
    chain: int
    has_context: bool
    required: list[tuple[frozenset[str], int]]
    properties: list[tuple[dict[str, Any], int, list[int]]]  # with what is evaluated for all other names
    others: collections.Counter[int]
    names: collections.Counter[int]
    items: collections.Counter[int]
    scalars: dict[str, tuple[int, int]] = field(default_factory=dict)  # by type of value
    below: dict[str | None, Place] = field(default_factory=dict)  # by name of member; None for items


class ValueCount:
    """Counts what one value costs, and stops where that is too much."""

    def __init__(self, nodes: Mapping[int, Subschema], evaluated: Mapping[int, int], chains: Mapping[int, int]) -> None:
        self._nodes = nodes
        self._evaluated = evaluated
        self._chains = chains
        self._places: dict[frozenset[tuple[int, int]], Place] = {}
        self._checked = 0
        self._steps = 0
        self.errors = 0  # that the value may have, in fractions
        self.in_context = 0  # those that a single error may hold

    def subtree(self, value: object, place: Place, above: int) -> int:
        """Count a value and all in it, ``above`` being the length of the way to it; how large the value is."""
        kind = _TYPE_NAMES.get(type(value), "number")
        scalar = place.scalars.get(kind)
        if scalar is None:
            scalar = place.scalars[kind] = self._scalar(place, kind)
        checked, errors = scalar
        before = self.errors
        way = above + place.chain + 1
        size = 1
        if isinstance(value, dict):
            if place.per_member:
                checked += place.per_member * (len(value) + (sum(map(len, value)) >> 3))
            for names, times in place.required:
                self._spend(2 + (len(names) >> 5))
                errors += FRACTION * times * len(names - value.keys())
                checked += len(names) * times
            size += self._members(value, place, way)
            if place.names:
                found = self._names(value, place)
                checked += found[0]
                errors += found[1]
        elif isinstance(value, list):
            size += self._items(value, place, way)
            checked += place.unique * size
        elif isinstance(value, str):
            size += len(value) >> 8
            checked += place.patterns * len(value) >> 3
        if place.alternatives and isinstance(value, (dict, list)):
            checked += min(place.compared, place.alternatives * size)
        self._checked += checked
        if self._checked > MOST_CHECKED:
            raise SchemaRefusedError("schema too costly")
        if errors:
            self.errors += errors * (FRACTION + way + size) // FRACTION  # each has a copy of the value
        if place.has_context:
            self.in_context = max(self.in_context, self.errors - before)
        return size

    def _members(self, value: dict[str, Any], place: Place, way: int) -> int:
        self._spend(4 + len(value))
        size = 0
        for name, item in value.items():
            below = place.below.get(name)
            if below is None:
                below = place.below[name] = self._member(place, name)
            size += 1 + (len(name) >> 8) + self.subtree(item, below, way)
        return size

    def _names(self, value: dict[str, Any], place: Place) -> tuple[int, int]:
        """What is checked of the names themselves, and the errors there, as ``_scalar`` has them."""
        at_names = self.place(place.names)
        checked, errors = self._scalar(at_names, "string")
        letters = sum(map(len, value))
        return len(value) * checked + (at_names.patterns * letters >> 3), len(value) * errors

    def _items(self, value: list[Any], place: Place, way: int) -> int:
        self._spend(4 + len(value))
        below = place.below.get(None)
        if below is None:
            below = place.below[None] = self.place(place.items)
        return sum(self.subtree(item, below, way) for item in value)

    def place(self, counts: Mapping[int, int]) -> Place:
        """The places where these nodes are evaluated so often, beside what they lead to at the same place."""
        self._spend(6 * (1 + len(counts)))
        key = frozenset(counts.items())
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self._new_place(counts)
        return found

    def _new_place(self, counts: Mapping[int, int]) -> Place:
        if sum(self._evaluated[at] * times for at, times in counts.items()) > MOST_AT_A_PLACE:
            raise SchemaRefusedError("schema too costly")
        evaluated: collections.Counter[int] = collections.Counter()
        waiting = list(counts.items())
        while waiting:
            at, times = waiting.pop()
            evaluated[at] += times
            node = self._nodes[at]
            self._spend(6 * (1 + len(node.same_place)))
            waiting += [(inner, times * node.again) for inner in node.same_place]
        nodes = [(self._nodes[at], times) for at, times in evaluated.items()]
        total = evaluated.total()
        others: collections.Counter[int] = collections.Counter()
        names: collections.Counter[int] = collections.Counter()
        items: collections.Counter[int] = collections.Counter()
        for node, times in nodes:
            for below, parts in (
                (others, any_property(node.schema)),
                (names, property_names(node.schema)),
                (items, any_item(node.schema)),
            ):
                for part in parts:
                    self._spend(6)
                    below[id(part)] += times
        schemas = [(node.schema, times) for node, times in nodes if isinstance(node.schema, dict)]
        return Place(
            nodes=nodes,
            total=total,
            compared=sum(node.compared * times for node, times in nodes),
            alternatives=sum(node.alternatives * times for node, times in nodes),
            patterns=sum(node.pattern * times for node, times in nodes),
            unique=sum(node.unique * times for node, times in nodes),
            per_member=sum(times * (node.patterns + (total if node.again > 1 else 0)) for node, times in nodes),
            chain=max((self._chains[at] for at in counts), default=0),
            has_context=any(keyword in schema for schema, _ in schemas for keyword in _WITH_CONTEXT),
            required=[(names, times) for node, times in nodes for names in node.required],
            properties=[
                (
                    schema["properties"],
                    times,
                    [id(schema[keyword]) for keyword in OTHER_PROPERTIES if keyword in schema],
                )
                for schema, times in schemas
                if isinstance(schema.get("properties"), dict)
            ],
            others=others,
            names=names,
            items=items,
        )

    def _member(self, place: Place, name: str) -> Place:
        self._spend(6 * (1 + len(place.properties)) + len(place.others))
        counts = collections.Counter(place.others)
        for parts, times, others in place.properties:
            if name in parts:
                counts[id(parts[name])] += times
                for other in others:
                    counts[other] -= times
        return self.place(+counts)

    def _scalar(self, place: Place, kind: str) -> tuple[int, int]:
        """What is checked at a value of this type, and the errors that it can have, in fractions; but for its size."""
        self._spend(6 * len(place.nodes))
        errors = sum(times * _errors(node, kind) for node, times in place.nodes)
        return place.total + (place.alternatives >> 4), errors

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise SchemaRefusedError("schema too costly")


def _errors(node: Subschema, kind: str) -> int:
    schema = node.schema
    if not isinstance(schema, dict):
        return FRACTION if schema is False else 0
    failing = sum(keyword in schema for keyword in _ASSERTIONS["any"])
    failing += sum(keyword in schema for keyword in _ASSERTIONS[kind])
    types = schema.get("type", kind)
    names = types if isinstance(types, list) else (types,)
    failing += not (kind in names or (kind == "integer" and "number" in names))
    return FRACTION * failing + (2 * node.compared if failing else 0)
