"""The read side of a ring: which records of a range are in it, and their bytes, verified."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from dspark_json.device import layout
from dspark_json.device.memory import Move, open_memory
from dspark_json.errors import DeviceError
from dspark_json.spool.layout import now_us

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark_json.device.layout import Entry, Moving, RingHeader
    from dspark_json.device.memory import DeviceMemory, Taken
    from dspark_json.spool.access import IndexSlice

__all__ = ["RingPart", "RingReader"]

_UNREADABLE: Final = (OSError, ValueError, DeviceError)


@dataclass(frozen=True, slots=True)
class RingPart:
    """Records of an index slice as a ring gave them.

    ``taken`` has room for all of them, ``missing`` are the positions in the slice (ascending) of those it has not; they
    are for the caller to fill in. ``overwritten`` of them were in the ring when the copy began, the others were not.
    """

    taken: Taken
    missing: Sequence[int]
    overwritten: int


class RingReader:
    """Reads one ring, of one generation; not for several threads at once."""

    def __init__(self, descriptor: int, header: RingHeader, memory: DeviceMemory) -> None:
        """Use ``open``; all three are this object's from now on."""
        self.header = header
        self._descriptor = descriptor
        self._memory = memory

    @classmethod
    def open(cls, lane: Path) -> tuple[RingReader | None, str]:
        """The ring of a lane and an empty text; where there is none that can be read, None and why."""
        try:
            descriptor = os.open(lane / layout.RING_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return None, f"{lane / layout.RING_FILE} can't be opened: {error.strerror}"
        try:
            raw = os.pread(descriptor, layout.HEADER_BYTES, 0)
            header = layout.unpack_header(raw)
            why = _problem(header, raw)
            if header is not None and not why:
                reader = cls(descriptor, header, open_memory(lane, header))
                descriptor = -1
                return reader, ""
        except _UNREADABLE as error:
            why = f"the ring of {lane} can't be opened: {error}"
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return None, f"{lane / layout.RING_FILE} {why}" if not why.startswith("the ring") else why

    def take(self, index: IndexSlice) -> RingPart | None:
        """Copy what the ring has of a slice of the spool's index, and verify it against the index.

        None where the ring is another one by now, or its writer has ended: open it again.
        """
        moving = self._moving()
        if moving is None or now_us() - moving.heartbeat > layout.STALE_US:
            return None
        raw = self._raw_entries(index.first_seq, len(index))
        wanted = self._found(index, raw, moving.head)
        taken = self._memory.take(_moves(index, wanted, self.header.size), index.ends[-1])
        after = self._moving()
        if after is None:
            return None
        kept = self._still_there(index, raw, wanted, after.head)
        if kept:
            crcs = taken.checksums(index.ends)
            kept = {position for position in kept if crcs[position] == index.crcs[position]}
        missing = [position for position in range(len(index)) if position not in kept]
        return RingPart(taken, missing, len(wanted) - len(kept))

    def close(self) -> None:
        """Close control file and memory."""
        os.close(self._descriptor)
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _moving(self) -> Moving | None:
        """Heartbeat and head now; None where the control file is of another ring."""
        raw = os.pread(self._descriptor, layout.HEADER_BYTES, 0)
        return layout.unpack_moving(raw) if layout.unpack_header(raw) == self.header else None

    def _raw_entries(self, first_seq: int, count: int) -> list[bytes]:
        """The table's entries for consecutive records, as bytes."""
        entries = self.header.entries
        found: list[bytes] = []
        while len(found) < count:
            slot = (first_seq + len(found)) % entries
            some = min(count - len(found), entries - slot)
            raw = os.pread(self._descriptor, some * layout.ENTRY_BYTES, layout.entry_at(slot))
            raw = raw.ljust(some * layout.ENTRY_BYTES, b"\0")
            found += (raw[i * layout.ENTRY_BYTES : (i + 1) * layout.ENTRY_BYTES] for i in range(some))
        return found

    def _found(self, index: IndexSlice, raw: Sequence[bytes], head: int) -> dict[int, Entry]:
        """The entries of those records of the slice that are in the ring."""
        found: dict[int, Entry] = {}
        begin = 0
        for position, end in enumerate(index.ends):
            entry = layout.unpack_entry(raw[position], self.header.generation)
            if (
                entry is not None
                and entry.seq == index.first_seq + position
                and entry.length == end - begin
                and entry.crc == index.crcs[position]
                and head <= entry.position + self.header.size
            ):
                found[position] = entry
            begin = end
        return found

    def _still_there(self, index: IndexSlice, before: Sequence[bytes], wanted: dict[int, Entry], head: int) -> set[int]:
        """The records of which neither the entry nor the bytes were overwritten since."""
        after = self._raw_entries(index.first_seq, len(index))
        return {
            position
            for position, entry in wanted.items()
            if head <= entry.position + self.header.size and after[position] == before[position]
        }


def _problem(header: RingHeader | None, raw: bytes) -> str:
    """What keeps a ring from being read, to follow the file's path; empty if nothing."""
    if header is None:
        return "has no ring (its writer ended, or is about to begin one)"
    age = now_us() - layout.unpack_moving(raw).heartbeat
    return f"was not renewed for {age // 1_000_000} s: its writer has ended" if age > layout.STALE_US else ""


def _moves(index: IndexSlice, wanted: dict[int, Entry], size: int) -> list[Move]:
    """The copies that bring the wanted records to their places, one for as many as lie side by side."""
    moves: list[Move] = []
    for position, entry in wanted.items():
        target = index.ends[position] - entry.length
        source = entry.position % size
        last = moves[-1] if moves else None
        if last is not None and (last.source + last.length, last.target + last.length) == (source, target):
            moves[-1] = Move(last.source, last.target, last.length + entry.length)
        else:
            moves.append(Move(source, target, entry.length))
    return moves
