"""Bytes of a data file read piece by piece, for the process that serves: it never maps a file.

A file that shrinks under a mapping (``> file``, a log tool that copies and truncates, a failing disk) kills the process
that touches it, with SIGBUS. A reader may risk that for a read without a copy, the server may not.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECE_BYTES: Final = 256 << 10


class DataRange:
    """The bytes from ``begin`` to below ``end`` of an open file, which is closed with the last reference to this.

    They stay readable when the file is removed. Usable from any thread.
    """

    __slots__ = ("_begin", "_descriptor", "_end")

    def __init__(self, descriptor: int, begin: int, end: int) -> None:
        """``descriptor`` is this object's from now on."""
        self._descriptor = descriptor
        self._begin = begin
        self._end = end

    def __len__(self) -> int:
        return self._end - self._begin

    def __del__(self) -> None:
        os.close(self._descriptor)

    def piece(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to below ``stop`` of the range; ``EOFError`` where the file has become shorter."""
        return read_exactly(self._descriptor, self._begin + start, self._begin + min(stop, len(self)))


def read_exactly(descriptor: int, begin: int, end: int) -> bytes:
    """The bytes of a file from ``begin`` to below ``end``; ``EOFError`` where it does not have them all."""
    parts = []
    while begin < end:
        part = os.pread(descriptor, end - begin, begin)
        if not part:
            raise EOFError(f"the file ends at {begin}, {end - begin} bytes too soon")
        parts.append(part)
        begin += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def first_bad(descriptor: int, begin: int, ends: Sequence[int], crcs: Sequence[int]) -> int | None:
    """The position (from 0) of the first record whose bytes don't match its CRC-32; None where all do.

    The first record begins at ``begin`` in the file, and each ends at its number in ``ends``. A record that ends where
    it begins, or beyond the end of the file, is bad.
    """
    window, base = memoryview(b""), begin  # what was read last, and where in the file it begins
    for position, (end, crc) in enumerate(zip(ends, crcs, strict=True)):
        if end <= begin:
            return position
        found = 0
        while end > base + len(window):  # the record goes on behind the window
            found = zlib.crc32(window[begin - base :], found)
            begin = base = base + len(window)
            window = memoryview(os.pread(descriptor, min(PIECE_BYTES, max(end, ends[-1]) - begin), begin))
            if not window:
                return position
        if zlib.crc32(window[begin - base : end - base], found) != crc:
            return position
        begin = end
    return None
