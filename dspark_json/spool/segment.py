"""The segment a writer appends to: a data file and its index, and what of them is committed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dspark_json.spool import layout
from dspark_json.spool.files import write_at
from dspark_json.spool.native import is_native, native
from dspark_json.spool.sharing import share_like_folder

if TYPE_CHECKING:
    from pathlib import Path


_LINES_FAILED: Final = 1
_ENTRIES_FAILED: Final = 2


class OpenSegment:
    """Two open files and the state that readers may already have seen of them.

    ``count`` and ``end`` (bytes of data) are what is committed: nothing below them is ever changed again.
    """

    __slots__ = ("_data", "_index", "_unpublished", "count", "end", "first_seq", "index_path", "newest_at", "oldest_at")

    def __init__(self, folder: Path, first_seq: int, data: int, index: int) -> None:
        self.first_seq = first_seq
        self.index_path = layout.index_path(folder, first_seq)
        self._data = data
        self._index = index
        self._unpublished: Path | None = None
        self.count = 0
        self.end = 0
        self.oldest_at = 0
        self.newest_at = 0

    @classmethod
    def create(
        cls, folder: Path, first_seq: int, created_us: int, data: bytes = b"", entries: bytes = b""
    ) -> OpenSegment:
        """Make the files of a new segment, with its first records in them; no reader sees it before ``publish``.

        The index is made under another name: a segment appears whole, with all of its first records, or not at all.
        """
        index_path = layout.index_path(folder, first_seq)
        temporary = index_path.with_name("." + index_path.name + layout.TEMPORARY_SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        data_descriptor = os.open(layout.data_path(folder, first_seq), flags, layout.FILE_MODE)
        try:
            index_descriptor = os.open(temporary, flags, layout.FILE_MODE)
        except OSError:
            os.close(data_descriptor)
            layout.data_path(folder, first_seq).unlink(missing_ok=True)
            raise
        segment = cls(folder, first_seq, data_descriptor, index_descriptor)
        segment._unpublished = temporary
        try:
            share_like_folder(data_descriptor, folder)
            share_like_folder(index_descriptor, folder)
            write_at(data_descriptor, data, 0)
            write_at(index_descriptor, layout.pack_header(first_seq, created_us) + entries, 0)
        except OSError:
            segment.discard()
            raise
        segment._count_in(entries)
        return segment

    @classmethod
    def reopen(cls, folder: Path, first_seq: int, count: int, end: int) -> OpenSegment:
        """Open a segment that recovery has left with ``count`` records in ``end`` bytes."""
        data = os.open(layout.data_path(folder, first_seq), os.O_RDWR | os.O_CLOEXEC)
        try:
            index = os.open(layout.index_path(folder, first_seq), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(data)
            raise
        segment = cls(folder, first_seq, data, index)
        segment.count = count
        segment.end = end
        if count:
            entries = os.pread(index, count * layout.ENTRY_BYTES, layout.HEADER_BYTES)
            # Not the first one's time, which may be damaged: a segment that seems young would never be deleted by age.
            segment.oldest_at = min(layout.unpack_entries(entries).appended_at, default=0)
        return segment

    @property
    def next_seq(self) -> int:
        """The number of the record after the last committed one."""
        return self.first_seq + self.count

    def publish(self) -> None:
        """Let readers see a new segment."""
        assert self._unpublished is not None
        self._unpublished.rename(self.index_path)
        self._unpublished = None

    def discard(self) -> None:
        """Close and remove a segment that was never published."""
        assert self._unpublished is not None
        temporary, self._unpublished = self._unpublished, None
        self.close()
        with suppress(OSError):  # recovery removes what stays
            temporary.unlink(missing_ok=True)
            self.index_path.with_suffix(layout.DATA_SUFFIX).unlink(missing_ok=True)

    def write_data(self, data: bytes) -> None:
        """Put lines behind the committed ones; no reader sees them before ``commit``."""
        write_at(self._data, data, self.end)

    def commit(self, entries: bytes) -> None:
        """Make the lines just written exist, by their index entries.

        On failure, entries that landed whole count as committed all the same: a reader may have seen them.
        """
        position = layout.index_size(self.count)
        try:
            write_at(self._index, entries, position)
        except OSError:
            self._count_in(entries[: self._landed(position)])
            raise
        self._count_in(entries)

    def append(self, data: bytes, entries: bytes) -> bool:
        """``write_data`` and ``commit``, and then whether the files are in place.

        One native call where it is to be had: a thread that lets others run at each call to the system may wait for
        them longer than the calls take.
        """
        if not is_native:
            self.write_data(data)
            self.commit(entries)
            return self.is_in_place()
        position = layout.index_size(self.count)
        step, number, in_place = native.store(
            self._data, data, self.end, self._index, entries, position, self.index_path
        )
        if step == _ENTRIES_FAILED:
            self._count_in(entries[: self._landed(position)])
        elif step != _LINES_FAILED:
            self._count_in(entries)
        if step:
            raise OSError(number, os.strerror(number))
        return in_place

    def rewind(self) -> None:
        """Cut both files back to what is committed, the index first."""
        os.ftruncate(self._index, layout.index_size(self.count))
        os.ftruncate(self._data, self.end)

    def sync(self) -> None:
        """Bring data, then index to the disk."""
        os.fsync(self._data)
        os.fsync(self._index)

    def is_in_place(self) -> bool:
        """Whether the files still have their names, that is, the folder was neither removed nor moved away."""
        held = os.fstat(self._index)
        try:
            named = self.index_path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        same = (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev)
        return same and stat.S_ISREG(named.st_mode) and os.fstat(self._data).st_nlink > 0

    def close(self) -> None:
        """Close both files; what is committed stays."""
        os.close(self._data)
        os.close(self._index)

    def _landed(self, position: int) -> int:
        """How many bytes of whole entries the index has behind ``position``."""
        landed = (os.fstat(self._index).st_size - position) // layout.ENTRY_BYTES
        return max(0, landed) * layout.ENTRY_BYTES

    def _count_in(self, entries: bytes) -> None:
        columns = layout.unpack_entries(entries)
        if len(columns):
            if not self.count:
                self.oldest_at = columns.appended_at[0]
            self.count += len(columns)
            self.end = columns.ends[-1]
            self.newest_at = columns.appended_at[-1]
