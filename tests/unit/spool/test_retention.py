from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from spool_support import (
    START,
    Clock,
    expected_lines,
    files_of,
    lane_of,
    read_lines,
    record,
    records,
    segments_of,
    settings,
)

from dspark_json.errors import SpoolWriteError
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.retention import SegmentFacts, oldest_first, survey
from dspark_json.spool.stats import load_counters
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = settings(segment_bytes=500)
DAY = 86_400_000_000


def spool_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("0*.*") if not path.is_dir())


def open_at(folder: Path, clock: Clock, given: WriterSettings = SEGMENT) -> LaneWriter:
    return LaneWriter.open(folder, given, clock=clock)


def test_bytes_bound_the_spool_and_the_oldest_segments_go_whole(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=500, retention_bytes=5_000)) as writer:
        for number in range(300):
            writer.append([record(number)])
            if number % 20 == 0:
                writer.maintain()
        writer.maintain()
        extent = SpoolReader(tmp_path).offsets().lanes["0000"]
        assert spool_bytes(tmp_path) <= 5_000
        assert spool_bytes(tmp_path) > 3_500
        assert extent.next == 300
        assert read_lines(tmp_path) == expected_lines(extent.first, 300)
        assert writer.counters.get("retention_deleted_records") == extent.first
        assert writer.counters.get("retention_deleted_bytes") > 10_000
        left = {path.suffix for path in lane_of(tmp_path).glob("0*")}
        assert left == {".index", ".ndjson"}
        assert len(list(lane_of(tmp_path).glob("0*"))) == 2 * len(segments_of(tmp_path))


def test_the_newest_segment_stays_however_small_the_spool_must_be(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=500, retention_bytes=1)) as writer:
        for number in range(20):
            writer.append([record(number)])
            writer.maintain()
            assert read_lines(tmp_path)[number] == record(number).line(number, "0000")


def test_age_deletes_what_is_older_and_the_empty_newest_segment_names_the_next_number(tmp_path: Path) -> None:
    clock = Clock(START)
    with open_at(tmp_path, clock, settings(segment_bytes=500, retention_us=DAY)) as writer:
        writer.append(records(0, 20))
        clock.now = START + DAY // 2
        writer.append(records(20, 25))
        writer.maintain()
        assert SpoolReader(tmp_path).offsets().lanes["0000"].first == 0
        clock.now = START + DAY + 1
        writer.maintain()
        first = SpoolReader(tmp_path).offsets().lanes["0000"].first
        assert 16 <= first <= 20  # the segment that holds both old and younger ones stays
        clock.now = START + 2 * DAY
        writer.maintain()
        extent = SpoolReader(tmp_path).offsets().lanes["0000"]
        assert (extent.first, extent.next, extent.bytes) == (25, 25, 0)
        assert segments_of(tmp_path) == [25]
        writer.maintain()
        writer.append(records(25, 27))
        assert read_lines(tmp_path) == expected_lines(25, 27)
        assert writer.counters.get("retention_deleted_records") == 25


def test_without_an_age_nothing_is_deleted_by_it(tmp_path: Path) -> None:
    clock = Clock(START)
    with open_at(tmp_path, clock) as writer:
        writer.append(records(0, 20))
        clock.now = START + 10_000 * DAY
        writer.maintain()
        assert read_lines(tmp_path) == expected_lines(0, 20)


def test_a_live_writer_cares_for_lanes_without_one(tmp_path: Path) -> None:
    clock = Clock(START)
    first = open_at(tmp_path, clock)
    first.append(records(0, 20))
    second = open_at(tmp_path, clock, settings(segment_bytes=500, retention_us=DAY))
    second.append(records(0, 3))
    clock.now = START + DAY + 1
    second.maintain()
    assert read_lines(tmp_path) == expected_lines(0, 20)  # the first lane has a writer, who knows of no age
    first.close()
    second.maintain()
    extents = SpoolReader(tmp_path).offsets().lanes
    assert {lane: (extent.first, extent.next) for lane, extent in extents.items()} == {"0000": (20, 20), "0001": (3, 3)}
    second.close()
    with open_at(tmp_path, clock) as again:
        assert (again.lane, again.next_seq) == ("0000", 20)


def test_a_torn_tail_of_a_lane_without_a_writer_is_cut_before_its_newest_segment_goes(tmp_path: Path) -> None:
    clock = Clock(START)
    first = open_at(tmp_path, clock, settings(segment_bytes=10_000))
    second = open_at(tmp_path, clock, settings(segment_bytes=500, retention_us=DAY))
    first.append(records(0, 5))
    first.close()
    data, index = files_of(lane_of(tmp_path), 0)
    with index.open("ab") as file:
        file.write(b"torn")
    with data.open("ab") as file:
        file.write(b"torn")
    clock.now = START + DAY + 1
    second.maintain()
    second.close()
    assert segments_of(tmp_path) == [5]


def test_bytes_are_taken_from_the_oldest_of_all_lanes(tmp_path: Path) -> None:
    clock = Clock(START)
    limit = settings(segment_bytes=500, retention_bytes=4_000)
    first = open_at(tmp_path, clock, limit)
    second = open_at(tmp_path, clock, limit)
    for number in range(20):
        clock.now += 10
        first.append([record(number)])
        clock.now += 10
        second.append([record(number)])
    for _ in range(3):
        first.maintain()
        second.maintain()
    kept = {fact.lane: min(f.newest_at for f in survey(tmp_path) if f.lane == fact.lane) for fact in survey(tmp_path)}
    assert spool_bytes(tmp_path) <= 4_000
    assert abs(kept["0000"] - kept["0001"]) <= 100  # a segment at most
    first.close()
    second.close()


def test_by_bytes_a_writer_waits_for_the_owner_of_an_older_segment(tmp_path: Path) -> None:
    clock = Clock(START)
    first = open_at(tmp_path, clock)
    first.append(records(0, 20))
    clock.now += DAY
    second = open_at(tmp_path, clock, settings(segment_bytes=500, retention_bytes=2_600))
    second.append(records(0, 20))
    second.maintain()
    assert second.counters.get("retention_deleted_records") == 0
    first.close()
    second.maintain()
    assert spool_bytes(tmp_path) <= 2_600
    extents = SpoolReader(tmp_path).offsets().lanes
    assert (extents["0000"].first, extents["0000"].next) == (20, 20)
    assert extents["0001"].next == 20
    second.close()


def test_an_idle_live_lane_does_not_keep_others_from_deleting_their_own(tmp_path: Path) -> None:
    clock = Clock(START)
    idle = open_at(tmp_path, clock)
    idle.append([record(0)])  # the oldest of all, in a newest segment that must stay
    clock.now += DAY
    with open_at(tmp_path, clock, settings(segment_bytes=500, retention_bytes=4_000)) as writer:
        for number in range(100):
            writer.append([record(number)])
            writer.maintain()
        assert spool_bytes(tmp_path) <= 4_000
    idle.close()


def test_newest_segments_of_many_lanes_leave_room_for_older_ones(tmp_path: Path) -> None:
    limit = settings(segment_bytes=10_000, retention_bytes=16_000)
    writers = [LaneWriter.open(tmp_path, limit) for _ in range(8)]
    for number in range(100):
        for writer in writers:
            writer.append([record(number)])
        for writer in writers:
            writer.maintain()
    assert spool_bytes(tmp_path) <= 16_000 + 8 * 1_000
    for writer in writers:
        writer.close()


def spoil(folder: Path, lane: str, how: str) -> None:
    """Make retention stumble over a lane without a writer."""
    first_seq = segments_of(folder, lane)[-1]
    data, index = files_of(lane_of(folder, lane), first_seq)
    if how == "header":
        index.write_bytes(b"x" + index.read_bytes()[1:])
    elif how == "foreign folder":
        files_of(lane_of(folder, lane), 0)[1].mkdir()
    elif how == "lock":
        (lane_of(folder, lane) / "lock").unlink()
        (lane_of(folder, lane) / "lock").mkdir()
    else:
        data.unlink()
        data.symlink_to(data)  # can't be looked at


@pytest.mark.parametrize("how", ["header", "foreign folder", "lock", "data"])
def test_a_damaged_lane_without_a_writer_does_not_stop_retention(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(START)
    given = settings(segment_bytes=500, retention_bytes=4_000)
    lanes = [open_at(tmp_path, clock, given) for _ in range(3)]
    for writer in lanes[1:]:
        clock.now += 10
        writer.append(records(0, 8))
        writer.close()
    clock.now += DAY
    if how == "foreign folder":
        for path in files_of(lane_of(tmp_path, "0001"), 0):
            path.unlink()
    spoil(tmp_path, "0001", how)
    with lanes[0] as writer:
        for number in range(100):
            writer.append([record(number)])
            writer.maintain()
        hidden = 300 if how == "data" else 0  # the segment that retention can't look at
        assert spool_bytes(tmp_path) <= 4_000 + hidden
        if how == "data":
            files_of(lane_of(tmp_path, "0001"), 4)[0].unlink()
        extents = SpoolReader(tmp_path).offsets().lanes
        assert (extents["0000"].next, extents["0002"].first) == (100, 8)
        assert load_counters(lane_of(tmp_path)).get("records") == 100
    warned = [entry.getMessage() for entry in caplog.records if "retention leaves lane" in entry.getMessage()]
    assert len(warned) == (0 if how == "foreign folder" else 1)
    assert all(str(lane_of(tmp_path, "0001")) in text for text in warned)


def test_counters_are_saved_also_where_retention_fails(tmp_path: Path) -> None:
    with open_at(tmp_path, Clock(START), settings(segment_bytes=500, retention_bytes=1_500)) as writer:
        writer.append(records(0, 20))
        data, _ = files_of(lane_of(tmp_path), 0)
        data.unlink()
        data.mkdir()
        with pytest.raises(SpoolWriteError, match="Is a directory"):
            writer.maintain()
        assert load_counters(lane_of(tmp_path)).get("records") == 20


def test_a_segment_whose_time_can_not_be_true_is_as_old_as_its_file(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, SEGMENT) as writer:
        writer.append(records(0, 3))
    _, index = files_of(lane_of(tmp_path), 0)
    with index.open("r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\x80")
    os.utime(index, ns=(0, START * 1_000))
    (fact,) = survey(tmp_path)
    assert fact.newest_at == START


def test_a_first_time_that_is_damaged_does_not_keep_a_segment_from_going_by_age(tmp_path: Path) -> None:
    clock = Clock(START)
    given = settings(segment_bytes=10_000, retention_us=DAY)
    with open_at(tmp_path, clock, given) as writer:
        writer.append(records(0, 3))
    _, index = files_of(lane_of(tmp_path), 0)
    with index.open("r+b") as file:
        file.seek(32 + 15)
        file.write(b"\x80")
    with open_at(tmp_path, clock, given) as writer:
        clock.now += DAY + 1
        writer.maintain()
        assert segments_of(tmp_path) == [3]


def test_segments_go_in_the_order_of_their_last_records() -> None:
    facts = [
        SegmentFacts("0000", 0, 5, 10, 300, newest=False),
        SegmentFacts("0001", 0, 5, 10, 200, newest=False),
        SegmentFacts("0001", 5, 5, 10, 200, newest=False),
        SegmentFacts("0000", 5, 0, 10, 0, newest=True),
        SegmentFacts("0002", 0, 5, 10, 100, newest=True),
    ]
    assert [(f.lane, f.first_seq) for f in oldest_first(facts)] == [("0002", 0), ("0001", 0), ("0001", 5), ("0000", 0)]
