"""What a reader of a spool sees, whether through its folder (``SpoolReader``) or through the server (``HttpSpool``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_CHUNK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class LaneExtent:
    """The records a lane holds: numbers from ``first`` to below ``next``, ``bytes`` of lines in all."""

    first: int
    next: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SpoolOffsets:
    """The extents of all lanes of a spool at one moment."""

    spool_id: str
    lanes: Mapping[str, LaneExtent]


@dataclass(frozen=True, slots=True)
class IndexSlice:
    """Index entries of consecutive records from ``first_seq`` on, as columns of one length.

    ``ends``: bytes from the start of the first record to the end of each; ``appended_at``: µs; ``crcs``: CRC-32 of the
    line with its line feed.
    """

    first_seq: int
    ends: Sequence[int]
    appended_at: Sequence[int]
    crcs: Sequence[int]

    def __len__(self) -> int:
        return len(self.ends)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one lane: record i is ``buffer[ends[i - 1] or 0 : ends[i]]``, with its line feed."""

    spool_id: str
    lane: str
    first_seq: int
    buffer: memoryview
    ends: Sequence[int]
    appended_at: Sequence[int]

    @property
    def next_seq(self) -> int:
        """The number after the last record of the chunk."""
        return self.first_seq + len(self.ends)

    def __len__(self) -> int:
        return len(self.ends)


class SpoolAccess(Protocol):
    """The reads that planner and engine need. Ranges go from ``start`` to below ``stop``.

    Each method raises ``SpoolReplacedError`` where the spool is another one than at first, ``LaneNotFoundError``,
    ``RecordsExpiredError`` for a ``start`` below what is kept and ``BeyondEndError`` for one that is not written yet;
    a ``stop`` beyond the end means the end.
    """

    def offsets(self) -> SpoolOffsets:
        """The extents of all lanes, without reading any record."""
        ...

    def index(self, lane: str, start: int, stop: int) -> IndexSlice:
        """At least one index entry of a range; may end before ``stop``."""
        ...

    def read(self, lane: str, start: int, stop: int, *, max_bytes: int = DEFAULT_CHUNK_BYTES) -> Chunk:
        """At least one record of a range; ends before ``stop`` at ``max_bytes`` and at the end of a segment."""
        ...

    def seek_time(self, lane: str, timestamp_us: int) -> int:
        """The number of the first record appended at or after a time; the next number where there is none."""
        ...

    def schemas(self) -> list[dict[str, Any]]:
        """The documents of the schema registry (``schema.registry``), in the order of their hashes.

        Each has two members more: ``count``, the requests that asked for it, and ``last_used``, when the last one did
        (µs since the epoch, 0 where none is known of); a running server's numbers may be a second old in the folder.
        """
        ...
