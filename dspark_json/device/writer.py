"""The write side of a ring: one thread of one process, the one that appends to the lane."""

from __future__ import annotations

import os
import time
import zlib
from typing import TYPE_CHECKING, Final

from dspark_json.device import layout
from dspark_json.device.layout import Entry, Moving, RingHeader
from dspark_json.spool.files import write_at
from dspark_json.spool.layout import FILE_MODE, now_us

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark_json.device.memory import DeviceMemory

__all__ = ["ControlFile", "RingWriter"]

_RUN_BYTES: Final = 4 << 20  # the most that is copied and published in one step


class ControlFile:
    """``device.ring`` of a lane, open for writing; it keeps its inode, so that readers which have it open see all."""

    def __init__(self, lane: Path) -> None:
        """Open or make it. Raises ``OSError``."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(lane / layout.RING_FILE, flags, FILE_MODE)

    def read(self, size: int) -> bytes:
        """The first bytes."""
        return os.pread(self._descriptor, size, 0)

    def resize(self, size: int) -> None:
        """Cut or grow it."""
        os.ftruncate(self._descriptor, size)

    def put(self, offset: int, raw: bytes) -> None:
        """Write bytes."""
        write_at(self._descriptor, raw, offset)

    def close(self) -> None:
        """Close it; the file stays."""
        os.close(self._descriptor)


class RingWriter:
    """Puts lines into a ring and publishes where they lie."""

    def __init__(self, control: ControlFile, memory: DeviceMemory, entries: int = layout.TABLE_ENTRIES) -> None:
        """Begin a ring of a new generation. Control file and memory are this object's from now on.

        Raises ``OSError``, as all methods do; a ring that failed once is closed and not used again.
        """
        self._control = control
        self._memory = memory
        self._entries = entries
        self._head = 0
        self._stamp = 0
        before = layout.raw_generation(control.read(layout.HEADER_BYTES))
        # First of all no ring: what was published before is not to be believed while the memory changes hands.
        control.put(layout.GENERATION_AT, layout.pack_generation(0))
        control.resize(layout.control_bytes(entries))
        self.generation = max(before + 1, time.time_ns())
        header = RingHeader(
            kind=memory.kind,
            entries=entries,
            generation=self.generation,
            size=memory.size,
            device=memory.device,
            handle=memory.handle,
            pid=os.getpid(),
        )
        control.put(layout.HEARTBEAT_AT, Moving(now_us(), 0).pack())
        control.put(0, header.pack())

    def append(self, first_seq: int, lines: Sequence[bytes]) -> int:
        """Put the lines of the records from ``first_seq`` on; how many were too large for the ring and left out."""
        left_out = 0
        run: list[tuple[int, bytes]] = []
        size = 0
        for seq, line in enumerate(lines, first_seq):
            if len(line) > self._memory.size:
                left_out += 1
                continue
            room = self._memory.size - (self._head + size) % self._memory.size
            if size and (len(line) > room or size + len(line) > _RUN_BYTES):
                self._publish(run, size)
                run, size = [], 0
                room = self._memory.size - self._head % self._memory.size
            if len(line) > room:
                self._head += room  # never split at the end
            run.append((seq, line))
            size += len(line)
            if len(line) == room:
                self._publish(run, size)
                run, size = [], 0
        if run:
            self._publish(run, size)
        return left_out

    def beat(self) -> None:
        """Say that the writer lives; about once a second."""
        self._control.put(layout.HEARTBEAT_AT, Moving(now_us(), self._head).pack())

    def close(self) -> None:
        """Withdraw the ring and give the memory back."""
        try:
            self._control.put(layout.GENERATION_AT, layout.pack_generation(0))
        finally:
            self._control.close()
            self._memory.close()

    def _publish(self, run: Sequence[tuple[int, bytes]], size: int) -> None:
        """Put lines that lie side by side in the ring."""
        begin = self._head
        self._head += size
        self.beat()
        self._memory.write(begin % self._memory.size, b"".join(line for _, line in run))
        self._stamp += 2
        entries: list[Entry] = []
        for seq, line in run:
            entries.append(Entry(self._stamp - 1, seq, begin, len(line), zlib.crc32(line)))
            begin += len(line)
        for odd in (True, False):
            self._put_entries(entries, odd=odd)

    def _put_entries(self, entries: Sequence[Entry], *, odd: bool) -> None:
        """Write the entries, in one call for as many as lie side by side in the table."""
        raw = bytearray()
        start = following = -1
        for entry in entries:
            slot = entry.seq % self._entries
            if slot != following and raw:
                self._control.put(layout.entry_at(start), bytes(raw))
                raw.clear()
            if not raw:
                start = slot
            stamp = self._stamp - 1 if odd else self._stamp
            raw += Entry(stamp, entry.seq, entry.position, entry.length, entry.crc).pack(self.generation)
            following = slot + 1
        self._control.put(layout.entry_at(start), bytes(raw))
