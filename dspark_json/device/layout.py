"""The byte format of ``<lane>/device.ring``, the control file of a ring, and why a reader may trust it (DESIGN §7).

A ring is one block of memory (of a GPU, or a file) in which the writer of a lane puts each line once more, behind the
one before it, and begins again at the start when the end is reached. A record is never split there: one that does not
fit before the end begins at the start. The control file says where the block is and where in it each record lies. All
numbers are little endian::

    0    8   magic b"DSPKRNG1"
    8    4   kind of memory: 1 a file, 2 CUDA
    12   4   entries in the table
    16   8   generation: another number for each ring that was ever here; 0 while there is none
    24   8   size of the block in bytes
    32   16  UUID of the CUDA device (zeros for a file)
    48   64  how the block is opened: the CUDA IPC handle, or the file's name in the lane's folder, padded with zeros
    112  8   process id of the writer, in its own PID namespace
    120  4   0
    124  4   CRC-32 of the bytes 0 to 123
    128  8   heartbeat: µs since 1970, renewed about once a second
    136  8   head: the position below which bytes may have been written
    144  48  0
    192      the table; the record with number n is in entry n modulo the number of entries, 40 bytes:
             8   stamp: odd while the entry is written
             8   number of the record
             8   position of its first byte
             4   length of the line in bytes
             4   CRC-32 of the line
             4   CRC-32 of the 32 bytes before and the generation's 8
             4   0

Positions only grow: a byte at position p lies at p modulo the size, and is gone once the head exceeds p + size.

**The writer** moves the head first, then puts the bytes (a stream on a GPU is synchronised), then writes the entries
with an odd stamp, then the same with the next even one. **A reader** takes an entry whose stamp is even and whose
checksum holds, sees that the head is not beyond it, copies the bytes, and looks at generation, head and entry again.
What has changed meanwhile was overwritten; the reader takes that record from the spool, and counts it.

What this rests on. Writer and reader use ``pwrite`` and ``pread``: neither can be killed by a file that somebody makes
shorter, as one with a mapping would be. Neither call is atomic against the other, so an entry may be read half old and
half new; and neither is a memory barrier by contract. On x86-64 stores become visible in the order they were made, and
that is enough: whoever sees new bytes also sees the head that went before them. On aarch64 they may become visible in
another order, so that a reader may see an entry before its bytes, or new bytes before the head. The stamp and the head
are therefore only the first guard. The second does not depend on any order: the entry's checksum says whether it is of
one piece and of this generation, and every copied record must have the length and the CRC-32 that the spool's index has
for its number. Bytes that fail it are never handed on.

A ring of a writer that was killed stays as it is: its entries stay true, but a GPU's memory is gone with the process.
So a reader leaves a ring alone whose heartbeat is older than ``STALE_US``.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

RING_FILE: Final = "device.ring"
BLOCK_FILE: Final = "device.block"
MAGIC: Final = b"DSPKRNG1"
HOST: Final = 1
CUDA: Final = 2
TABLE_ENTRIES: Final = 65_536
HANDLE_BYTES: Final = 64
STALE_US: Final = 5_000_000

HEARTBEAT_AT: Final = 128
HEAD_AT: Final = 136
HEADER_BYTES: Final = 192
ENTRY_BYTES: Final = 40

_HEADER: Final = struct.Struct("<8sIIQQ16s64sQI")
_HEADER_CRC: Final = struct.Struct("<I")
_MOVING: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<QQQII")
_ENTRY_CRC: Final = struct.Struct("<II")
_GENERATION: Final = struct.Struct("<Q")
GENERATION_AT: Final = 16


@dataclass(frozen=True, slots=True)
class RingHeader:
    """What does not change in the life of a ring."""

    kind: int
    entries: int
    generation: int
    size: int
    device: bytes
    handle: bytes
    pid: int

    def pack(self) -> bytes:
        """The first 128 bytes of the control file."""
        raw = _HEADER.pack(
            MAGIC, self.kind, self.entries, self.generation, self.size, self.device, self.handle, self.pid, 0
        )
        return raw + _HEADER_CRC.pack(zlib.crc32(raw))


@dataclass(frozen=True, slots=True)
class Moving:
    """What changes: the heartbeat in µs since 1970, and the head."""

    heartbeat: int
    head: int

    def pack(self) -> bytes:
        """The 16 bytes behind the header."""
        return _MOVING.pack(self.heartbeat, self.head)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a record lies; ``stamp`` is odd while that is being written."""

    stamp: int
    seq: int
    position: int
    length: int
    crc: int

    def pack(self, generation: int) -> bytes:
        """The 40 bytes of the table."""
        raw = _ENTRY.pack(self.stamp, self.seq, self.position, self.length, self.crc)
        return raw + _ENTRY_CRC.pack(_entry_crc(raw, generation), 0)


def unpack_header(raw: bytes) -> RingHeader | None:
    """The header in the first bytes of a control file; None where there is no ring, or not this format's."""
    if len(raw) < HEADER_BYTES:
        return None
    (crc,) = _HEADER_CRC.unpack_from(raw, _HEADER.size)
    magic, kind, entries, generation, size, device, handle, pid, _ = _HEADER.unpack_from(raw)
    if magic != MAGIC or crc != zlib.crc32(raw[: _HEADER.size]) or generation == 0 or not entries or not size:
        return None
    return RingHeader(kind, entries, generation, size, device, handle, pid)


def unpack_moving(raw: bytes) -> Moving:
    """Heartbeat and head in the first bytes of a control file."""
    return Moving(*_MOVING.unpack_from(raw, HEARTBEAT_AT))


def unpack_entry(raw: bytes, generation: int) -> Entry | None:
    """An entry of the table; None where it is empty, being written, torn, or of another generation."""
    stamp, seq, position, length, crc = _ENTRY.unpack_from(raw)
    found, zero = _ENTRY_CRC.unpack_from(raw, _ENTRY.size)
    if stamp % 2 or zero or found != _entry_crc(raw[: _ENTRY.size], generation):
        return None
    return Entry(stamp, seq, position, length, crc)


def entry_at(slot: int) -> int:
    """Where an entry of the table begins in the control file."""
    return HEADER_BYTES + ENTRY_BYTES * slot


def control_bytes(entries: int) -> int:
    """The size of a control file."""
    return HEADER_BYTES + ENTRY_BYTES * entries


def pack_generation(generation: int) -> bytes:
    """The 8 bytes at ``GENERATION_AT``."""
    return _GENERATION.pack(generation)


def raw_generation(raw: bytes) -> int:
    """The generation in the first bytes of a control file, whether or not the rest is whole; 0 where it is short."""
    if len(raw) < HEADER_BYTES:
        return 0
    generation: int = _GENERATION.unpack_from(raw, GENERATION_AT)[0]
    return generation


def _entry_crc(raw: bytes, generation: int) -> int:
    return zlib.crc32(_GENERATION.pack(generation), zlib.crc32(raw))
