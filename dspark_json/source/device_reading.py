"""Records out of a lane's device ring, for an engine that reads them where they lie (DESIGN §7).

The spool says what a record is: its index gives the bounds and the checksum that every byte from the ring is held to.
What the ring no longer has is read from the spool, into its place among the others, and counted.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.device.reader import RingReader
from dspark_json.errors import DeviceError
from dspark_json.spool.access import Chunk, IndexSlice
from dspark_json.spool.layout import lane_folder
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dspark_json.device.memory import Taken
    from dspark_json.spool.access import SpoolAccess

__all__ = ["DeviceChunk", "RingSource", "gather"]

_log = logging.getLogger(__name__)

_BATCH_BYTES: Final = 64 << 20
_BATCH_RECORDS: Final = 65_536


@dataclass(frozen=True, slots=True)
class DeviceChunk:
    """A chunk (see ``Chunk``) whose bytes are in a GPU's memory; ``buffer`` brings them to the host, once."""

    spool_id: str
    lane: str
    first_seq: int
    taken: Taken
    ends: Sequence[int]
    appended_at: Sequence[int]
    _on_host: list[memoryview] = field(default_factory=list, init=False, repr=False)

    @property
    def device_pointer(self) -> int | None:
        """The address of the bytes in the GPU's memory."""
        return self.taken.pointer

    @property
    def buffer(self) -> memoryview:
        """The bytes, copied to the host."""
        if not self._on_host:
            self._on_host.append(self.taken.to_host())
        return self._on_host[0]

    @property
    def next_seq(self) -> int:
        """The number after the last record of the chunk."""
        return self.first_seq + len(self.ends)

    def __len__(self) -> int:
        return len(self.ends)


@dataclass(slots=True)
class RingSource:
    """Reads ranges of one lane, from its ring as far as it goes.

    ``mirrored`` are records that came from the ring, ``overwritten`` those that were lost in it while they were copied.
    """

    access: SpoolAccess
    lane: str
    mirrored: int = 0
    overwritten: int = 0
    _ring: RingReader | None = field(default=None, init=False)
    _tried: bool = field(default=False, init=False)

    def read(self, lane: str, start: int, stop: int) -> Chunk | DeviceChunk:
        """At least one record of a range of the lane, as ``SpoolAccess.read``, whose errors it raises."""
        ring = self._opened() if lane == self.lane else None
        if ring is None:
            return self.access.read(lane, start, stop)
        index = _within(self.access.index(self.lane, start, min(stop, start + _BATCH_RECORDS)), _BATCH_BYTES)
        try:
            part = ring.take(index)
        except (OSError, DeviceError) as error:
            _log.warning("the device ring of lane %s can't be read, the spool is: %s", self.lane, error)
            part = None
        if part is None:
            self.close()
        if part is None or len(part.missing) == len(index):
            return self.access.read(self.lane, start, stop)
        self._fill(index, part.missing, part.taken)
        self.mirrored += len(index) - len(part.missing)
        self.overwritten += part.overwritten
        spool_id = self.access.offsets().spool_id
        return DeviceChunk(spool_id, self.lane, start, part.taken, index.ends, index.appended_at)

    def close(self) -> None:
        """Close the ring, and say what came of it."""
        ring, self._ring = self._ring, None
        if ring is not None:
            ring.close()
            _log.info(
                "device ring of lane %s: %d records read from it, device_ring_overwritten %d",
                self.lane,
                self.mirrored,
                self.overwritten,
            )

    def _opened(self) -> RingReader | None:
        if not self._tried and isinstance(self.access, SpoolReader):
            self._ring, why = RingReader.open(lane_folder(self.access.folder, self.lane))
            if self._ring is None:
                _log.info("lane %s is read from the spool: %s", self.lane, why)
        self._tried = True
        return self._ring

    def _fill(self, index: IndexSlice, missing: Sequence[int], taken: Taken) -> None:
        """Put the records that the ring does not have into their places."""
        at = 0
        while at < len(missing):
            first = missing[at]
            run = at
            while run + 1 < len(missing) and missing[run + 1] == missing[run] + 1:
                run += 1
            chunk = self.access.read(self.lane, index.first_seq + first, index.first_seq + missing[run] + 1)
            taken.fill(index.ends[first - 1] if first else 0, chunk.buffer[: chunk.ends[-1]])
            at += len(chunk)


def gather(chunks: Iterable[Chunk | DeviceChunk], least: int) -> Iterator[Chunk | DeviceChunk]:
    """Consecutive chunks of the host's memory put together, until they have ``least`` bytes; device chunks as they are.

    A gap in the numbers, and the end, end a chunk too.
    """
    waiting: list[Chunk] = []
    size = 0
    for chunk in chunks:
        if waiting and (isinstance(chunk, DeviceChunk) or chunk.first_seq != waiting[-1].next_seq):
            yield _joined(waiting)
            waiting, size = [], 0
        if isinstance(chunk, DeviceChunk):
            yield chunk
            continue
        waiting.append(chunk)
        size += chunk.ends[-1] if len(chunk) else 0
        if size >= least:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    first = chunks[0]
    if len(chunks) == 1:
        return first
    data = b"".join(chunk.buffer[: chunk.ends[-1]] for chunk in chunks)
    ends: list[int] = []
    appended_at: list[int] = []
    for chunk in chunks:
        shift = ends[-1] if ends else 0
        ends.extend(end + shift for end in chunk.ends)
        appended_at.extend(chunk.appended_at)
    return Chunk(first.spool_id, first.lane, first.first_seq, memoryview(data), ends, appended_at)


def _within(index: IndexSlice, most: int) -> IndexSlice:
    """The first entries of a slice, at least one, of so many bytes."""
    count = max(1, bisect_right(index.ends, most))
    return IndexSlice(index.first_seq, index.ends[:count], index.appended_at[:count], index.crcs[:count])
