"""Records as the lines and the index entries of segments, natively where this installation has the native module."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from dspark_json.spool import layout
from dspark_json.spool.native import native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.spool.record import Record

__all__ = ["Part", "frame", "frame_in_python"]


class Part(NamedTuple):
    """What goes into one segment: the number of its first record, whole lines, and their index entries."""

    first_seq: int
    data: bytes
    entries: bytes

    def lines(self, before: int = 0) -> list[bytes]:
        """The lines one by one; ``before``: bytes of the segment in front of them."""
        ends = [end - before for end in layout.unpack_entries(self.entries).ends]
        return [self.data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def frame_in_python(
    records: Sequence[Record], seq: int, lane: str, end: int, full: int, appended_at: int
) -> list[tuple[int, bytes, bytes]]:
    """What ``frame`` does, where there is no native module."""
    parts: list[tuple[int, list[bytes], bytearray]] = [(seq, [], bytearray())]
    for number, record in enumerate(records, seq):
        line = record.line(number, lane)
        if end and end + len(line) > full:
            parts.append((number, [], bytearray()))
            end = 0
        end += len(line)
        _, lines, entries = parts[-1]
        lines.append(line)
        entries += layout.pack_entry(end, appended_at, zlib.crc32(line))
    return [(first_seq, b"".join(lines), bytes(entries)) for first_seq, lines, entries in parts]


_frame = frame_in_python if native is None else native.frame


def frame(records: Sequence[Record], seq: int, lane: str, end: int, full: int, appended_at: int) -> list[Part]:
    """Records under the numbers from ``seq`` on, one part a segment (DESIGN §3).

    The first part is for the open segment, which has ``end`` bytes, and may be empty; a segment is ``full`` (bytes)
    where the next line would go beyond that, but an empty one takes any line. ``appended_at`` (µs) is for the index.
    Other threads run meanwhile, unless there is little to do.
    """
    return [Part(*part) for part in _frame(records, seq, lane, end, full, appended_at)]
