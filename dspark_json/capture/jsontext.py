"""Reading and writing JSON, quickly with orjson and completely with the standard library where orjson refuses."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import orjson

BOM: Final = b"\xef\xbb\xbf"
_LONGEST_INTEGER: Final = 4_000  # Python refuses integers of more than 4,300 digits


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _as_float(text: str) -> Any:
    value = float(text)
    return value if math.isfinite(value) else orjson.Fragment(text)


def _as_integer(text: str) -> Any:
    return int(text) if len(text) <= _LONGEST_INTEGER else orjson.Fragment(text)


_TOLERANT: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_AS_WRITTEN: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_as_float, parse_int=_as_integer)


def loads(text: bytes) -> Any:
    """The value of a JSON text (RFC 8259); ``ValueError`` if it is none.

    orjson refuses lone surrogates, invalid UTF-8, a byte order mark and deep nesting; the standard library takes them:
    invalid bytes become U+FFFD, the mark is dropped (RFC 8259, section 8.1). A number beyond a double is infinite; an
    integer that fits a double but not 64 bits may become that double.
    """
    return _loads(text, _TOLERANT)


def loads_to_write(text: bytes) -> Any:
    """Like ``loads``, but a number beyond a double becomes an ``orjson.Fragment``, which ``dumps`` writes as it was."""
    return _loads(text, _AS_WRITTEN)


def _loads(text: bytes, tolerant: json.JSONDecoder) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return tolerant.decode(text.removeprefix(BOM).decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    """A value as JSON text in UTF-8; lone surrogates stay as escapes, floats that JSON has not become null.

    Beside a lone surrogate a number that ``loads_to_write`` kept as its text becomes a string of that text. Raises
    ``RecursionError`` for a value that is nested deeper than the standard library writes.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson.JSONEncodeError: lone surrogates, integers above 64 bits, deep nesting
        pass
    try:
        return _encoded(value)
    except ValueError:
        return _encoded(_finite(value))


def _encoded(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False, default=_fragment_text)
    return text.encode("ascii")


def _fragment_text(value: Any) -> str:
    return orjson.dumps(value).decode()  # a TypeError for what is no fragment


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
