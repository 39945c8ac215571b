"""Splits read from a lane's device ring: the spool's records, wherever their bytes come from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from spool_support import record, records, settings
from text_reader_support import HostTextReader
from unit.device.rings import open_writer

from dspark_json.engine import build_plan
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.native import NativeEngine
from dspark_json.errors import DataLossError
from dspark_json.source.device_reading import DeviceChunk, gather
from dspark_json.source.reading import read_split
from dspark_json.source.rows import row_batches
from dspark_json.source.splits import Split
from dspark_json.spool.access import Chunk
from dspark_json.spool.layout import lane_folder
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[tuple[Path, LaneWriter]]:
    """A spool of 60 records, those from number 20 on mirrored in a ring that has room for some of them."""
    with LaneWriter.open(tmp_path, settings(segment_bytes=2_000)) as writer:
        writer.append(records(0, 20))
        ring = open_writer(lane_folder(tmp_path, "0000"), 3_000)
        writer.after_append = ring.append
        writer.append(records(20, 60))
        yield tmp_path, writer
        ring.close()


def split(folder: Path, writer: LaneWriter, start: int, stop: int) -> Split:
    return Split(writer.spool_id, "0000", start, stop, str(folder))


def read(one: Split, *, from_ring: bool) -> tuple[dict[int, bytes], list[Chunk | DeviceChunk]]:
    chunks = list(read_split(one, key=None, timeout_s=5, fail_on_data_loss=True, from_ring=from_ring))
    found = {}
    for chunk in chunks:
        begin = 0
        for offset, end in enumerate(chunk.ends):
            found[chunk.first_seq + offset] = bytes(chunk.buffer[begin:end])
            begin = end
    return found, chunks


def test_a_split_reads_the_same_with_and_without_the_ring(
    spool: tuple[Path, LaneWriter], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder, writer = spool
    for start, stop in ((0, 60), (0, 20), (50, 60), (59, 60), (15, 55)):
        expected, plain = read(split(folder, writer, start, stop), from_ring=False)
        found, chunks = read(split(folder, writer, start, stop), from_ring=True)
        assert found == expected
        assert list(found) == list(range(start, stop))
        assert [moment for chunk in chunks for moment in chunk.appended_at] == [
            moment for chunk in plain for moment in chunk.appended_at
        ]
        mirrored = any(isinstance(chunk, DeviceChunk) for chunk in chunks)
        assert mirrored == (stop > 20), (start, stop)
    assert "records read from it, device_ring_overwritten 0" in caplog.text


def test_a_split_without_a_ring_reads_the_spool_and_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append([record(0)])
        found, chunks = read(split(tmp_path, writer, 0, 1), from_ring=True)
    assert len(found) == 1
    assert isinstance(chunks[0], Chunk)
    assert "lane 0000 is read from the spool: " in caplog.text
    assert "device.ring can't be opened: No such file" in caplog.text


def test_what_is_gone_from_the_spool_is_lost_whatever_the_ring_still_has(spool: tuple[Path, LaneWriter]) -> None:
    folder, writer = spool
    for path in sorted(lane_folder(folder, "0000").glob("*.index"))[:-1]:
        path.unlink()
        path.with_suffix(".ndjson").unlink()
    with pytest.raises(DataLossError):
        read(split(folder, writer, 30, 60), from_ring=True)


def test_rows_from_the_ring_are_those_from_the_spool(spool: tuple[Path, LaneWriter]) -> None:
    folder, writer = spool
    plan = build_plan()
    batches = []
    for engine, from_ring in ((NativeEngine(), False), (CudfEngine(HostTextReader(), NativeEngine()), True)):
        chunks = read_split(
            split(folder, writer, 0, 60), key=None, timeout_s=5, fail_on_data_loss=True, from_ring=from_ring
        )
        batches.append(pa.Table.from_batches(row_batches(chunks, engine, plan, plan.columns)))
    assert batches[0].equals(batches[1])
    assert batches[0].num_rows == 60


def test_chunks_are_gathered_to_a_size_but_not_over_a_gap() -> None:
    def chunk(first: int, count: int) -> Chunk:
        data = b"".join(b"%03d\n" % seq for seq in range(first, first + count))
        return Chunk("s", "0000", first, memoryview(data), range(4, 4 * count + 1, 4), [7] * count)

    made = list(gather([chunk(0, 3), chunk(3, 2), chunk(5, 1), chunk(9, 1), chunk(10, 1)], 20))
    assert [(one.first_seq, len(one)) for one in made] == [(0, 5), (5, 1), (9, 2)]
    assert bytes(made[0].buffer) == b"000\n001\n002\n003\n004\n"
    assert list(made[0].ends) == [4, 8, 12, 16, 20]
    assert list(made[0].appended_at) == [7] * 5
    assert list(gather([], 20)) == []
