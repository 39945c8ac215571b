"""A subschema of a JSON Schema as something that is counted: what leads on from it, and what it compares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "OTHER_ITEMS",
    "OTHER_PROPERTIES",
    "Subschema",
    "any_item",
    "any_property",
    "items",
    "parts_below",
    "properties",
    "property_names",
    "subschema",
    "values",
]

_NUMBER: Final = re.compile("[0-9]{1,6}")
_PATTERN_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\]){0,32}\]|\{[0-9]+,?[0-9]*\}|.", re.DOTALL)
_LARGEST_PATTERN: Final = 2_000_000
OTHER_PROPERTIES: Final = ("additionalProperties", "unevaluatedProperties")
OTHER_ITEMS: Final = ("additionalItems", "unevaluatedItems")
_ANY_ITEM: Final = ("items", "prefixItems", "contains", *OTHER_ITEMS)
_NEVER_FAILING: Final = frozenset({"properties", "items", "required", "title", "description", "default", "$defs"})
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class Subschema:
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
        """What is checked where it is evaluated once, at most."""
        return 1 + self.errors + self.compared

    @property
    def errors(self) -> int:
        """The errors it can give where it is evaluated once, at most; one of many alternatives counts as several."""
        keywords = sum(key not in _NEVER_FAILING for key in self.schema) if isinstance(self.schema, dict) else 1
        return keywords + sum(map(len, self.required)) + (self.compared >> 5)

    @property
    def weight_anywhere(self) -> int:
        """What is checked for each member, and for each 256 bytes of a string or of an array."""
        return 32 * (self.patterns + self.pattern) + self.unique


def subschema(schema: Any, same_place: list[int]) -> Subschema:
    if not isinstance(schema, dict):
        return Subschema(schema, same_place, 0, 0, [], 1, 0, 0, 0)
    required = [_names(schema.get("required"))]
    for keyword in ("dependentRequired", "dependencies"):
        required += map(_names, values(schema.get(keyword)))
    alternatives = [*items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    return Subschema(
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


def parts_below(schema: Any) -> Iterator[Any]:
    """What is evaluated one level below."""
    if isinstance(schema, dict):
        yield from properties(schema)
        yield from any_property(schema)
        yield from property_names(schema)
        yield from any_item(schema)


def properties(schema: Any) -> list[Any]:
    return values(schema.get("properties")) if isinstance(schema, dict) else []


def any_property(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield from values(schema.get("patternProperties"))
        yield from (schema[keyword] for keyword in OTHER_PROPERTIES if keyword in schema)


def property_names(schema: Any) -> list[Any]:
    return [schema["propertyNames"]] if isinstance(schema, dict) and "propertyNames" in schema else []


def any_item(schema: Any) -> Iterator[Any]:
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
            groups[-1] += min(last, _LARGEST_PATTERN) * (max(int(number) for number in _NUMBER.findall(part)) - 1)
        else:
            last = min(groups.pop(), _LARGEST_PATTERN) if part == ")" and len(groups) > 1 else 1
            groups[-1] += last
    return min(sum(groups), _LARGEST_PATTERN)


def _size(value: Any) -> int:
    """How many values a value is."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        size += 1 + (len(one) >> 8 if isinstance(one, str) else 0)
        if isinstance(one, (dict, list)):
            waiting += one.values() if isinstance(one, dict) else one
    return size


def _names(value: object) -> frozenset[str]:
    return frozenset(name for name in items(value) if isinstance(name, str))


def items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
