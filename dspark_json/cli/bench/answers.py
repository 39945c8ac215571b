"""A file of records, as a spool keeps them, of answers like the recorded ones: made from a seed."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.replay.recording import packaged_recordings, packaged_request
from dspark_json.schema.jsonschema import from_json_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

BROKEN_KINDS: Final = "line cut off, content cut off, content in a code fence, control character in a content's string"
MEGABYTE: Final = 1_000_000

_SEED: Final = 1
_BEGINNING: Final = 1_767_225_600  # when the first answer was made, seconds since 1970
_TABLES: Final = 997

# What the hook knows of an answer: as it writes it for one of these requests.
_RECORD: Final = (
    b'{"_dspark":{"seq":%d,"lane":"0000","request_id":"%016x","path":"/v1/chat/completions","model":"tiny",'
    b'"status":200,"stream":false,"received_at":%d,"first_byte_ms":%.3f,"duration_ms":%.3f,"completed":true,'
    b'"disconnected":false,"error":null,"schema":{"name":"order","hash":"a41c77e5d2036b98"},'
    b'"request":{"max_tokens":256,"seed":%d},"body":null},'
)

_ID: Final = re.compile(rb'"id":"chatcmpl-([0-9a-f]{16})"')
_CREATED: Final = re.compile(rb'"created":(\d+)')
# The recorded model was a random one, whose amounts are mostly beyond a double: 5E991127.
_AMOUNT: Final = re.compile(rb'\\"amount\\"\s*:\s*([-+.\deE]+)')
_TEXT: Final = re.compile(rb'\\"(?:order_id|sku|name)\\"\s*:\s*\\"([^"\\]+)\\"')
_CONTENT: Final = re.compile(rb'"content":"((?:[^"\\]|\\.)*)"')
_STRING_IN_CONTENT: Final = b':\\"'


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """Records, one a line; ``ends`` are the positions after the line feeds, as a spool's index has them."""

    path: Path
    ends: Sequence[int]
    broken: int

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.ends[-1]

    def within(self, size: int) -> int:
        """How many whole lines the first ``size`` bytes hold; at least one."""
        return max(1, bisect_right(self.ends, size))


def content_type() -> pa.DataType:
    """What the contents of the answers are: the recorded orders."""
    request = packaged_request("chat_order")
    return from_json_schema(request["response_format"]["json_schema"]["schema"])


def write_answers(path: Path, size: int, broken: float) -> AnswerFile:
    """Write ``size`` bytes of records (a line more at most), a share ``broken`` of them in one of four ways in turn."""
    source = random.Random(_SEED)  # noqa: S311 - no secret
    makers = (_cut_line, _cut_content, _fenced, _with_control_character)
    ends: list[int] = []
    end = spoiled = 0
    with path.open("wb") as file:
        for line in _answers(source):
            written = line
            if source.random() < broken:
                written = makers[spoiled % len(makers)](line)
                spoiled += 1
            file.write(written + b"\n")
            end += len(written) + 1
            ends.append(end)
            if end >= size:
                return AnswerFile(path, ends, spoiled)
    raise AssertionError("answers end")


def _answers(source: random.Random) -> Iterator[bytes]:
    shapes = [_Shape.of(body) for body in _recorded_orders()]
    digits = [_shuffled(source, b"123456789") for _ in range(_TABLES)]
    letters = [_shuffled(source, b"abcdefghijklmnopqrstuvwxyz") for _ in range(_TABLES)]
    number = 0
    while True:
        number += 1
        answer = source.choice(shapes).varied(source, number, source.choice(digits), source.choice(letters))
        yield _record_start(source, number) + answer[1:]


def _record_start(source: random.Random, number: int) -> bytes:
    received_at = (_BEGINNING * 100 + number) * 10_000 - source.randrange(1_000_000)
    first_byte_ms = source.uniform(100, 900)
    spent = (received_at, first_byte_ms, first_byte_ms + source.random())
    return _RECORD % (number - 1, source.getrandbits(64), *spent, source.randrange(1000))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A recorded answer in pieces, every second of them a value of its own kind (``i``, ``c``, ``a`` or ``t``)."""

    pieces: tuple[bytes, ...]
    kinds: str

    @classmethod
    def of(cls, body: bytes) -> _Shape:
        spans = sorted(
            (*match.span(1), kind)
            for kind, pattern in (("i", _ID), ("c", _CREATED), ("a", _AMOUNT), ("t", _TEXT))
            for match in pattern.finditer(body)
        )
        pieces, kinds, at = [], "", 0
        for start, stop, kind in spans:
            pieces += [body[at:start], body[start:stop]]
            kinds += "-" + kind
            at = stop
        return cls((*pieces, body[at:]), kinds + "-")

    def varied(self, source: random.Random, number: int, digits: bytes, letters: bytes) -> bytes:
        """Other ids, times, numbers and strings in the same shape; zeros stay, so that numbers stay JSON."""
        made = []
        for piece, kind in zip(self.pieces, self.kinds, strict=True):
            if kind == "-":
                made.append(piece.translate(digits))
            elif kind == "t":
                made.append(piece.translate(letters))
            elif kind == "a":
                made.append(b"%d.%02d" % divmod(source.randrange(10_000_000), 100))
            elif kind == "i":
                made.append(b"%016x" % source.getrandbits(64))
            else:
                made.append(b"%d" % (_BEGINNING + number // 100))
        return b"".join(made)


def _recorded_orders() -> list[bytes]:
    recordings = [r for r in packaged_recordings() if r.traits.name == "order" and not r.traits.stream]
    return [r.parts[0] for r in recordings if b'"finish_reason":"stop"' in r.parts[0]]


def _shuffled(source: random.Random, letters: bytes) -> bytes:
    return bytes.maketrans(letters, bytes(source.sample(letters, len(letters))))


def _cut_line(line: bytes) -> bytes:
    return line[: len(line) * 2 // 3]


def _cut_content(line: bytes) -> bytes:
    start, stop = _content(line)
    kept = line[: start + (stop - start) * 3 // 5].rstrip(b"\\")
    return kept + line[stop:].replace(b'"finish_reason":"stop"', b'"finish_reason":"length"', 1)


def _fenced(line: bytes) -> bytes:
    start, stop = _content(line)
    return line[:start] + b"```json\\n" + line[start:stop] + b"\\n```" + line[stop:]


def _with_control_character(line: bytes) -> bytes:
    at = line.index(_STRING_IN_CONTENT) + len(_STRING_IN_CONTENT)
    return line[:at] + b"\\n" + line[at:]


def _content(line: bytes) -> tuple[int, int]:
    match = _CONTENT.search(line)
    assert match is not None
    return match.span(1)
