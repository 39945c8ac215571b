"""How much a value may cost that is checked against a JSON Schema: clients choose the schemas of their requests.

A few lines of ``allOf`` and ``$ref`` can double the work at every step, and a schema that comes back to itself can
double it at every level of the value. Counted here is how many subschemas are evaluated at one place of a value; each
of them costs no more than the value is long (patterns are matched in linear time).
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DEEPEST_VALUE", "SchemaRefusedError", "affordable_depth"]

DEEPEST_VALUE: Final = 128  # DESIGN §6
MOST_AT_A_PLACE: Final = 2_000
_MOST_NODES: Final = 20_000
_MOST_STATES: Final = 20_000
_LONGEST_CHAIN: Final = 200  # whoever compiles or checks a schema recurses along it

_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_ANY_PROPERTY: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM: Final = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_NOT_FOLLOWED: Final = ("$dynamicRef", "$recursiveRef")
_ITEMS: Final = ("items",)
_OTHERS: Final = ("others",)

# Nodes by the identity of their objects, and how often each is evaluated at a place.
_Counts = collections.Counter[int]
_State = frozenset[tuple[int, int]]


class SchemaRefusedError(Exception):
    """Values are not checked against this schema; its text says why, in the words of ``violations``."""


def affordable_depth(schema: object) -> int:
    """How deeply a value may be nested to be checked at a bounded cost; 128 where depth does not matter.

    Raises ``SchemaRefusedError`` where even a flat value would cost too much, and for references outside the schema.
    """
    return _Graph(schema).depth()


class _Graph:
    def __init__(self, document: object) -> None:
        self._document = document
        self._nodes: dict[int, Any] = {}  # keeps the objects alive, so that their identities stay theirs
        self._closures: dict[int, _Counts] = {}

    def depth(self) -> int:
        """The levels of a value over which the work at each place stays bounded."""
        states: set[_State] = {_state({self._known(self._document): 1})}
        seen = set(states)
        for level in range(1, DEEPEST_VALUE + 1):
            following: set[_State] = set()
            for state in states:
                evaluated: _Counts = collections.Counter()
                for node, count in state:
                    for inner, times in self._closure(node, ()).items():
                        evaluated[inner] += times * count
                if evaluated.total() > MOST_AT_A_PLACE:
                    if level == 1:
                        raise SchemaRefusedError("schema too costly")
                    return level - 1
                following.update(self._below(evaluated))
            states = following - seen
            seen |= states
            if len(seen) > _MOST_STATES:
                return level
            if not states:
                break
        return DEEPEST_VALUE

    def _known(self, node: Any) -> int:
        if id(node) not in self._nodes:
            if len(self._nodes) >= _MOST_NODES:
                raise SchemaRefusedError("schema too costly")
            if node is not self._document and _is_document(node):
                raise SchemaRefusedError("schema refers outside")  # references inside it mean another document
            self._nodes[id(node)] = node
        return id(node)

    def _closure(self, node: int, chain: tuple[int, ...]) -> _Counts:
        """What is evaluated at the same place where a node is, itself included."""
        found = self._closures.get(node)
        if found is None:
            if node in chain or len(chain) >= _LONGEST_CHAIN:
                raise SchemaRefusedError("schema too costly")
            found = collections.Counter({node: 1})
            again = 3 if self._judges_unevaluated(node) else 1  # the rest is evaluated anew for it
            for inner in self._same_place(self._nodes[node]):
                for one, times in self._closure(self._known(inner), (*chain, node)).items():
                    found[one] += times * again
            if found.total() > MOST_AT_A_PLACE:
                raise SchemaRefusedError("schema too costly")
            self._closures[node] = found
        return found

    def _judges_unevaluated(self, node: int) -> bool:
        schema = self._nodes[node]
        return isinstance(schema, dict) and any(keyword in schema for keyword in _UNEVALUATED)

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
            yield from _values(schema.get(keyword))

    def _below(self, evaluated: _Counts) -> Iterator[_State]:
        """What is evaluated at the places one level below, a state for each kind of place."""
        groups: dict[object, _Counts] = collections.defaultdict(collections.Counter)
        for node, count in evaluated.items():
            schema = self._nodes[node]
            if not isinstance(schema, dict):
                continue
            properties = schema.get("properties")
            for name, part in properties.items() if isinstance(properties, dict) else ():
                groups[name][self._known(part)] += count
            for part in (*_values(schema.get("patternProperties")), *(schema[k] for k in _ANY_PROPERTY if k in schema)):
                groups[_OTHERS][self._known(part)] += count
            for keyword in _ANY_ITEM:
                part = schema.get(keyword)
                for item in part if isinstance(part, list) else () if part is None else (part,):
                    groups[_ITEMS][self._known(item)] += count
        others = groups.pop(_OTHERS, collections.Counter())
        items = groups.pop(_ITEMS, collections.Counter())
        yield from (_state(counts) for counts in (others, items) if counts)
        yield from (_state(counts + others) for counts in groups.values())

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


def _is_document(node: Any) -> bool:
    return isinstance(node, dict) and any(isinstance(node.get(keyword), str) for keyword in ("$id", "id"))


def _state(counts: Mapping[int, int]) -> _State:
    return frozenset(counts.items())


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
