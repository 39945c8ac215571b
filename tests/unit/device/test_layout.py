"""The control file to the byte."""

from __future__ import annotations

import random

from unit.device.rings import index_of, line, open_writer

from dspark_json.device import layout
from dspark_json.device.layout import Entry, Moving, RingHeader

HEADER = RingHeader(layout.CUDA, 65_536, 7, 128 << 20, bytes(range(16)), bytes(range(64)), 4242)


def test_header_heartbeat_and_head_come_back_from_their_bytes() -> None:
    raw = HEADER.pack() + Moving(11, 12).pack() + bytes(48)
    assert len(raw) == layout.HEADER_BYTES
    assert layout.unpack_header(raw) == HEADER
    assert layout.unpack_moving(raw) == Moving(11, 12)
    assert raw[:24] == b"DSPKRNG1" + b"\2\0\0\0" + b"\0\0\1\0" + b"\7" + bytes(7)


def test_a_header_of_which_any_bit_is_wrong_is_none() -> None:
    raw = HEADER.pack() + Moving(11, 12).pack() + bytes(48)
    for bit in range(128 * 8):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        assert layout.unpack_header(bytes(bad)) is None, bit
    assert layout.unpack_header(raw[:191]) is None
    assert layout.unpack_header(b"") is None
    assert layout.raw_generation(raw) == 7
    assert layout.raw_generation(b"x") == 0


def test_an_entry_counts_only_whole_and_even_and_of_its_own_generation() -> None:
    entry = Entry(2, 5, 1000, 40, 0xDEADBEEF)
    raw = entry.pack(7)
    assert len(raw) == layout.ENTRY_BYTES
    assert layout.unpack_entry(raw, 7) == entry
    assert layout.unpack_entry(raw, 8) is None
    assert layout.unpack_entry(Entry(3, 5, 1000, 40, 0xDEADBEEF).pack(7), 7) is None
    assert layout.unpack_entry(bytes(layout.ENTRY_BYTES), 7) is None, "an entry that was never written"
    for bit in range(layout.ENTRY_BYTES * 8):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        assert layout.unpack_entry(bytes(bad), 7) is None, bit


def test_an_entry_that_is_half_old_and_half_new_counts_for_neither() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        old = Entry(2 * draw.randrange(1 << 40), draw.randrange(1 << 60), draw.randrange(1 << 50), 90, 1).pack(7)
        new = Entry(2 * draw.randrange(1 << 40), draw.randrange(1 << 60), draw.randrange(1 << 50), 91, 2).pack(7)
        cut = draw.randrange(1, layout.ENTRY_BYTES - 4)
        assert layout.unpack_entry(new[:cut] + old[cut:], 7) is None


def test_the_writer_makes_the_file_that_the_layout_describes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    writer = open_writer(tmp_path, size=1000, entries=8)
    lines = [line(seq, 100) for seq in range(3, 15)]
    assert writer.append(3, lines) == 0
    raw = (tmp_path / layout.RING_FILE).read_bytes()
    header = layout.unpack_header(raw)
    assert header is not None
    assert (header.kind, header.size, header.entries) == (layout.HOST, 1000, 8)
    assert len(raw) == layout.control_bytes(8)
    assert layout.unpack_moving(raw).head == 1200
    newest = layout.unpack_entry(raw[layout.entry_at(14 % 8) :][: layout.ENTRY_BYTES], header.generation)
    assert newest is not None
    assert (newest.seq, newest.position, newest.length) == (14, 1100, 100)
    assert newest.crc == index_of(lines, 3).crcs[11]
    block = (tmp_path / layout.BLOCK_FILE).read_bytes()
    assert block[100:200] == lines[11]
    writer.close()
    assert layout.unpack_header((tmp_path / layout.RING_FILE).read_bytes()) is None
