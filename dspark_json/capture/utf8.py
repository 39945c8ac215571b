"""Bytes that may be cut or damaged, made into UTF-8 on one line, in slices."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.capture.pacing import Pacer

_PIECE_BYTES: Final = 64 << 10


def one_line(chunks: Iterable[bytes], pacer: Pacer) -> bytes:
    """The bytes joined; invalid UTF-8 becomes U+FFFD, line breaks become blanks."""
    return b"".join(text.encode().replace(b"\n", b" ").replace(b"\r", b" ") for text in _decoded(chunks, pacer))


def json_string(chunks: Iterable[bytes], pacer: Pacer) -> bytes:
    """The bytes joined, as one JSON string literal; invalid UTF-8 becomes U+FFFD."""
    return b'"' + b"".join(orjson.dumps(text)[1:-1] for text in _decoded(chunks, pacer)) + b'"'


def _decoded(chunks: Iterable[bytes], pacer: Pacer) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE_BYTES):
            yield decoder.decode(chunk[start : start + _PIECE_BYTES])
            pacer.tick()
    yield decoder.decode(b"", final=True)
