"""Names and byte formats of a spool (DESIGN §3): what files are called, what ``spool.json`` and an index hold.

::

    <spool>/spool.json
    <spool>/schemas/<hash>.json
    <spool>/lanes/0000/lock
    <spool>/lanes/0000/stats.json
    <spool>/lanes/0000/<first seq, 20 digits>.ndjson
    <spool>/lanes/0000/<first seq, 20 digits>.index

Names that are none of these are somebody else's and are ignored.
"""

from __future__ import annotations

import json
import re
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolFormatError, SpoolNotFoundError
from dspark_json.spool.os_errors import reading_failed

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = 1
IDENTITY_FILE: Final = "spool.json"
LANES_FOLDER: Final = "lanes"
SCHEMAS_FOLDER: Final = "schemas"
DATA_SUFFIX: Final = ".ndjson"
INDEX_SUFFIX: Final = ".index"
TEMPORARY_SUFFIX: Final = ".tmp"
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
MAX_LANES: Final = 10_000

INDEX_MAGIC: Final = b"DSPKIDX1"
INDEX_HEADER: Final = struct.Struct("<8sQQQ")
INDEX_ENTRY: Final = struct.Struct("<QQII")
HEADER_BYTES: Final = INDEX_HEADER.size
ENTRY_BYTES: Final = INDEX_ENTRY.size

END_OF_TIME_US: Final = 7_258_118_400_000_000  # the year 2200

_LANE_NAME: Final = re.compile(r"[0-9]{4}")
_INDEX_NAME: Final = re.compile(r"([0-9]{20})\.index")
_DATA_NAME: Final = re.compile(r"([0-9]{20})\.ndjson")


def now_us() -> int:
    """The wall clock in microseconds since the epoch."""
    return time.time_ns() // 1000


def is_plausible_time(moment_us: int) -> bool:
    """Whether a time in an index can be true, that is, lies before the year 2200. No checksum covers it.

    There is no lower bound: a host whose clock was never set writes good records in 1970.
    """
    return moment_us < END_OF_TIME_US


def lane_name(number: int) -> str:
    """The folder name of a lane: ``0`` → ``"0000"``."""
    if not 0 <= number < MAX_LANES:
        raise ValueError(f"a lane's number is from 0 to {MAX_LANES - 1}, not {number}")
    return f"{number:04d}"


def is_lane_name(text: str) -> bool:
    """Whether ``text`` is exactly four ASCII digits, and so safe to use as a folder name."""
    return _LANE_NAME.fullmatch(text) is not None


def lane_folder(spool: Path, lane: str) -> Path:
    """The folder of a lane; ``lane`` must be a lane name."""
    return spool / LANES_FOLDER / lane


def segment_stem(first_seq: int) -> str:
    """The common part of a segment's two file names: its first number in 20 digits."""
    return f"{first_seq:020d}"


def data_path(lane: Path, first_seq: int) -> Path:
    """The data file of the segment that begins at ``first_seq``."""
    return lane / (segment_stem(first_seq) + DATA_SUFFIX)


def index_path(lane: Path, first_seq: int) -> Path:
    """The index file of the segment that begins at ``first_seq``."""
    return lane / (segment_stem(first_seq) + INDEX_SUFFIX)


def index_seq(name: str) -> int | None:
    """The first number of the segment whose index file has this name; None for any other name."""
    match = _INDEX_NAME.fullmatch(name)
    return None if match is None else int(match[1])


def data_seq(name: str) -> int | None:
    """The first number of the segment whose data file has this name; None for any other name."""
    match = _DATA_NAME.fullmatch(name)
    return None if match is None else int(match[1])


def index_size(records: int) -> int:
    """The size in bytes of the index of a segment with so many records."""
    return HEADER_BYTES + ENTRY_BYTES * records


def whole_entries(size: int) -> int:
    """How many whole entries an index of so many bytes holds; 0 where not even the header is whole."""
    return max(0, (size - HEADER_BYTES) // ENTRY_BYTES)


def pack_header(first_seq: int, created_us: int) -> bytes:
    """The 32 bytes that open an index."""
    return INDEX_HEADER.pack(INDEX_MAGIC, first_seq, created_us, 0)


def header_problem(raw: bytes, first_seq: int) -> str | None:
    """What keeps ``raw`` from being the header of the index that begins at ``first_seq``, to follow the file's path."""
    magic, first, _, reserved = INDEX_HEADER.unpack(raw.ljust(HEADER_BYTES, b"\0"))
    if magic != INDEX_MAGIC:
        return f"is not an index of format {FORMAT} (it begins with {magic!r}, not {INDEX_MAGIC!r})"
    if reserved != 0:
        return f"is not an index of format {FORMAT} (the last word of its header is {reserved}, not 0)"
    if first != first_seq:
        return f"says inside that its first record is {first}, which is not what its name says"
    return None


def unpack_header(raw: bytes, path: Path, first_seq: int) -> int:
    """The creation time (µs) in an index header.

    Raises ``SpoolFormatError`` where it is not the header of format 1, or not of the segment that ``path`` names.
    """
    problem = header_problem(raw, first_seq)
    if problem is not None:
        raise SpoolFormatError(
            f"{path} {problem}",
            remedy="Put back the file that the hook wrote, read it with the version of dspark-json that wrote it, or "
            "remove it.",
        )
    created = INDEX_HEADER.unpack(raw.ljust(HEADER_BYTES, b"\0"))[2]
    assert isinstance(created, int)
    return created


def pack_entry(end: int, appended_at_us: int, crc: int) -> bytes:
    """The 24 bytes of one record in an index."""
    return INDEX_ENTRY.pack(end, appended_at_us, crc, 0)


@dataclass(frozen=True, slots=True)
class IndexColumns:
    """Entries of an index as columns: ends (position after the line, in the segment), appended_at (µs), CRC-32."""

    ends: memoryview[int]
    appended_at: memoryview[int]
    crcs: memoryview[int]

    def __len__(self) -> int:
        return len(self.ends)


def unpack_entries(raw: bytes) -> IndexColumns:
    """Whole entries (24 bytes each, a torn one at the end is left out) as columns, without a loop over records."""
    whole = memoryview(raw)[: len(raw) // ENTRY_BYTES * ENTRY_BYTES]
    words = whole.cast("Q")
    # An entry is three 64-bit words, or six of 32 bits, of which the CRC is the fifth.
    return IndexColumns(words[0::3], words[1::3], whole.cast("I")[4::6])


def fitting_prefix(ends: memoryview[int], data_size: int, before: int = 0) -> int:
    """How many entries from the first on go up strictly (from ``before``) and end within ``data_size`` bytes."""
    count = len(ends)
    if count == 0:
        return 0
    previous = ends[count - 2] if count > 1 else before
    if previous < ends[count - 1] <= data_size and ends[0] > before:
        return count
    last = before
    for position, end in enumerate(ends):
        if not last < end <= data_size:
            return position
        last = end
    return count


@dataclass(frozen=True, slots=True)
class SpoolIdentity:
    """What ``spool.json`` says. ``created`` is in µs; ``boot_id`` is the host's at the latest start of a writer."""

    format: int
    spool_id: str
    created: int
    boot_id: str

    def to_json(self) -> bytes:
        """The bytes of ``spool.json``."""
        members = {
            "format": self.format,
            "spool_id": self.spool_id,
            "created": self.created,
            "boot_id": self.boot_id,
        }
        return json.dumps(members, separators=(",", ":")).encode() + b"\n"


def read_identity(folder: Path) -> SpoolIdentity:
    """Read ``spool.json`` of a spool folder.

    Raises ``SpoolNotFoundError`` where there is none, ``SpoolFormatError`` where it is broken or of another format,
    ``SpoolPermissionError`` where this user may not read it.
    """
    path = folder / IDENTITY_FILE
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise SpoolNotFoundError(
            f"there is no spool in {folder} ({IDENTITY_FILE} is missing)",
            remedy="Check the path; the hook makes the spool when the server starts.",
        ) from None
    except OSError as error:
        raise reading_failed(path, error) from error
    return parse_identity(raw, path)


def parse_identity(raw: bytes, path: Path) -> SpoolIdentity:
    """The identity in the bytes of a ``spool.json``; ``path`` is for the message of a ``SpoolFormatError``."""
    try:
        members = json.loads(raw)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict) or not isinstance(members.get("format"), int):
        raise SpoolFormatError(
            f"{path} is not the description of a spool",
            remedy="Stop the server, remove the folder and start the server again: it makes a new spool.",
        )
    if members["format"] != FORMAT:
        raise SpoolFormatError(
            f"{path} describes a spool of format {members['format']}; this version reads format {FORMAT}",
            remedy="Use the same version of dspark-json for the server and for the reader.",
        )
    spool_id, created, boot_id = members.get("spool_id"), members.get("created"), members.get("boot_id")
    if not (isinstance(spool_id, str) and spool_id and isinstance(created, int) and isinstance(boot_id, str)):
        raise SpoolFormatError(
            f"{path} lacks spool_id, created or boot_id",
            remedy="Stop the server, remove the folder and start the server again: it makes a new spool.",
        )
    return SpoolIdentity(FORMAT, spool_id, created, boot_id)
