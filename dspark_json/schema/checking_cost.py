"""How much it may cost to check a value against a JSON Schema: clients choose the schemas of their requests.

A few lines of ``allOf`` and ``$ref`` can double the work at every step, a schema that comes back to itself can double
it at every level of the value, and a list of required names is an error for each name at each object. So the schema is
looked at once, in linear time, and a value is held against it by counting alone, within a budget: the subschemas
evaluated at each place, and the errors that can be found there. What exceeds the budget is not checked.
"""

from __future__ import annotations

import collections
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["CheckingCost", "Cost", "SchemaRefusedError"]

_NUMBER: Final = re.compile("[0-9]{1,6}")
_PATTERN_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\]){0,32}\]|\{[0-9]+,?[0-9]*\}|.", re.DOTALL)
# Budgets, each some tens of milliseconds at most.
_MOST_EDGES: Final = 20_000  # of a schema: subschemas, each as often as something leads to it
_MOST_AT_A_PLACE: Final = 2_000
_MOST_CHECKED: Final = 2_000_000  # subschemas evaluated; compared values and alternatives count as well
_MOST_STEPS: Final = 120_000  # of the counting itself
_MOST_ERRORS: Final = 6_000  # each about 6 µs and 1.4 KB
_LONGEST_CHAIN: Final = 200  # whoever compiles or checks a schema recurses along it
_FRACTION: Final = 64  # errors are counted in such parts

_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_PROPERTY: Final = (*_OTHER_PROPERTIES, "propertyNames")
_OTHER_ITEMS: Final = ("additionalItems", "unevaluatedItems")
_ANY_ITEM: Final = ("items", "prefixItems", "contains", *_OTHER_ITEMS)
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_NOT_FOLLOWED: Final = ("$dynamicRef", "$recursiveRef")
_WITH_CONTEXT: Final = ("anyOf", "oneOf")  # one error of these holds those of all their branches
_OF_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ASSERTIONS: Final[Mapping[str, frozenset[str]]] = {
    "any": frozenset({"enum", "const", "not", "anyOf", "oneOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"}),
    "number": _OF_NUMBERS,
    "integer": _OF_NUMBERS,
    "array": frozenset(
        {"minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", *_OTHER_ITEMS}
    ),
    "object": frozenset({"minProperties", "maxProperties", *_ANY_PROPERTY}),
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


@dataclass(frozen=True, slots=True)
class Cost:
    """Which errors of a value are affordable."""

    all_errors: bool
    first_error: bool


_CHEAP: Final = Cost(all_errors=True, first_error=True)


@dataclass(frozen=True, slots=True)
class _Node:
    """A subschema, with what leads on from it and what it compares."""

    schema: Any
    same_place: list[int]
    compared: int  # values in the alternatives of its enum and const
    alternatives: int
    required: list[frozenset[str]]
    again: int  # how often what is below it at the same place is evaluated
    pattern: int  # its size
    unique: int  # 1 where items are compared with one another
    patterns: int  # the size of those that each name of a member is held against

    @property
    def weight(self) -> int:
        """What is checked where it is evaluated once, and the errors that it can give there, at most."""
        keywords = len(self.schema) if isinstance(self.schema, dict) else 1
        return 1 + keywords + self.compared + sum(map(len, self.required))

    @property
    def weight_anywhere(self) -> int:
        """What is checked for each member, and for each 256 bytes of a string or of an array."""
        return 32 * (self.patterns + self.pattern) + self.unique


@dataclass(frozen=True, slots=True)
class _Weight:
    """What is checked of a value, at most: something once, something else at each of its places."""

    once: int
    anywhere: int


class CheckingCost:
    """What checks against one schema cost; safe from any thread."""

    def __init__(self, schema: object) -> None:
        """Raises ``SchemaRefusedError`` for references outside the schema, and where any value would cost too much."""
        self._document = schema
        self._edges = 0
        self._targets: dict[str, Any] = {}
        self._nodes: dict[int, _Node] = {}  # by identity; keeps the objects alive, so that theirs stays theirs
        self._below: dict[int, list[int]] = {}
        self._root = self._read(schema)
        self._evaluated: dict[int, int] = {}  # at the place of a node, itself included
        self._chains: dict[int, int] = {}
        order, circular = _inner_first(self._nodes, {at: node.same_place for at, node in self._nodes.items()})
        if circular:
            raise SchemaRefusedError("schema too costly")
        for at in order:
            inner = self._nodes[at].same_place
            self._evaluated[at] = 1 + self._nodes[at].again * sum(self._evaluated[one] for one in inner)
            self._chains[at] = 1 + max((self._chains[one] for one in inner), default=0)
            if self._evaluated[at] > _MOST_AT_A_PLACE or self._chains[at] > _LONGEST_CHAIN:
                raise SchemaRefusedError("schema too costly")
        self._weight = self._weigh()

    def of(self, value: object, places: int) -> Cost:
        """What is affordable for a value of at most so many places (values in it).

        Raises ``SchemaRefusedError`` where the check itself is not.
        """
        if self._surely_within(_MOST_ERRORS * _FRACTION // (_FRACTION + places), places):
            return _CHEAP
        count = _Count(self._nodes, self._evaluated, self._chains)
        count.subtree(value, count.place({self._root: 1}), 0)
        most = _MOST_ERRORS * _FRACTION
        return Cost(all_errors=count.errors <= most, first_error=count.in_context <= most)

    def surely_checked(self, places: int) -> bool:
        """Whether a check of any value of so many places is affordable, its errors aside."""
        return self._surely_within(_MOST_CHECKED, places)

    def _surely_within(self, budget: int, places: int) -> bool:
        return self._weight is not None and self._weight.once + self._weight.anywhere * places <= budget

    def _read(self, schema: object) -> int:
        """Every subschema that something leads to, each once."""
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            if id(one) in self._nodes:
                continue
            if one is not self._document and _is_document(one):
                raise SchemaRefusedError("schema refers outside")  # references inside it mean another document
            same_place = list(self._same_place(one))
            below = list(_below(one))
            self._edges += 1 + len(same_place) + len(below)
            if self._edges > _MOST_EDGES:
                raise SchemaRefusedError("schema too costly")
            self._nodes[id(one)] = _node(one, [id(part) for part in same_place])
            self._below[id(one)] = [id(part) for part in below]
            waiting += same_place
            waiting += below
        return id(schema)

    def _weigh(self) -> _Weight | None:
        """What the document weighs, with all that it leads to; None where a subschema comes back to itself."""
        inner = {at: [*node.same_place, *self._below[at]] for at, node in self._nodes.items()}
        order, circular = _inner_first(self._nodes, inner)
        if circular:
            return None
        weights: dict[int, _Weight] = {}
        for at in order:
            node = self._nodes[at]
            once, anywhere = node.weight, node.weight_anywhere
            for part in (*node.same_place, *map(id, _properties(node.schema))):
                once += node.again * weights[part].once
                anywhere += node.again * weights[part].anywhere
            for part in map(id, (*_any_property(node.schema), *_any_item(node.schema))):
                anywhere += node.again * (weights[part].once + weights[part].anywhere)
            weights[at] = _Weight(min(once, _MOST_CHECKED + 1), min(anywhere, _MOST_CHECKED + 1))
        return weights[self._root]

    def _same_place(self, schema: Any) -> Iterator[Any]:
        if not isinstance(schema, dict):
            return
        if any(keyword in schema for keyword in _NOT_FOLLOWED):
            raise SchemaRefusedError("schema too costly")
        if "$ref" in schema:
            yield self._target(schema["$ref"])
        yield from (schema[keyword] for keyword in _SAME_PLACE if keyword in schema)
        for keyword in _SAME_PLACE_LISTS:
            yield from _items(schema.get(keyword))
        for keyword in _SAME_PLACE_MAPS:
            yield from (part for part in _values(schema.get(keyword)) if not isinstance(part, list))

    def _target(self, reference: object) -> Any:
        """What a JSON pointer into the document (RFC 6901, as a URI fragment) leads to."""
        if not isinstance(reference, str):
            raise SchemaRefusedError("schema invalid")
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaRefusedError("schema refers outside")
        place: Any = self._document
        for encoded in unquote(reference[1:]).split("/")[1:]:
            step = encoded.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and step in place:
                place = place[step]
            elif isinstance(place, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(place):
                place = place[int(step[:9])]
            else:
                raise SchemaRefusedError("schema invalid")
        return place


@dataclass(slots=True)
class _Place:
    """What is evaluated at the places of a kind, and what follows from it."""

    nodes: list[tuple[_Node, int]]  # and how often each is
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
    items: collections.Counter[int]
    scalars: dict[str, tuple[int, int]] = field(default_factory=dict)  # by type of value
    below: dict[str | None, _Place] = field(default_factory=dict)  # by name of member; None for items


class _Count:
    """Counts what one value costs, and stops where that is too much."""

    def __init__(self, nodes: Mapping[int, _Node], evaluated: Mapping[int, int], chains: Mapping[int, int]) -> None:
        self._nodes = nodes
        self._evaluated = evaluated
        self._chains = chains
        self._places: dict[frozenset[tuple[int, int]], _Place] = {}
        self._checked = 0
        self._steps = 0
        self.errors = 0  # that the value may have, in fractions
        self.in_context = 0  # those that a single error may hold

    def subtree(self, value: object, place: _Place, above: int) -> int:
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
                errors += _FRACTION * times * len(names - value.keys())
                checked += len(names) * times
            size += self._members(value, place, way)
        elif isinstance(value, list):
            size += self._items(value, place, way)
            checked += place.unique * size
        elif isinstance(value, str):
            size += len(value) >> 8
            checked += place.patterns * len(value) >> 3
        if place.alternatives and isinstance(value, (dict, list)):
            checked += min(place.compared, place.alternatives * size)
        self._checked += checked
        if self._checked > _MOST_CHECKED:
            raise SchemaRefusedError("schema too costly")
        if errors:
            self.errors += errors * (_FRACTION + way + size) // _FRACTION  # each has a copy of the value
        if place.has_context:
            self.in_context = max(self.in_context, self.errors - before)
        return size

    def _members(self, value: dict[str, Any], place: _Place, way: int) -> int:
        self._spend(4 + len(value))
        size = 0
        for name, item in value.items():
            below = place.below.get(name)
            if below is None:
                below = place.below[name] = self._member(place, name)
            if below.patterns:  # of propertyNames
                self._checked += below.patterns * len(name) >> 3
            size += 1 + (len(name) >> 8) + self.subtree(item, below, way)
        return size

    def _items(self, value: list[Any], place: _Place, way: int) -> int:
        self._spend(4 + len(value))
        below = place.below.get(None)
        if below is None:
            below = place.below[None] = self.place(place.items)
        return sum(self.subtree(item, below, way) for item in value)

    def place(self, counts: Mapping[int, int]) -> _Place:
        """The places where these nodes are evaluated so often, beside what they lead to at the same place."""
        self._spend(6 * (1 + len(counts)))
        key = frozenset(counts.items())
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self._new_place(counts)
        return found

    def _new_place(self, counts: Mapping[int, int]) -> _Place:
        if sum(self._evaluated[at] * times for at, times in counts.items()) > _MOST_AT_A_PLACE:
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
        items: collections.Counter[int] = collections.Counter()
        for node, times in nodes:
            for below, parts in ((others, _any_property(node.schema)), (items, _any_item(node.schema))):
                for part in parts:
                    self._spend(6)
                    below[id(part)] += times
        schemas = [(node.schema, times) for node, times in nodes if isinstance(node.schema, dict)]
        return _Place(
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
                    [id(schema[keyword]) for keyword in _OTHER_PROPERTIES if keyword in schema],
                )
                for schema, times in schemas
                if isinstance(schema.get("properties"), dict)
            ],
            others=others,
            items=items,
        )

    def _member(self, place: _Place, name: str) -> _Place:
        self._spend(6 * (1 + len(place.properties)) + len(place.others))
        counts = collections.Counter(place.others)
        for parts, times, others in place.properties:
            if name in parts:
                counts[id(parts[name])] += times
                for other in others:
                    counts[other] -= times
        return self.place(+counts)

    def _scalar(self, place: _Place, kind: str) -> tuple[int, int]:
        """What is checked at a value of this type, and the errors that it can have, in fractions; but for its size."""
        self._spend(6 * len(place.nodes))
        errors = sum(times * _errors(node, kind) for node, times in place.nodes)
        return place.total + (place.alternatives >> 4), errors

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise SchemaRefusedError("schema too costly")


def _errors(node: _Node, kind: str) -> int:
    schema = node.schema
    if not isinstance(schema, dict):
        return _FRACTION if schema is False else 0
    failing = sum(keyword in schema for keyword in _ASSERTIONS["any"])
    failing += sum(keyword in schema for keyword in _ASSERTIONS[kind])
    types = schema.get("type", kind)
    names = types if isinstance(types, list) else (types,)
    failing += not (kind in names or (kind == "integer" and "number" in names))
    return _FRACTION * failing + (2 * node.compared if failing else 0)


def _node(schema: Any, same_place: list[int]) -> _Node:
    if not isinstance(schema, dict):
        return _Node(schema, same_place, 0, 0, [], 1, 0, 0, 0)
    required = [_names(schema.get("required"))]
    for keyword in ("dependentRequired", "dependencies"):
        required += map(_names, _values(schema.get(keyword)))
    alternatives = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    return _Node(
        schema=schema,
        same_place=same_place,
        compared=sum(map(_size, alternatives)),
        alternatives=len(alternatives),
        required=[names for names in required if names],
        again=3 if any(keyword in schema for keyword in _UNEVALUATED) else 1,  # the rest is evaluated anew for it
        pattern=_pattern_size(schema.get("pattern")),
        unique=1 if schema.get("uniqueItems") else 0,
        patterns=sum(map(_pattern_size, parts)) if isinstance(parts := schema.get("patternProperties"), dict) else 0,
    )


def _inner_first(nodes: Iterable[int], inner: Mapping[int, list[int]]) -> tuple[list[int], bool]:
    """The nodes, each behind those that it leads to, and whether one of them leads back to itself."""
    order: list[int] = []
    done: dict[int, bool] = {}
    for start in nodes:
        if start in done:
            continue
        done[start] = False
        way = [(start, iter(inner[start]))]
        while way:
            at, following = way[-1]
            for one in following:
                if one not in done:
                    done[one] = False
                    way.append((one, iter(inner[one])))
                    break
                if not done[one]:
                    return order, True
            else:
                done[at] = True
                order.append(at)
                way.pop()
    return order, False


def _below(schema: Any) -> Iterator[Any]:
    """What is evaluated one level below."""
    if isinstance(schema, dict):
        yield from _properties(schema)
        yield from _any_property(schema)
        yield from _any_item(schema)


def _properties(schema: Any) -> list[Any]:
    return _values(schema.get("properties")) if isinstance(schema, dict) else []


def _any_property(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield from _values(schema.get("patternProperties"))
        yield from (schema[keyword] for keyword in _ANY_PROPERTY if keyword in schema)


def _any_item(schema: Any) -> Iterator[Any]:
    for keyword in _ANY_ITEM if isinstance(schema, dict) else ():
        part = schema.get(keyword)
        yield from part if isinstance(part, list) else () if part is None else (part,)


def _pattern_size(pattern: object) -> int:
    """How many characters a pattern stands for where what is repeated a number of times is written out."""
    groups, last = [0], 0
    for part in _PATTERN_TOKEN.findall(pattern) if isinstance(pattern, str) else ():
        if part == "(":
            groups.append(0)
        elif part[0] == "{" and len(part) > 1:
            groups[-1] += min(last, _MOST_CHECKED) * (max(int(number) for number in _NUMBER.findall(part)) - 1)
        else:
            last = min(groups.pop(), _MOST_CHECKED) if part == ")" and len(groups) > 1 else 1
            groups[-1] += last
    return min(sum(groups), _MOST_CHECKED)


def _size(value: Any) -> int:
    """How many values a value is."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        size += 1 + (len(one) >> 8 if isinstance(one, str) else 0)
        if isinstance(one, (dict, list)):
            waiting += one.values() if isinstance(one, dict) else one
    return size


def _is_document(node: Any) -> bool:
    return isinstance(node, dict) and any(isinstance(node.get(keyword), str) for keyword in ("$id", "id"))


def _names(value: object) -> frozenset[str]:
    return frozenset(name for name in _items(value) if isinstance(name, str))


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
