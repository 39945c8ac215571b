"""What the tests of the spool share: records with known bytes, a clock that obeys, writers in other processes."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record
from dspark_json.spool.writer import WriterSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = resource.getpagesize()
SMALL = WriterSettings(segment_bytes=1_000, retention_bytes=1 << 30, min_free_ratio=0.0)
OTHER_BOOT = "00000000-1111-2222-3333-444444444444"
START = 1_795_970_578_000_000


class Clock:
    """Microseconds that stand still until told otherwise."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def record(number: int, size: int = 40) -> Record:
    """A record whose bytes follow from its number."""
    return Record(b'"request_id":"r%d","status":200' % number, b'"id":"%d","pad":"%s"' % (number, b"x" * size))


def records(start: int, stop: int, size: int = 40) -> list[Record]:
    return [record(number, size) for number in range(start, stop)]


def settings(**changes: object) -> WriterSettings:
    return replace(SMALL, **changes)  # type: ignore[arg-type]


def read_lines(
    folder: Path, lane: str = "0000", start: int | None = None, *, max_bytes: int = 8 << 20
) -> dict[int, bytes]:
    """All records of a lane by their numbers, as a reader gets them."""
    reader = SpoolReader(folder)
    extent = reader.offsets().lanes[lane]
    seq = extent.first if start is None else start
    found: dict[int, bytes] = {}
    while seq < extent.next:
        chunk = reader.read(lane, seq, extent.next, max_bytes=max_bytes)
        begin = 0
        for offset, end in enumerate(chunk.ends):
            found[chunk.first_seq + offset] = bytes(chunk.buffer[begin:end])
            begin = end
        seq = chunk.next_seq
    return found


def expected_lines(start: int, stop: int, lane: str = "0000", size: int = 40) -> dict[int, bytes]:
    return {number: record(number, size).line(number, lane) for number in range(start, stop)}


@contextmanager
def small_disk(options: str = "size=4m") -> Iterator[Path]:
    """A file system of its own in memory, mounted meanwhile; the test is skipped where that can't be done."""
    place = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        place.rmdir()
        pytest.skip(f"a file system can't be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


def fill(disk: Path, *, but: int = 0) -> Path:
    """Fill a file system to the last page ``but`` so many; the file to be removed to free it again."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        file.truncate(filler.stat().st_size - but * PAGE)
    return filler


def lane_of(folder: Path, lane: str = "0000") -> Path:
    return folder / "lanes" / lane


def files_of(lane: Path, first_seq: int) -> tuple[Path, Path]:
    """Data file and index file of a segment."""
    return lane / f"{first_seq:020d}.ndjson", lane / f"{first_seq:020d}.index"


def segments_of(folder: Path, lane: str = "0000") -> list[int]:
    return sorted(int(path.stem) for path in lane_of(folder, lane).glob("*.index"))


def open_files() -> int:
    """How many descriptors this process has, after what nobody refers to is gone."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def pretend_host_crash(folder: Path, lane: str = "0000") -> None:
    """Make a lane look as if its writer had run before the host's last start."""
    (lane_of(folder, lane) / "lock").write_text(OTHER_BOOT + "\n")


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


WRITER_PROCESS = """
import sys, time
from pathlib import Path
from spool_support import SMALL, record
from dspark_json.spool.writer import LaneWriter

folder, count = Path(sys.argv[1]), int(sys.argv[2])
writer = LaneWriter.open(folder, SMALL)
for number in range(writer.next_seq, writer.next_seq + count):
    writer.append([record(number)])
print(writer.lane, writer.next_seq, flush=True)
if sys.argv[3] == "endless":
    while True:
        writer.append([record(writer.next_seq)])
        print(writer.next_seq, flush=True)
time.sleep(600)
"""


@contextmanager
def writer_process(folder: Path, count: int, mode: str = "idle") -> Iterator[subprocess.Popen[str]]:
    """Another process that writes ``count`` records, says its lane and next number, and then waits (or goes on)."""
    command = [sys.executable, "-c", WRITER_PROCESS, str(folder), str(count), mode]
    tests = str(Path(__file__).parent)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{tests}:{Path(tests).parent}", "PATH": "/usr/bin"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()
