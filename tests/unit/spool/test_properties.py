"""Whatever happens in whatever order, readers see a gap-free run of exactly what was written."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from spool_support import Clock, files_of, lane_of, pretend_host_crash, read_lines, segments_of, settings

from dspark_json.spool.layout import HEADER_BYTES, pack_entry, pack_header
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter

SETTINGS = settings(segment_bytes=700, retention_bytes=4_000, retention_us=1_000)
RECORDS = st.lists(
    st.builds(
        Record,
        meta=st.sampled_from([b"", b'"request_id":"r","status":200']),
        body=st.one_of(st.just(b""), st.binary(max_size=60), st.integers(0, 2_000).map(lambda size: b"z" * size)),
    ),
    min_size=1,
    max_size=8,
)


class Spool(RuleBasedStateMachine):
    """One lane at a time is written; a lane that a host crash ended is followed by another."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp()) / "spool"
        self.clock = Clock()
        self.lines: dict[str, dict[int, bytes]] = {}
        self.times: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        self.writer = LaneWriter.open(self.folder, SETTINGS, clock=self.clock)
        written = self.lines.setdefault(self.writer.lane, {})
        # No acknowledged record is lost by a plain kill, and no number is given twice.
        assert self.writer.next_seq == max(written, default=-1) + 1

    def kill(self) -> None:
        """Let go of the lane as the kernel does for a killed process: nothing is flushed, undone or said."""
        self.writer._release()
        self.writer._closed = True

    @rule(records=RECORDS)
    def append(self, records: list[Record]) -> None:
        lane, first = self.writer.lane, self.writer.next_seq
        self.writer.append(records)
        assert self.writer.next_seq == first + len(records)
        for number, record in enumerate(records, start=first):
            self.lines[lane][number] = record.line(number, lane)

    @rule(step=st.integers(-600, 600))
    def pass_time(self, step: int) -> None:
        self.clock.now += step

    @rule()
    def maintain(self) -> None:
        self.writer.maintain()

    @rule()
    def restart(self) -> None:
        self.writer.close()
        self.open()

    @rule(records=RECORDS, data=st.data())
    def kill_in_an_append(self, records: list[Record], data: st.DataObject) -> None:
        """A kill after any byte of the data, or of the index once all data is there, before the acknowledgement."""
        lane, first = self.writer.lane, self.writer.next_seq
        segment = self.writer._segment
        assert segment is not None
        lines = [record.line(number, lane) for number, record in enumerate(records, start=first)]
        now = max(self.clock(), self.writer._newest_at)
        self.kill()
        paths = files_of(lane_of(self.folder, lane), segment.first_seq)
        whole, entries, end = b"".join(lines), b"", segment.end
        for line in lines:
            end += len(line)
            entries += pack_entry(end, now, zlib.crc32(line))
        cut = data.draw(st.integers(0, len(whole) + len(entries)), label="killed after byte")
        with paths[0].open("ab") as file:
            file.write(whole[:cut])
        landed = max(0, cut - len(whole))
        with paths[1].open("ab") as file:
            file.write(entries[:landed])
        # Whole entries may have been seen by a reader, so these records exist now.
        for number, line in list(enumerate(lines, start=first))[: landed // 24]:
            self.lines[lane][number] = line
        self.check()
        self.open()

    @rule(data=st.data())
    def kill_in_beginning_a_segment(self, data: st.DataObject) -> None:
        lane, following = self.writer.lane, self.writer.next_seq
        segment = self.writer._segment
        assert segment is not None
        self.kill()
        if not segment.count:
            self.open()
            return
        data_path, index_path = files_of(lane_of(self.folder, lane), following)
        data_path.write_bytes(b"some data of a segment to be"[: data.draw(st.integers(0, 28))])
        header = pack_header(following, self.clock())
        state = data.draw(st.sampled_from(["data only", "unnamed index", "torn index", "whole index"]))
        if state == "unnamed index":
            index_path.with_name(f".{index_path.name}.tmp").write_bytes(header[: data.draw(st.integers(0, 32))])
        elif state == "torn index":
            index_path.write_bytes(header[: data.draw(st.integers(0, HEADER_BYTES - 1))])
        elif state == "whole index":
            index_path.write_bytes(header)
        self.check()
        self.open()

    @precondition(lambda self: len(segments_of(self.folder, self.writer.lane)) > 1)
    @rule()
    def kill_in_retention(self) -> None:
        lane = self.writer.lane
        self.kill()
        files_of(lane_of(self.folder, lane), segments_of(self.folder, lane)[0])[1].unlink()
        self.check()
        self.open()

    @rule(data=st.data())
    def host_crash(self, data: st.DataObject) -> None:
        """The newest data, of any length, did not reach the disk; its index did, or a part of it, or zeros did."""
        lane = self.writer.lane
        self.kill()
        pretend_host_crash(self.folder, lane)
        paths = files_of(lane_of(self.folder, lane), segments_of(self.folder, lane)[-1])
        for path, least in zip(paths, (0, HEADER_BYTES), strict=True):
            size = path.stat().st_size
            cut = data.draw(st.integers(least, size))
            os.truncate(path, cut)
            if data.draw(st.booleans()):
                os.truncate(path, size)  # a hole of zeros
        self.writer = LaneWriter.open(self.folder, SETTINGS, clock=self.clock)
        assert self.writer.lane not in self.lines
        assert self.writer.next_seq == 0
        self.lines[self.writer.lane] = {}
        extent = SpoolReader(self.folder).offsets().lanes[lane]
        kept = {number: line for number, line in self.lines[lane].items() if number < extent.next}
        assert set(range(extent.first, extent.next)) <= set(kept)
        self.lines[lane] = kept

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "folder"):
            return
        reader = SpoolReader(self.folder)
        extents = reader.offsets().lanes
        assert set(extents) == set(self.lines)
        for lane, extent in extents.items():
            written = self.lines[lane]
            found = read_lines(self.folder, lane, max_bytes=500)
            assert list(found) == list(range(extent.first, extent.next))
            assert found == {number: written[number] for number in found}
            assert extent.next == max(written, default=-1) + 1
            assert extent.bytes == sum(map(len, found.values()))
            assert self.times.get(lane, 0) <= extent.first  # what is gone does not come back
            self.times[lane] = extent.first
            if found:
                slices = reader.index(lane, extent.first, extent.next)
                assert list(slices.appended_at) == sorted(slices.appended_at)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.writer.close()
            shutil.rmtree(self.folder.parent)


TestAnySequenceOfEventsLeavesAGapFreeRunOfWhatWasWritten = Spool.TestCase
TestAnySequenceOfEventsLeavesAGapFreeRunOfWhatWasWritten.settings = hypothesis_settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
