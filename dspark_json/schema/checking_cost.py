"""How much it may cost to check a value against a JSON Schema: clients choose the schemas of their requests.

A few lines of ``allOf`` and ``$ref`` can double the work at every step, a schema that comes back to itself can double
it at every level of the value, and a list of required names is an error for each name at each object. So the schema is
looked at once, in linear time, and a value is held against it by counting alone, within a budget: the subschemas
evaluated at each place, and the errors that can be found there. What exceeds the budget is not checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from dspark_json.schema.checking_count import (
    FRACTION,
    MOST_AT_A_PLACE,
    MOST_CHECKED,
    MOST_ERRORS,
    SchemaRefusedError,
    ValueCount,
)
from dspark_json.schema.subschema import (
    any_item,
    any_property,
    items,
    parts_below,
    properties,
    property_names,
    subschema,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dspark_json.schema.subschema import Subschema

__all__ = ["CheckingCost", "Cost", "SchemaRefusedError"]

_MOST_EDGES: Final = 20_000  # of a schema: subschemas, each as often as something leads to it
_LONGEST_CHAIN: Final = 200  # whoever compiles or checks a schema recurses along it

_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_NOT_FOLLOWED: Final = ("$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class Cost:
    """Which errors of a value are affordable."""

    all_errors: bool
    first_error: bool


_CHEAP: Final = Cost(all_errors=True, first_error=True)


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
        self._nodes: dict[int, Subschema] = {}  # by identity; keeps the objects alive, so that theirs stays theirs
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
            if self._evaluated[at] > MOST_AT_A_PLACE or self._chains[at] > _LONGEST_CHAIN:
                raise SchemaRefusedError("schema too costly")
        self._weight = self._weigh(lambda node: _Weight(node.weight, node.weight_anywhere))
        self._errors = self._weigh(lambda node: _Weight(node.errors, 0))

    def of(self, value: object, places: int) -> Cost:
        """What is affordable for a value of at most so many places (values in it).

        Raises ``SchemaRefusedError`` where the check itself is not.
        """
        most = MOST_ERRORS * FRACTION
        # Each error has a copy of the value where it is.
        if _within(self._errors, most // (FRACTION + places), places) and self.surely_checked(places):
            return _CHEAP
        count = ValueCount(self._nodes, self._evaluated, self._chains)
        count.subtree(value, count.place({self._root: 1}), 0)
        return Cost(all_errors=count.errors <= most, first_error=count.in_context <= most)

    def surely_checked(self, places: int) -> bool:
        """Whether a check of any value of so many places is affordable, its errors aside."""
        return _within(self._weight, MOST_CHECKED, places)

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
            below = list(parts_below(one))
            self._edges += 1 + len(same_place) + len(below)
            if self._edges > _MOST_EDGES:
                raise SchemaRefusedError("schema too costly")
            self._nodes[id(one)] = subschema(one, [id(part) for part in same_place])
            self._below[id(one)] = [id(part) for part in below]
            waiting += same_place
            waiting += below
        return id(schema)

    def _weigh(self, own: Callable[[Subschema], _Weight]) -> _Weight | None:
        """What the document weighs, with all that it leads to; None where a subschema comes back to itself."""
        inner = {at: [*node.same_place, *self._below[at]] for at, node in self._nodes.items()}
        order, circular = _inner_first(self._nodes, inner)
        if circular:
            return None
        weights: dict[int, _Weight] = {}
        for at in order:
            node = self._nodes[at]
            weight = own(node)
            once, anywhere = weight.once, weight.anywhere
            for part in (*node.same_place, *map(id, properties(node.schema))):
                once += node.again * weights[part].once
                anywhere += node.again * weights[part].anywhere
            for part in map(id, (*any_property(node.schema), *property_names(node.schema), *any_item(node.schema))):
                anywhere += node.again * (weights[part].once + weights[part].anywhere)
            weights[at] = _Weight(min(once, MOST_CHECKED + 1), min(anywhere, MOST_CHECKED + 1))
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
            yield from items(schema.get(keyword))
        for keyword in _SAME_PLACE_MAPS:
            yield from (part for part in values(schema.get(keyword)) if not isinstance(part, list))

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


def _within(weight: _Weight | None, budget: int, places: int) -> bool:
    return weight is not None and weight.once + weight.anywhere * places <= budget


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


def _is_document(node: Any) -> bool:
    return isinstance(node, dict) and any(isinstance(node.get(keyword), str) for keyword in ("$id", "id"))
