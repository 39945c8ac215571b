from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spool_support import (
    OTHER_BOOT,
    START,
    Clock,
    expected_lines,
    files_of,
    lane_of,
    pretend_host_crash,
    read_lines,
    record,
    records,
    segments_of,
    settings,
    writer_process,
)

from dspark_json.spool.claim import claim, current_boot_id
from dspark_json.spool.lane import is_written
from dspark_json.spool.layout import HEADER_BYTES, index_size, read_identity
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.writer import LaneWriter

TESTS = Path(__file__).parents[2]


def write(folder: Path, start: int, stop: int, **changes: object) -> None:
    with LaneWriter.open(folder, settings(**changes)) as writer:
        assert writer.next_seq == start
        writer.append(records(start, stop))


def damage(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(raw)


def test_each_writer_has_a_lane_of_its_own_and_a_free_one_is_taken_first(tmp_path: Path) -> None:
    first, second, third = (LaneWriter.open(tmp_path, settings()) for _ in range(3))
    assert [writer.lane for writer in (first, second, third)] == ["0000", "0001", "0002"]
    assert len({writer.spool_id for writer in (first, second, third)}) == 1
    second.close()
    with LaneWriter.open(tmp_path, settings()) as again:
        assert again.lane == "0001"
    first.close()
    third.close()


def test_whether_a_spool_is_written_can_be_asked_without_disturbing_who_begins_to_write_it(tmp_path: Path) -> None:
    assert is_written(tmp_path / "none") is None
    assert is_written(tmp_path) is False
    with LaneWriter.open(tmp_path, settings()):
        assert is_written(tmp_path) is True
    assert is_written(tmp_path) is False
    with claim(tmp_path) as got:
        assert got
        assert is_written(tmp_path) is True, "somebody is about to take a lane"
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0000"


def test_a_lane_is_locked_against_other_processes_until_its_writer_is_killed(tmp_path: Path) -> None:
    with writer_process(tmp_path, 7) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0000 7\n"
        with LaneWriter.open(tmp_path, settings()) as writer:
            assert writer.lane == "0001"
        process.kill()
        process.wait()
        with LaneWriter.open(tmp_path, settings()) as writer:
            assert (writer.lane, writer.next_seq) == ("0000", 7)
            writer.append(records(7, 9))
    assert read_lines(tmp_path) == expected_lines(0, 9)


def test_no_acknowledged_record_is_lost_by_a_kill_and_the_lane_goes_on_densely(tmp_path: Path) -> None:
    following = 0
    for _ in range(4):
        with writer_process(tmp_path, 0, "endless") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"0000 {following}\n"
            for _ in range(200):
                following = int(process.stdout.readline())
            process.kill()
            rest = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            acknowledged = int(rest[-1]) if rest else following
            process.wait()
        with LaneWriter.open(tmp_path, settings()) as writer:
            assert writer.lane == "0000"
            assert acknowledged <= writer.next_seq <= acknowledged + 1
            following = writer.next_seq
    assert read_lines(tmp_path) == expected_lines(0, following)


def test_processes_that_start_together_make_one_spool_and_take_different_lanes(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom spool_support import SMALL\n"
        "from dspark_json.spool.writer import LaneWriter\n"
        "sys.stdin.readline()\nw = LaneWriter.open(Path(sys.argv[1]), SMALL)\n"
        "print(w.spool_id, w.lane, flush=True)\nsys.stdin.readline()\n"
    )
    folder = tmp_path / "deep" / "spool"
    environment = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PATH": "/usr/bin"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(6)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.stdout.readline().split() for process in started if process.stdout is not None]
    for process in started:
        process.communicate("end\n")
    assert {spool_id for spool_id, _ in said} == {read_identity(folder).spool_id}
    assert sorted(lane for _, lane in said) == [f"{number:04d}" for number in range(6)]


def test_a_removed_folder_does_not_keep_a_waiting_claim_on_the_old_one(tmp_path: Path) -> None:
    with claim(tmp_path) as first, claim(tmp_path, patience=0.02) as second:
        assert (first, second) == (True, False)
    with claim(tmp_path, patience=0) as third:
        assert third


@pytest.mark.parametrize("entry_bytes", [0, 1, 23])
@pytest.mark.parametrize("line_bytes", [1, 50, 10_000])
def test_a_torn_tail_is_cut_and_the_lane_goes_on(tmp_path: Path, line_bytes: int, entry_bytes: int) -> None:
    write(tmp_path, 0, 5)
    data, index = files_of(lane_of(tmp_path), 0)
    good = data.read_bytes(), index.read_bytes()
    with data.open("ab") as file:
        file.write(record(5).line(5, "0000")[:line_bytes].ljust(line_bytes, b"y"))
    with index.open("ab") as file:
        file.write(b"\x01" * entry_bytes)
    assert read_lines(tmp_path) == expected_lines(0, 5)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert (writer.lane, writer.next_seq) == ("0000", 5)
        assert (data.read_bytes(), index.read_bytes()) == good


def test_files_of_a_segment_that_was_being_made_are_removed(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    lane = lane_of(tmp_path)
    before = {path.name for path in lane.iterdir()}
    (lane / f"{5:020d}.ndjson").write_bytes(record(5).line(5, "0000"))
    (lane / f".{5:020d}.index.tmp").write_bytes(b"DSPK")
    (lane / f"{9:020d}.ndjson").touch()
    (lane / f"{9:020d}.index").write_bytes(b"DSPKIDX1\x09")
    assert read_lines(tmp_path) == expected_lines(0, 5)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.next_seq == 5
        assert {path.name for path in lane.iterdir()} == before


def test_a_data_file_that_retention_left_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    write(tmp_path, 0, 30, segment_bytes=300)
    first = segments_of(tmp_path)[0]
    files_of(lane_of(tmp_path), first)[1].unlink()
    with LaneWriter.open(tmp_path, settings()):
        assert not files_of(lane_of(tmp_path), first)[0].exists()


def test_a_lane_without_a_segment_begins_at_its_first_number(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()):
        pass
    for path in lane_of(tmp_path).glob("0*"):
        path.unlink()
    write(tmp_path, 0, 3)
    assert read_lines(tmp_path) == expected_lines(0, 3)


@pytest.mark.parametrize("bad", [0, 7, 11])
def test_after_a_host_crash_every_checksum_counts_and_the_lane_is_not_written_again(tmp_path: Path, bad: int) -> None:
    write(tmp_path, 0, 12, segment_bytes=510)  # 4 records a segment
    assert segments_of(tmp_path) == [0, 4, 8]
    size = len(record(0).line(0, "0000"))
    damage(files_of(lane_of(tmp_path), bad // 4 * 4)[0], bad % 4 * size + 30)
    pretend_host_crash(tmp_path)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert (writer.lane, writer.next_seq) == ("0001", 0)
        writer.append(records(0, 2))
    assert read_lines(tmp_path) == expected_lines(0, bad)
    assert read_lines(tmp_path, "0001") == expected_lines(0, 2, "0001")
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert (writer.lane, writer.next_seq) == ("0001", 2)
    assert (lane_of(tmp_path) / "lock").read_text() == f"{OTHER_BOOT} retired\n"


def test_after_a_host_crash_an_undamaged_lane_is_kept_whole_and_not_written_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 40)
    pretend_host_crash(tmp_path)
    write_to = LaneWriter.open(tmp_path, settings())
    assert write_to.lane == "0001"
    write_to.close()
    assert read_lines(tmp_path) == expected_lines(0, 40)


def test_after_a_host_crash_a_lane_without_records_is_not_written_again_either(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()):
        pass
    pretend_host_crash(tmp_path)  # it may have had records that a reader saw and the disk did not
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0001"


@pytest.mark.parametrize("what", ["zeros", "empty", "short", "missing data", "missing index"])
def test_after_a_host_crash_files_the_disk_lost_end_the_lane_where_they_begin(tmp_path: Path, what: str) -> None:
    write(tmp_path, 0, 12, segment_bytes=510)
    data, index = files_of(lane_of(tmp_path), 4)
    if what == "zeros":
        index.write_bytes(bytes(index.stat().st_size))
    elif what == "empty":
        index.write_bytes(b"")
    elif what == "short":
        os.truncate(index, HEADER_BYTES - 1)
    elif what == "missing data":
        data.unlink()
    else:
        index.unlink()
    pretend_host_crash(tmp_path)
    with LaneWriter.open(tmp_path, settings()):
        pass
    assert read_lines(tmp_path) == expected_lines(0, 4)
    assert SpoolReader(tmp_path).offsets().lanes["0000"].next == 4


def test_after_a_host_crash_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    data, index = files_of(lane_of(tmp_path), 0)
    for path in (data, index):
        with path.open("ab") as file:
            file.write(bytes(240))
    assert read_lines(tmp_path) == expected_lines(0, 5)
    pretend_host_crash(tmp_path)
    with LaneWriter.open(tmp_path, settings()):
        pass
    assert read_lines(tmp_path) == expected_lines(0, 5)
    assert index.stat().st_size == index_size(5)


@pytest.mark.parametrize("position", [99, 40, 0])
def test_damage_under_a_running_host_ends_the_lane_before_it_and_retires_it(tmp_path: Path, position: int) -> None:
    write(tmp_path, 0, 100, segment_bytes=1 << 20)
    for number in {position, 99}:
        damage(files_of(lane_of(tmp_path), 0)[0], sum(map(len, expected_lines(0, number).values())) + 60)
    with LaneWriter.open(tmp_path, settings()) as writer:
        # The last checksums are verified, and further back as long as bad ones show; whole records were cut, so a
        # reader may know their numbers already.
        assert writer.lane == "0001"
    following = SpoolReader(tmp_path).offsets().lanes["0000"].next
    assert following < 100
    assert (lane_of(tmp_path) / "lock").read_text() == f"{current_boot_id()} retired\n"


def test_an_index_longer_than_its_data_is_cut_and_the_lane_is_retired(tmp_path: Path) -> None:
    write(tmp_path, 0, 10)
    data, _ = files_of(lane_of(tmp_path), segments_of(tmp_path)[-1])
    os.truncate(data, data.stat().st_size - 1)
    assert read_lines(tmp_path) == expected_lines(0, 9)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0001"
    assert read_lines(tmp_path) == expected_lines(0, 9)


def test_what_a_reader_has_mapped_stays_when_a_damaged_lane_is_cut(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=1 << 20)) as writer:
        writer.append(records(0, 10, size=10_000))
    data, _ = files_of(lane_of(tmp_path), 0)
    size = data.stat().st_size
    good = SpoolReader(tmp_path).read("0000", 6, 10)
    damage(data, 20_500)
    for _ in range(2):
        with LaneWriter.open(tmp_path, settings()) as writer:
            assert writer.lane == "0001"
        assert read_lines(tmp_path) == expected_lines(0, 2, size=10_000)
        assert data.stat().st_size == size  # a mapped file that shrinks kills who touches it
    assert bytes(good.buffer) == b"".join(expected_lines(6, 10, size=10_000).values())


@pytest.mark.parametrize("where", ["last entry", "header"])
def test_a_time_far_ahead_of_the_clock_is_not_handed_on_to_later_records(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with LaneWriter.open(tmp_path, settings(), clock=clock) as writer:
        writer.append(records(0, 3))
    _, index = files_of(lane_of(tmp_path), 0)
    damage(index, index.stat().st_size - 9 if where == "last entry" else 23)
    clock.now += 1_000
    with LaneWriter.open(tmp_path, settings(), clock=clock) as writer:
        assert (writer.lane, writer.next_seq) == ("0000", 3)
        writer.append(records(3, 5))
    assert list(SpoolReader(tmp_path).read("0000", 3, 5).appended_at) == [clock.now] * 2
    (said,) = [entry.getMessage() for entry in caplog.records]
    assert str(lane_of(tmp_path)) in said
    assert "more than a day ahead of the clock" in said


def test_a_clock_set_back_by_less_than_a_day_never_makes_times_go_down(tmp_path: Path) -> None:
    clock = Clock()
    with LaneWriter.open(tmp_path, settings(), clock=clock) as writer:
        writer.append(records(0, 1))
    clock.now -= 86_399_000_000
    with LaneWriter.open(tmp_path, settings(), clock=clock) as writer:
        writer.append(records(1, 2))
    assert list(SpoolReader(tmp_path).read("0000", 0, 2).appended_at) == [START, START]


def test_a_new_lane_has_the_number_after_the_highest_because_a_gap_may_have_had_records(tmp_path: Path) -> None:
    writers = [LaneWriter.open(tmp_path, settings()) for _ in range(3)]
    shutil.rmtree(lane_of(tmp_path, "0001"))
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0003"
    for writer in writers:
        writer.close()


def test_with_the_highest_number_taken_the_lowest_free_one_is_used(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()):
        last = lane_of(tmp_path, "9999")
        last.mkdir()
        (last / "lock").write_text(f"{OTHER_BOOT} retired\n")
        (tmp_path / "lanes" / "0001").write_text("not a lane")
        with LaneWriter.open(tmp_path, settings()) as writer:
            assert writer.lane == "0002"


def test_a_lane_whose_lock_is_none_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "lanes" / "0000" / "lock").mkdir(parents=True)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0001"
    assert "0000 is left alone" in caplog.text


def test_a_lane_with_an_index_of_another_format_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 0, 3)
    _, index = files_of(lane_of(tmp_path), 0)
    index.write_bytes(b"DSPKIDX2" + index.read_bytes()[8:])
    before = index.read_bytes()
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.lane == "0001"
    assert index.read_bytes() == before
