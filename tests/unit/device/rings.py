"""What the tests of the ring share: lines with known bytes, the spool's index of them, writers in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.device import layout
from dspark_json.device.memory import HostMemory
from dspark_json.device.reader import RingReader
from dspark_json.device.writer import ControlFile, RingWriter
from dspark_json.spool.access import IndexSlice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TESTS = Path(__file__).parents[2]


def line(seq: int, size: int | None = None) -> bytes:
    """The line of a record; its bytes, and unless given its length, follow from its number."""
    length = 20 + seq * 7919 % 180 if size is None else size
    return (b'{"seq":%d,"pad":"' % seq).ljust(length - 3, b"%d" % (seq % 10))[: length - 3] + b'"}\n'


def index_of(lines: Sequence[bytes], first_seq: int) -> IndexSlice:
    """What the spool's index says of these records."""
    ends: list[int] = []
    for one in lines:
        ends.append((ends[-1] if ends else 0) + len(one))
    return IndexSlice(first_seq, ends, [0] * len(lines), [zlib.crc32(one) for one in lines])


def open_writer(lane: Path, size: int = 4096, entries: int = layout.TABLE_ENTRIES) -> RingWriter:
    return RingWriter(ControlFile(lane), HostMemory.make(lane, size), entries)


def open_reader(lane: Path) -> RingReader:
    reader, why = RingReader.open(lane)
    assert reader is not None, why
    return reader


def held(reader: RingReader, lines: Sequence[bytes], first_seq: int) -> dict[int, bytes]:
    """The records that the ring gives, by their numbers; those that it gives are compared with what they must be."""
    index = index_of(lines, first_seq)
    part = reader.take(index)
    assert part is not None
    view = part.taken.to_host()
    found = {}
    for position in sorted(set(range(len(lines))) - set(part.missing)):
        raw = bytes(view[index.ends[position] - len(lines[position]) : index.ends[position]])
        assert raw == lines[position]
        found[first_seq + position] = raw
    return found


class Killed(ControlFile):
    """A control file whose process ends in the middle of its ``step``-th write, after half of its bytes."""

    steps = 0
    last = -1

    @classmethod
    def count(cls, offset: int, raw: bytes, put: object) -> None:
        cls.steps += 1
        if cls.steps == cls.last:
            put(offset, raw[: len(raw) // 2])  # type: ignore[operator]
            os._exit(9)

    def put(self, offset: int, raw: bytes) -> None:
        self.count(offset, raw, super().put)
        super().put(offset, raw)


class KilledMemory(HostMemory):
    """The same for the ring's block."""

    def write(self, offset: int, data: bytes) -> None:
        Killed.count(offset, data, super().write)
        super().write(offset, data)


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that can import what tests can."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    paths = f"{TESTS}:{TESTS.parent}"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as started:
        try:
            yield started
        finally:
            started.kill()
