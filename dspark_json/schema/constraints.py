"""Whether a value keeps the constraints of a JSON Schema: minimum, enum, pattern, required, lengths and so on.

The checks are those of jsonschema-rs (the draft that ``$schema`` names, else 2020-12). Nothing outside the schema is
ever fetched, patterns are matched in linear time (those that can't be are no patterns here), and ``format`` is not
checked, as JSON Schema has it by default.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from dspark_json.errors import MissingPackageError
from dspark_json.extras import installing
from dspark_json.schema.checking_cost import DEEPEST_VALUE, SchemaRefusedError, affordable_depth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MOST_VIOLATIONS", "Constraints", "require_checker"]

MOST_VIOLATIONS: Final = 16
MORE: Final = "…"
_LONGEST_PATH: Final = 200  # characters
_PATTERN_BYTES: Final = 1 << 20  # of a compiled pattern
_LONG_NUMBER: Final = re.compile(rb"[0-9]{17}")  # orjson may round it


def require_checker() -> None:
    """Raise ``MissingPackageError`` where the package that checks is not installed."""
    _checker()


class Constraints:
    """One schema; safe from any thread."""

    def __init__(self, schema: object) -> None:
        """``schema`` is parsed JSON; what it can't be used for is told by ``violations``, nothing is raised."""
        self._why: str | None = None
        self._depth = DEEPEST_VALUE
        self._validator: Any = None
        checker = _checker()
        try:
            self._depth = affordable_depth(schema)
            self._validator = checker.validator_for(
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=checker.RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES),
            )
        except SchemaRefusedError as refused:
            self._why = str(refused)
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            self._why = "schema invalid"

    def violations(self, text: bytes) -> list[str]:
        """What a value, given as its JSON text, violates: ``#/items/3/price minimum``, in the order they are found.

        A JSON pointer behind ``#``, a blank, and the keyword; the pointer of what is missing or unexpected is its own.
        At most 16, then ``…``. Empty where all constraints are kept. An entry that does not begin with ``#`` says why
        the value was not checked: ``schema invalid``, ``schema refers outside``, ``schema too costly``, ``value not
        checked``.
        """
        if self._why is not None:
            return [self._why]
        try:
            value = _value(text)
            if self._depth < DEEPEST_VALUE and _depth(value) > self._depth:
                return ["schema too costly"]
            if self._validator.is_valid(value):
                return []
            found = dict.fromkeys(_entries(self._validator.iter_errors(value)))
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return ["value not checked"]
        listed = list(itertools.islice(found, MOST_VIOLATIONS))
        return listed if len(found) == len(listed) else [*listed, MORE]


def _entries(errors: Iterator[Any]) -> Iterator[str]:
    for error in errors:
        kind = error.kind
        names: Sequence[str | int | None] = (None,)
        if kind.name == "required":
            names = (kind.property,)
        elif kind.name in {"additionalProperties", "unevaluatedProperties"}:
            names = kind.unexpected
        for name in names:
            yield f"{_pointer(error.instance_path if name is None else [*error.instance_path, name])} {kind.name}"


def _pointer(path: Sequence[str | int]) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    text = "#" + "".join(f"/{step}" for step in steps)
    return text if len(text) <= _LONGEST_PATH else text[: _LONGEST_PATH - 1] + MORE


def _value(text: bytes) -> Any:
    """The value with all its digits; lone surrogates are U+FFFD (DESIGN §6)."""
    if _LONG_NUMBER.search(text) is None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # a lone surrogate, or a number that no double holds
    return _without_surrogates(json.loads(text, parse_float=_number))


def _number(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (dict, list))]:
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
        depth += 1
    return depth


def _checker() -> Any:
    try:
        return importlib.import_module("jsonschema_rs")
    except ImportError as error:
        raise MissingPackageError(
            f"checkConstraints needs the package jsonschema-rs, which can't be imported here ({error})",
            remedy=f"Install it for the driver and on every executor: {installing('checks')}.",
        ) from error
