"""The memory that a ring lies in, behind one small interface, and its implementation in a file."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from dspark_json.device import layout
from dspark_json.spool.files import write_at
from dspark_json.spool.layout import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark_json.device.layout import RingHeader

__all__ = ["DeviceMemory", "HostMemory", "Move", "Taken", "open_memory"]


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes to be copied: ``length`` of them, from an offset in the ring to an offset in the reader's own memory."""

    source: int
    target: int
    length: int


class Taken(Protocol):
    """Records in memory of the reader's own, one behind the other, with gaps for those that the ring did not have."""

    @property
    def pointer(self) -> int | None:
        """The address in the GPU's memory; None where the bytes are the host's."""
        ...

    def fill(self, target: int, data: bytes | memoryview) -> None:
        """Put bytes into a gap."""
        ...

    def checksums(self, ends: Sequence[int]) -> list[int]:
        """The CRC-32 (zlib) of each record; record i ends at ``ends[i]`` and begins where the one before it ends."""
        ...

    def to_host(self) -> memoryview:
        """The bytes in the host's memory."""
        ...


class DeviceMemory(Protocol):
    """A block of memory that its maker writes and other processes copy from.

    ``kind``, ``size`` (bytes), ``device`` (16 bytes) and ``handle`` (64 bytes) are what the control file tells.
    """

    @property
    def kind(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> bytes: ...
    @property
    def handle(self) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None:
        """Put bytes; they are there when this returns."""
        ...

    def take(self, moves: Sequence[Move], size: int) -> Taken:
        """Copy bytes into ``size`` bytes of new memory; they are there when this returns."""
        ...

    def close(self) -> None:
        """Give the memory back, or close it where another process has made it."""
        ...


class HostMemory:
    """A ring's block in a file, for machines without a GPU: the same protocol, to the byte."""

    kind: Final = layout.HOST
    device: Final = bytes(16)

    def __init__(self, descriptor: int, size: int, name: str) -> None:
        """Use ``make`` or ``open``; ``descriptor`` is this object's from now on."""
        self.size = size
        self.handle = name.encode().ljust(layout.HANDLE_BYTES, b"\0")
        self._descriptor = descriptor

    @classmethod
    def make(cls, lane: Path, size: int) -> HostMemory:
        """The writer's side: a file in the lane's folder. Raises ``OSError``."""
        path = lane / layout.BLOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            os.ftruncate(descriptor, size)
            os.posix_fallocate(descriptor, 0, size)  # a full file system shows here, not at a record
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, size, layout.BLOCK_FILE)

    @classmethod
    def open(cls, lane: Path, header: RingHeader) -> HostMemory:
        """The reader's side. Raises ``OSError``, ``ValueError`` for a name that is no file's of a lane."""
        name = header.handle.rstrip(b"\0").decode("ascii")
        if name != layout.BLOCK_FILE:
            raise ValueError(f"{name!r} is not the file of a ring")
        return cls(os.open(lane / name, os.O_RDONLY | os.O_CLOEXEC), header.size, name)

    def write(self, offset: int, data: bytes) -> None:
        """See ``DeviceMemory.write``."""
        write_at(self._descriptor, data, offset)

    def take(self, moves: Sequence[Move], size: int) -> HostTaken:
        """See ``DeviceMemory.take``; what a file that was made shorter lacks stays zero, and fails its checksum."""
        buffer = bytearray(size)
        view = memoryview(buffer)
        for move in moves:
            os.preadv(self._descriptor, [view[move.target : move.target + move.length]], move.source)
        return HostTaken(buffer)

    def close(self) -> None:
        """See ``DeviceMemory.close``."""
        os.close(self._descriptor)


class HostTaken:
    """Records copied out of a ``HostMemory``."""

    pointer: Final = None

    def __init__(self, buffer: bytearray) -> None:
        self._view = memoryview(buffer)

    def fill(self, target: int, data: bytes | memoryview) -> None:
        """See ``Taken.fill``."""
        self._view[target : target + len(data)] = data

    def checksums(self, ends: Sequence[int]) -> list[int]:
        """See ``Taken.checksums``."""
        return checksums(self._view, ends)

    def to_host(self) -> memoryview:
        """See ``Taken.to_host``."""
        return self._view.toreadonly()


def checksums(view: memoryview, ends: Sequence[int]) -> list[int]:
    """The CRC-32 of each record of a buffer; record i ends at ``ends[i]``."""
    found, begin = [], 0
    for end in ends:
        found.append(zlib.crc32(view[begin:end]))
        begin = end
    return found


def open_memory(lane: Path, header: RingHeader) -> DeviceMemory:
    """The memory that a control file tells of, for reading.

    Raises ``OSError`` or ``ValueError`` for a file, ``DeviceError`` for a GPU's memory that can't be opened here.
    """
    if header.kind == layout.HOST:
        return HostMemory.open(lane, header)
    if header.kind == layout.CUDA:
        from dspark_json.device.cuda import CudaMemory

        return CudaMemory.open(header)
    raise ValueError(f"memory of kind {header.kind} is not known to this version")
