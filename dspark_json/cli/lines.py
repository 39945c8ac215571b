"""The lines of a file or of standard input, as they come."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from io import BufferedIOBase

_AT_ONCE: Final = 1 << 16
# How compressed files begin, which no line of JSON does; what they are called; what unpacks them to a pipe.
_COMPRESSED: Final = (
    (b"\x1f\x8b", "gzip", "zcat"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstdcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
    (b"\x04\x22\x4d\x18", "LZ4", "lz4cat"),
    (b"PK\x03\x04", "zip", "unzip -p"),
)
_LONGEST_BEGINNING: Final = max(len(beginning) for beginning, *_ in _COMPRESSED)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank, without its line feed; ``number`` counts all lines from 1 on.

    ``is_cut``: it is longer than was asked for, and ``text`` is only its beginning.
    """

    number: int
    text: bytes
    is_cut: bool = False


def line_batches(file: str, longest: int | None = None) -> Generator[list[Line], None, None]:
    """The lines of ``file`` (``-``: standard input), those together that one read gives: a live pipe is not waited for.

    Of a line of more than ``longest`` bytes only the beginning is held in memory. Raises ``InvalidOptionError`` where
    the file can't be read, or is compressed.
    """
    try:
        if file == "-":
            yield from _batches(_standard_input(), longest)
        else:
            with _opened(file) as source:
                yield from _batches(source, longest)
    except _UnreadableError as error:
        raise InvalidOptionError(
            f'"{file}" can\'t be read: {error.reason}', remedy="Give a file of lines, or - for standard input."
        ) from None
    except _CompressedError as error:
        is_piped = file == "-"
        what = "standard input" if is_piped else f'"{file}"'
        unpacking = f"… | {error.tool}" if is_piped else f"{error.tool} {shlex.quote(file)}"
        raise InvalidOptionError(
            f"{what} is compressed ({error.kind})", remedy=f"Unpack it on the way: `{unpacking} | dspark-json … -`."
        ) from None


class _CompressedError(Exception):
    """What is read is no text: ``kind`` names how it is compressed, ``tool`` unpacks it."""

    def __init__(self, kind: str, tool: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.tool = tool


class _UnreadableError(Exception):
    """What the operating system said to a read; apart from the errors of whoever takes the lines."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.reason = error.strerror or str(error)


def _standard_input() -> BufferedIOBase:
    if sys.stdin is None:  # the command was started with it closed
        raise _UnreadableError(OSError("standard input is closed"))
    return cast("BufferedIOBase", sys.stdin.buffer)


def _opened(file: str) -> BufferedIOBase:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise _UnreadableError(error) from None
    except ValueError as error:  # a NUL in the name
        raise _UnreadableError(OSError(str(error))) from None


def _batches(source: BufferedIOBase, longest: int | None) -> Iterator[list[Line]]:
    number, begun, size, beginning = 0, list[bytes](), 0, b""
    while True:
        try:
            block = source.read1(_AT_ONCE)
        except OSError as error:
            raise _UnreadableError(error) from None
        if len(beginning) < _LONGEST_BEGINNING:
            beginning += block[:_LONGEST_BEGINNING]
            _require_text(beginning)
        if b"\n" not in block and block:
            size += len(block)
            if longest is None or size <= longest or not begun:
                begun.append(block)
            continue
        *whole, rest = b"".join([*begun, block]).split(b"\n")
        if not block:  # the end: a last line may lack its line feed
            whole.append(rest)
        lines = [
            Line(number + i, text, longest is not None and max(len(text), size if i == 1 else 0) > longest)
            for i, text in enumerate(whole, start=1)
            if text.strip()
        ]
        begun, size = [rest], len(rest)
        number += len(whole)
        if lines:
            yield lines
        if not block:
            return


def _require_text(beginning: bytes) -> None:
    for mark, kind, tool in _COMPRESSED:
        if beginning.startswith(mark):
            raise _CompressedError(kind, tool)
