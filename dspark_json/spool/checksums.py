"""The checksums of many records at once, natively where this installation has the native module."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from dspark_json.spool.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["first_damaged", "first_damaged_by_zlib"]


def first_damaged_by_zlib(buffer: memoryview, ends: Sequence[int], crcs: Sequence[int]) -> int | None:
    """What ``first_damaged`` does, where there is no native module."""
    begin = 0
    for position, (end, crc) in enumerate(zip(ends, crcs, strict=True)):
        if not begin < end <= len(buffer) or zlib.crc32(buffer[begin:end]) != crc:
            return position
        begin = end
    return None


_first_damaged = first_damaged_by_zlib if native is None else native.first_damaged


def first_damaged(buffer: memoryview, ends: Sequence[int], crcs: Sequence[int]) -> int | None:
    """The position (from 0) of the first record that does not match its CRC-32 (DESIGN §3); None where all do.

    Record i is ``buffer[ends[i - 1] or 0 : ends[i]]``. One that ends where it begins, or beyond the buffer, is damaged.
    The buffer is read-only. Other threads run meanwhile.
    """
    try:
        return _first_damaged(buffer, ends, crcs)
    except OverflowError:  # ends that are no positions, of a damaged index: native numbers have 64 bits and no sign
        return first_damaged_by_zlib(buffer, ends, crcs)
