"""Whether a value keeps the constraints of a JSON Schema: minimum, enum, pattern, required, lengths and so on.

The checks are those of jsonschema-rs (the draft that ``$schema`` names, else 2020-12). Nothing outside the schema is
ever fetched, patterns are matched in linear time (those that can't be are no patterns here), and ``format`` is not
checked, as JSON Schema has it by default.
"""

from __future__ import annotations

import importlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from dspark_json.errors import MissingPackageError
from dspark_json.extras import installing
from dspark_json.schema.checking_cost import CheckingCost, SchemaRefusedError

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
        self._cost: CheckingCost | None = None
        self._validator: Any = None
        checker = _checker()
        try:
            self._cost = CheckingCost(schema)
            self._validator = checker.validator_for(
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=checker.RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES),
                mask=MORE,  # a message is never read, and would hold the whole value
            )
        except SchemaRefusedError as refused:
            self._why = str(refused)
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            self._why = "schema invalid"

    def violations(self, text: bytes) -> list[str]:
        """What a value, given as its JSON text, violates: ``#/items/3/price minimum``, in the order they are found.

        A JSON pointer behind ``#``, a blank, and the keyword; the pointer of what is missing or unexpected is its own.
        At most 16, or one where finding all would cost too much, then ``…``. Empty where all constraints are kept. An
        entry that does not begin with ``#`` says why the value was not checked: ``schema invalid``, ``schema refers
        outside``, ``schema too costly``, ``value not checked``.
        """
        if self._why is not None or self._cost is None:
            return [self._why or "schema invalid"]
        places = _places(text)
        try:
            value = _value(text)
            affordable = None if self._cost.surely_checked(places) else self._cost.of(value, places)
            if self._validator.is_valid(value):
                return []
            affordable = affordable or self._cost.of(value, places)
            if affordable.all_errors:  # they are made before the first one is given
                return _listed(self._validator.iter_errors(value))
            if affordable.first_error:
                return [*_listed(self._first_error(value))[:1], MORE]
        except SchemaRefusedError as refused:
            return [str(refused)]
        except (ValueError, TypeError, ArithmeticError, RecursionError):
            return ["value not checked"]
        return ["schema too costly"]

    def _first_error(self, value: object) -> Iterator[Any]:
        try:
            self._validator.validate(value)
        except _checker().ValidationError as error:
            yield error


def _listed(errors: Iterator[Any]) -> list[str]:
    listed: dict[str, None] = {}
    for entry in _entries(errors):
        if entry not in listed and len(listed) == MOST_VIOLATIONS:
            return [*listed, MORE]
        listed[entry] = None
    return list(listed)


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


def _places(text: bytes) -> int:
    """How many values a JSON text holds, at most, long strings counting as several."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{") + (len(text) >> 8)


def _checker() -> Any:
    try:
        return importlib.import_module("jsonschema_rs")
    except ImportError as error:
        raise MissingPackageError(
            f"checkConstraints needs the package jsonschema-rs, which can't be imported here ({error})",
            remedy=f"Install it for the driver and on every executor: {installing('checks')}.",
        ) from error
