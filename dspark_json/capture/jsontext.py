"""Reading and writing JSON, quickly with orjson and completely with the standard library where orjson refuses."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import orjson


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_TOLERANT: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def loads(text: bytes) -> Any:
    """The value of a JSON text (RFC 8259); ``ValueError`` if it is none.

    orjson refuses lone surrogates, invalid UTF-8 and deep nesting; the standard library takes them (invalid bytes
    become U+FFFD).
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return _TOLERANT.decode(text.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    """A value as JSON text in UTF-8; lone surrogates stay as escapes, numbers that JSON has not become null.

    Raises ``RecursionError`` for one that is nested deeper than the standard library writes.
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
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
