"""What a reader gets out of a ring: right bytes or none, whatever the writer does meanwhile."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
import zlib
from typing import TYPE_CHECKING

import pytest
from unit.device.rings import held, index_of, line, open_reader, open_writer, process

from dspark_json.device import layout
from dspark_json.device.cuda import CHECKSUM_SOURCE, crc_table
from dspark_json.device.layout import Moving
from dspark_json.device.memory import HostMemory, Move
from dspark_json.device.reader import RingReader

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_put_comes_back_and_what_was_not_is_missing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    lines = [line(seq) for seq in range(12)]
    writer.append(0, lines[:4])
    writer.append(4, lines[4:10])
    with open_reader(tmp_path) as reader:
        assert list(held(reader, lines, 0)) == list(range(10))
        part = reader.take(index_of(lines[3:], 3))
        assert part is not None
        assert list(part.missing) == [7, 8]
        assert part.overwritten == 0
    writer.close()


def test_wrap_at_every_alignment_splits_no_record_and_keeps_all_that_fit(tmp_path: Path) -> None:
    for size in range(301, 301 + 120):
        lane = tmp_path / str(size)
        lane.mkdir()
        writer = open_writer(lane, size)
        lines = [line(seq) for seq in range(40)]
        with open_reader(lane) as reader:
            for seq, one in enumerate(lines):
                writer.append(seq, [one])
                if seq % 7 == 0:
                    found = held(reader, lines[: seq + 1], 0)
                    assert seq in found
            found = held(reader, lines, 0)
        newest = sum(len(lines[seq]) for seq in found)
        assert newest <= size
        assert newest > size - 2 * 200, "no more room is lost than at the end and before the oldest record"
        assert list(found) == list(range(min(found), 40)), "the newest ones, without a gap"
        writer.close()


def test_one_append_of_more_than_the_ring_keeps_its_newest_records(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, 1000)
    lines = [line(seq) for seq in range(300)]
    writer.append(0, lines)
    with open_reader(tmp_path) as reader:
        found = held(reader, lines, 0)
        assert max(found) == 299
        assert 500 < sum(map(len, found.values())) <= 1000


def test_a_record_larger_than_the_ring_is_left_out_and_counted(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, 1000)
    lines = [line(0), line(1, 1001), line(2, 1000), line(3)]
    assert writer.append(0, lines[:2]) == 1
    with open_reader(tmp_path) as reader:
        assert list(held(reader, lines, 0)) == [0]
        assert writer.append(2, lines[2:3]) == 0
        assert list(held(reader, lines, 0)) == [2]
        assert writer.append(3, lines[3:]) == 0
        assert list(held(reader, lines, 0)) == [3]


def test_a_table_with_fewer_entries_than_records_gives_the_newest(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, 1 << 20, entries=16)
    lines = [line(seq) for seq in range(50)]
    writer.append(0, lines)
    with open_reader(tmp_path) as reader:
        assert list(held(reader, lines, 0)) == list(range(34, 50))


def test_another_line_under_the_same_number_is_not_taken(tmp_path: Path) -> None:
    """A spool that was made anew, or a ring that nobody reset: the spool's index has the last word."""
    writer = open_writer(tmp_path)
    writer.append(0, [line(0, 60), line(1, 60)])
    with open_reader(tmp_path) as reader:
        part = reader.take(index_of([line(0, 60), b"x" * 59 + b"\n"], 0))
        assert part is not None
        assert list(part.missing) == [1]


def test_bytes_that_were_overwritten_while_they_were_copied_are_never_returned(tmp_path: Path) -> None:
    lines = [line(seq, 100) for seq in range(30)]
    writer = open_writer(tmp_path, 1000)
    writer.append(0, lines[:10])

    class Slow(HostMemory):
        """A reader's memory that is overtaken by the writer in the middle of a copy."""

        def take(self, moves, size):  # type: ignore[no-untyped-def]
            first = super().take(moves[:1], size)
            writer.append(10, lines[10:14])
            for move in moves[1:]:
                part = super().take([Move(move.source, 0, move.length)], move.length)
                first.fill(move.target, part.to_host())
            return first

    with open_reader(tmp_path) as reader:
        reader._memory = Slow.open(tmp_path, reader.header)  # type: ignore[assignment]
        part = reader.take(index_of(lines[:10], 0))
        assert part is not None
        assert list(part.missing) == [0, 1, 2, 3]
        assert part.overwritten == 4


def test_bytes_that_lie_are_found_by_their_checksum_even_where_head_and_entry_say_nothing(tmp_path: Path) -> None:
    """What another order of the stores would look like on a machine that allows it."""
    writer = open_writer(tmp_path, 1000)
    lines = [line(seq, 100) for seq in range(10)]
    writer.append(0, lines)
    block = tmp_path / layout.BLOCK_FILE
    with block.open("r+b") as file:
        file.seek(450)
        file.write(b"!!")
    with open_reader(tmp_path) as reader:
        part = reader.take(index_of(lines, 0))
        assert part is not None
        assert (list(part.missing), part.overwritten) == ([4], 1)
        with block.open("r+b") as file:
            file.truncate(700)
        part = reader.take(index_of(lines, 0))
        assert part is not None
        assert list(part.missing) == [4, 7, 8, 9], "a file that became shorter kills nobody"


def test_a_restarted_writer_begins_a_generation_that_old_readers_notice(tmp_path: Path) -> None:
    first = open_writer(tmp_path)
    lines = [line(seq) for seq in range(6)]
    first.append(0, lines[:3])
    reader = open_reader(tmp_path)
    second = open_writer(tmp_path)  # the first one was killed: it never closed
    assert second.generation > first.generation
    assert reader.take(index_of(lines, 0)) is None
    with open_reader(tmp_path) as fresh:
        assert held(fresh, lines, 0) == {}, "entries of the old generation count no more"
        second.append(3, lines[3:])
        assert list(held(fresh, lines, 0)) == [3, 4, 5]
        second.close()
        assert fresh.take(index_of(lines, 0)) is None
    reader.close()
    assert RingReader.open(tmp_path)[0] is None


def test_a_ring_that_is_not_renewed_is_left_alone(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(0, [line(0)])
    with open_reader(tmp_path) as reader, (tmp_path / layout.RING_FILE).open("r+b") as file:
        file.seek(layout.HEARTBEAT_AT)
        file.write(Moving(time.time_ns() // 1000 - 6_000_000, 0).pack()[:8])
        file.flush()
        assert reader.take(index_of([line(0)], 0)) is None
        again, why = RingReader.open(tmp_path)
        assert again is None
        assert why.endswith("was not renewed for 6 s: its writer has ended")
        writer.beat()
        assert list(held(reader, [line(0)], 0)) == [0]


@pytest.mark.parametrize("content", [b"", b"x" * 500, bytes(500), b"DSPKRNG1" + bytes(300)])
def test_a_control_file_that_is_none_is_no_ring_and_is_made_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / layout.RING_FILE).write_bytes(content)
    reader, why = RingReader.open(tmp_path)
    assert reader is None
    assert "has no ring" in why
    open_writer(tmp_path).append(0, [line(0)])
    with open_reader(tmp_path) as found:
        assert list(held(found, [line(0)], 0)) == [0]


def test_a_ring_elsewhere_or_of_an_unknown_kind_is_none_and_says_why(tmp_path: Path) -> None:
    assert "No such file" in RingReader.open(tmp_path)[1]
    writer = open_writer(tmp_path)
    (tmp_path / layout.BLOCK_FILE).unlink()
    assert "can't be opened" in RingReader.open(tmp_path)[1]
    header = layout.unpack_header((tmp_path / layout.RING_FILE).read_bytes())
    assert header is not None
    for changes, text in (
        ({"kind": 9}, "kind 9 is not known"),
        ({"handle": b"../x".ljust(64, b"\0")}, "'../x' is not"),
    ):
        changed = layout.RingHeader(**{**{n: getattr(header, n) for n in header.__slots__}, **changes})  # type: ignore[arg-type]
        with (tmp_path / layout.RING_FILE).open("r+b") as file:
            file.write(changed.pack())
        writer.beat()
        assert text in RingReader.open(tmp_path)[1]


KILLED_WRITER = """
import sys
from pathlib import Path
from unit.device.rings import Killed, KilledMemory, line
from dspark_json.device.writer import RingWriter

lane, Killed.last = Path(sys.argv[1]), int(sys.argv[2])
writer = RingWriter(Killed(lane), KilledMemory.make(lane, 1000), 16)
for seq in range(0, 24, 2):
    writer.append(seq, [line(seq), line(seq + 1)])
print(Killed.steps)
"""


def test_a_writer_killed_at_any_step_leaves_only_true_records_and_the_next_one_goes_on(tmp_path: Path) -> None:
    lines = [line(seq) for seq in range(40)]
    with process(KILLED_WRITER, tmp_path, 0) as writer:
        steps = int(writer.communicate()[0])
    assert steps > 50
    started = {}
    waiting = list(range(1, steps + 1))
    killed = 0
    while waiting or started:
        while waiting and len(started) < 4:
            step = waiting.pop(0)
            lane = tmp_path / str(step)
            lane.mkdir()
            opened = open_writer(lane, 1000, 16)
            opened.append(0, lines[:5])  # what an earlier writer left
            context = process(KILLED_WRITER, lane, step)
            started[step] = (context, context.__enter__())
        step, (context, running) = next(iter(started.items()))
        del started[step]
        assert running.wait(30) == 9, step
        context.__exit__(None, None, None)
        killed += 1
        lane = tmp_path / str(step)
        reader, _ = RingReader.open(lane)
        if reader is not None:
            with reader:
                held(reader, lines, 0)  # asserts that what it gives is right
        again = open_writer(lane, 1000, 16)
        again.append(30, lines[30:34])
        with open_reader(lane) as fresh:
            assert list(held(fresh, lines, 0)) == [30, 31, 32, 33]
    assert killed == steps


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_checksum_that_a_gpu_computes_is_the_spools(tmp_path: Path) -> None:
    source = (
        "struct dim { int x; };\nstatic struct dim blockIdx = {0}, blockDim = {1 << 30}, threadIdx = {0};\n"
        "#define __global__\n"
        + CHECKSUM_SOURCE.replace('extern "C"', "")
        + "void run(const unsigned char* d, const long long* e, const unsigned int* t, unsigned int* c, long long n)\n"
        "{ for (threadIdx.x = 0; threadIdx.x < n + 3; ++threadIdx.x) record_checksums(d, e, t, c, n);\n}\n"
    )
    (tmp_path / "kernel.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", tmp_path / "kernel.so", tmp_path / "kernel.c"], check=True)
    lines = [line(seq) for seq in range(100)] + [b"", b"\xff" * 7]
    index = index_of(lines, 0)
    count = len(lines)
    found = (ctypes.c_uint32 * count)()
    ctypes.CDLL(str(tmp_path / "kernel.so")).run(
        b"".join(lines), (ctypes.c_longlong * count)(*index.ends), (ctypes.c_uint32 * 256)(*crc_table()), found, count
    )
    assert list(found) == [zlib.crc32(one) for one in lines]
