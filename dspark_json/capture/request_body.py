"""The body of a request as text, read as tolerantly as servers do."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.captured import PARSED_BYTES, header
from dspark_json.capture.jsontext import loads

if TYPE_CHECKING:
    from dspark_json.capture.captured import Captured

_PLAIN: Final = ("", "identity")
_ZIPPED: Final = ("gzip", "x-gzip", "deflate")
_ANY_ZLIB_HEADER: Final = zlib.MAX_WBITS | 32


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order, each as often as it is there."""


def request_text(captured: Captured) -> str | None:
    """The body of a request; empty where there was none, None where it can't be looked at.

    A compressed one (gzip, deflate) may be unpacked on its way to the server, so it is here, up to 256 KiB. UTF-16 and
    UTF-32 are told as Python's ``json`` tells them.
    """
    if captured.request is None:
        return "" if captured.request_size == 0 else None
    whole = b"".join(captured.request)
    encoding = (header(captured.request_headers, b"content-encoding") or "").strip().lower()
    if encoding in _ZIPPED:
        unpacked = _unzipped(whole)
        if unpacked is None:
            return None
        whole = unpacked
    elif encoding not in _PLAIN:
        return None
    return whole.decode(json.detect_encoding(whole), "replace")


def read_request(captured: Captured) -> Any:
    """The value of a request's body; None where it can't be read. NaN and infinities are read, as servers do."""
    parts = captured.request
    if parts is not None and header(captured.request_headers, b"content-encoding") is None:
        try:
            return loads(parts[0] if len(parts) == 1 else b"".join(parts))
        except ValueError:
            pass
    text = request_text(captured)
    if text:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return None


def read_pairs(text: str) -> Any:
    """The value of a JSON text with its objects as ``Members``; None where it can't be read."""
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=Members)
    except (ValueError, RecursionError):
        return None


def _unzipped(packed: bytes) -> bytes | None:
    unpacking = zlib.decompressobj(_ANY_ZLIB_HEADER)
    try:
        unpacked = unpacking.decompress(packed, PARSED_BYTES + 1)
    except zlib.error:
        return None
    return unpacked if len(unpacked) <= PARSED_BYTES else None
