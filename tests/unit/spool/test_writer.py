from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from spool_support import (
    PAGE,
    START,
    Clock,
    expected_lines,
    files_of,
    fill,
    lane_of,
    open_files,
    open_to_all,
    read_lines,
    record,
    records,
    segments_of,
    settings,
    small_disk,
)

from dspark_json.errors import SpoolError, SpoolFormatError, SpoolPermissionError, SpoolWriteError
from dspark_json.spool.layout import HEADER_BYTES, INDEX_ENTRY, index_size, read_identity
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.writer import LaneWriter

TESTS = Path(__file__).parents[2]


def appended_at(folder: Path) -> list[int]:
    lane, times = lane_of(folder), []
    for first_seq in segments_of(folder):
        raw = files_of(lane, first_seq)[1].read_bytes()[HEADER_BYTES:]
        times += [entry[1] for entry in INDEX_ENTRY.iter_unpack(raw)]
    return times


def run_writer(folder: Path, code: str, *arguments: str) -> str:
    """Run code in another process with ``folder``, the writer's classes and the tests' helpers at hand."""
    prelude = (
        "import os, resource, sys\nfrom pathlib import Path\nfrom spool_support import *\n"
        "from dspark_json.errors import *\nfrom dspark_json.spool.writer import LaneWriter\n"
        "folder = Path(sys.argv[1])\n"
    )
    environment = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PATH": "/usr/bin"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", prelude + code, str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout


def test_appended_records_are_read_back_in_order_with_dense_numbers(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()) as writer:
        for start, stop in ((0, 1), (1, 5), (5, 40), (40, 41)):
            writer.append(records(start, stop))
            assert writer.next_seq == stop
            assert read_lines(tmp_path) == expected_lines(0, stop)
        writer.append([])
        assert writer.next_seq == 41


def test_a_segment_that_is_full_is_followed_by_one_named_by_its_first_number(tmp_path: Path) -> None:
    size = len(record(0).line(0, "0000"))
    with LaneWriter.open(tmp_path, settings(segment_bytes=3 * size)) as writer:
        writer.append(records(0, 4))
        writer.append(records(4, 9))
    assert segments_of(tmp_path) == [0, 3, 6]
    for first_seq in (0, 3, 6):
        data, index = files_of(lane_of(tmp_path), first_seq)
        assert data.stat().st_size == 3 * size
        assert index.stat().st_size == index_size(3)


def test_a_record_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=300)) as writer:
        writer.append([record(0), record(1, 5_000), record(2)])
        writer.append([record(3, 5_000)])
    assert segments_of(tmp_path) == [0, 1, 2, 3]
    assert read_lines(tmp_path)[1] == record(1, 5_000).line(1, "0000")


def test_files_are_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with LaneWriter.open(folder, settings()) as writer:
        writer.append(records(0, 30))
        writer.maintain()
        for path in [folder, *folder.rglob("*")]:
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_times_never_go_down_not_over_a_clock_step_and_not_over_a_restart(tmp_path: Path) -> None:
    clock = Clock(START)
    with LaneWriter.open(tmp_path, settings(segment_bytes=150), clock=clock) as writer:
        for number, now in enumerate((START, START + 10, START - 5_000, START + 11)):
            clock.now = now
            writer.append([record(number)])
    clock.now = START - 1_000_000
    with LaneWriter.open(tmp_path, settings(segment_bytes=150), clock=clock) as writer:
        writer.append([record(4)])
        clock.now = START + 12
        writer.append([record(5)])
    assert appended_at(tmp_path) == [START, START + 10, START + 10, START + 11, START + 11, START + 12]


def test_times_never_go_down_over_a_restart_on_an_empty_newest_segment(tmp_path: Path) -> None:
    clock = Clock(START)
    with LaneWriter.open(tmp_path, settings(retention_us=100), clock=clock) as writer:
        writer.append([record(0)])
        clock.now = START + 1_000
        writer.maintain()
    assert segments_of(tmp_path) == [1]
    clock.now = START - 1_000_000
    with LaneWriter.open(tmp_path, settings(), clock=clock) as writer:
        writer.append([record(1)])
    assert appended_at(tmp_path) == [START + 1_000]


def test_spool_json_names_this_boot_and_keeps_its_id_over_writer_starts(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(), clock=Clock(5)) as writer:
        first = read_identity(tmp_path)
        assert (first.spool_id, first.created) == (writer.spool_id, 5)
        assert first.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    document = json.loads((tmp_path / "spool.json").read_text())
    (tmp_path / "spool.json").write_text(json.dumps({**document, "boot_id": "an older boot"}))
    with LaneWriter.open(tmp_path, settings(), clock=Clock(9)):
        assert read_identity(tmp_path) == first


def test_a_folder_with_a_spool_of_another_format_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "spool.json").write_text('{"format":2}')
    with pytest.raises(SpoolFormatError, match="format 2"):
        LaneWriter.open(tmp_path)
    assert (tmp_path / "spool.json").read_text() == '{"format":2}'


def test_foreign_files_in_the_folders_stay_and_do_no_harm(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append(records(0, 3))
    foreign = [
        tmp_path / "notes.txt",
        tmp_path / "lanes" / "readme",
        tmp_path / "lanes" / "0001",
        lane_of(tmp_path) / "5.index",
        lane_of(tmp_path) / "core",
    ]
    for path in foreign:
        path.write_text("mine")
    (lane_of(tmp_path) / "folder").mkdir()
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append(records(3, 30))
        writer.maintain()
    assert read_lines(tmp_path) == expected_lines(0, 30)
    assert [path.read_text() for path in foreign] == ["mine"] * len(foreign)


def test_a_full_disk_refuses_the_append_leaves_nothing_behind_and_passes(tmp_path: Path) -> None:
    # A limit on the size of a file cuts a write short and fails the next, as a full disk does.
    said = run_writer(
        tmp_path,
        """
writer = LaneWriter.open(folder, settings(segment_bytes=100_000))
writer.append(records(0, 5))
before = {p.name: p.read_bytes() for p in lane_of(folder).glob("0*")}
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
for attempt in range(2):
    try:
        writer.append(records(5, 25))
    except SpoolWriteError as error:
        print(error)
assert before == {p.name: p.read_bytes() for p in lane_of(folder).glob("0*")}
assert writer.next_seq == 5
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.append(records(5, 25))
writer.close()
""",
    )
    assert said.count("DSPARK_JSON_SPOOL_WRITE") == 2
    assert said.count("File too large") == 2
    assert read_lines(tmp_path) == expected_lines(0, 25)


def test_an_append_over_several_segments_that_fails_leaves_none_of_them(tmp_path: Path) -> None:
    run_writer(
        tmp_path,
        """
writer = LaneWriter.open(folder, settings(segment_bytes=1_000))
writer.append(records(0, 5))
before = {p.name: p.read_bytes() for p in lane_of(folder).iterdir()}
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, resource.RLIM_INFINITY))
try:
    writer.append([*records(5, 30), record(30, 5_000)])
except SpoolWriteError:
    pass
else:
    raise AssertionError
assert before == {p.name: p.read_bytes() for p in lane_of(folder).iterdir()}
writer.append(records(5, 30))
writer.close()
""",
    )
    assert read_lines(tmp_path) == expected_lines(0, 30)


def test_a_failure_that_can_not_be_undone_is_recovered_before_the_next_append(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append(records(0, 3))
        segment = writer._segment
        assert segment is not None
        good = os.dup(segment._index)
        full = os.open("/dev/full", os.O_RDWR)
        os.dup2(full, segment._index)  # every write fails with "No space left on device", and so does cutting
        os.close(full)
        with pytest.raises(SpoolWriteError, match="No space left on device"):
            writer.append(records(3, 5))
        os.close(good)
        assert writer.next_seq == 3
        assert read_lines(tmp_path) == expected_lines(0, 3)
        writer.append(records(3, 7))
        assert read_lines(tmp_path) == expected_lines(0, 7)


def test_entries_that_landed_before_a_failure_stay_because_a_reader_may_have_seen_them(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=100_000)) as writer:
        writer.append(records(0, 1))
        segment = writer._segment
        assert segment is not None
        lines = [record(number).line(number, "0000") for number in range(1, 4)]
        segment.write_data(b"".join(lines))
        whole = files_of(lane_of(tmp_path), 0)[1].read_bytes()
    entry = INDEX_ENTRY.unpack(whole[HEADER_BYTES:])
    # The process ends here; the index holds one more whole entry and a part of another.
    landed = INDEX_ENTRY.pack(entry[0] + len(lines[0]), entry[1], zlib.crc32(lines[0]), 0)
    files_of(lane_of(tmp_path), 0)[1].write_bytes(whole + landed + landed[:9])
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.next_seq == 2
        assert read_lines(tmp_path) == expected_lines(0, 2)


def test_what_stays_of_an_append_that_failed_is_counted_and_handed_on_and_nothing_else() -> None:
    handed_on: list[tuple[int, list[bytes]]] = []
    in_the_first_page = (PAGE - HEADER_BYTES) // INDEX_ENTRY.size
    first = in_the_first_page - 9
    last = first + 40
    expected = expected_lines(0, last)

    def size(start: int, stop: int) -> int:
        return sum(len(expected[number]) for number in range(start, stop))

    with (
        small_disk() as disk,
        LaneWriter.open(disk / "spool", settings(segment_bytes=1 << 20, min_free_ratio=-1.0)) as writer,
    ):
        writer.after_append = lambda seq, lines: handed_on.append((seq, lines))
        writer.append(records(0, first))
        # Room for the lines, but not for the next page of the index.
        filler = fill(disk, but=-(-size(0, last) // PAGE) - -(-size(0, first) // PAGE))
        for start in (first, in_the_first_page):
            with pytest.raises(SpoolWriteError, match="No space left on device"):
                writer.append(records(start, last))
            assert writer.next_seq == in_the_first_page
            assert read_lines(disk / "spool") == expected_lines(0, in_the_first_page)
            counted = {"records": in_the_first_page, "bytes": size(0, in_the_first_page)}
            assert writer.counters.snapshot() == counted
        filler.unlink()
        writer.append(records(in_the_first_page, last))
        assert writer.counters.snapshot() == {"records": last, "bytes": size(0, last)}
        assert read_lines(disk / "spool") == expected
    assert [seq for seq, _ in handed_on] == [0, first, in_the_first_page]
    assert dict(enumerate(line for _, lines in handed_on for line in lines)) == expected


def test_what_stays_though_its_files_could_not_be_looked_at_is_counted_once(tmp_path: Path) -> None:
    said = run_writer(
        tmp_path,
        """
writer = LaneWriter.open(folder / "s", settings(segment_bytes=100_000))
writer.append(records(0, 2))
writer._space_checked = float("inf")  # looked at a moment ago
lane_of(folder / "s").chmod(0)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    writer.append(records(2, 5))
except SpoolWriteError as error:
    print(error)
if os.getuid() == 0:
    os.seteuid(0)
lane_of(folder / "s").chmod(0o700)
assert not writer.gone
assert writer.next_seq == writer.counters.snapshot()["records"] == 5
assert writer.counters.snapshot()["bytes"] == sum(map(len, expected_lines(0, 5).values()))
writer.append(records(5, 7))
writer.close()
""",
    )
    assert "Permission denied" in said
    assert read_lines(tmp_path / "s") == expected_lines(0, 7)


def test_low_free_space_refuses_records_and_says_so(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(min_free_ratio=1.01)) as writer:
        with pytest.raises(SpoolWriteError, match="less than 101% free space") as caught:
            writer.append([record(0)])
        assert "DSPARK_SPOOL" in caught.value.remedy
        assert writer.next_seq == 0
        writer.maintain()


@pytest.mark.parametrize("how", ["removed", "moved", "made anew"])
def test_a_folder_that_is_gone_is_noticed_and_opening_again_makes_a_new_spool(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "spool"
    writer = LaneWriter.open(folder, settings())
    writer.append(records(0, 3))
    if how == "moved":
        folder.rename(tmp_path / "elsewhere")
    else:
        shutil.rmtree(folder)
    if how == "made anew":
        LaneWriter.open(folder, settings()).close()
    with pytest.raises(SpoolWriteError, match="removed, moved or changed"):
        writer.maintain()
    assert writer.gone
    with pytest.raises(SpoolWriteError, match="removed, moved or changed"):
        writer.append([record(3)])
    writer.close()
    with LaneWriter.open(folder, settings()) as again:
        assert again.spool_id != writer.spool_id
        again.append(records(0, 2))
        assert read_lines(folder) == expected_lines(0, 2)


@pytest.mark.parametrize("segment_bytes", [1, 150, 10_000])
@pytest.mark.parametrize("how", ["lanes", "lane", "files", "indexes", "newest index"])
def test_a_lane_that_is_removed_under_its_writer_gives_no_number_twice(
    tmp_path: Path, how: str, segment_bytes: int
) -> None:
    folder = tmp_path / "s"
    writer = LaneWriter.open(folder, settings(segment_bytes=segment_bytes))
    spool_id = writer.spool_id
    other = LaneWriter.open(folder)
    other.append(records(0, 7))
    for number in range(3):
        writer.append([record(number)])
    lane = folder / "lanes/0000"
    if how == "lanes":
        shutil.rmtree(folder / "lanes")
        other.close()
        other = LaneWriter.open(folder, after=other)  # whoever comes first
        assert (other.lane, other.next_seq) == ("0001", 7)
    elif how == "lane":
        shutil.rmtree(lane)
    else:
        for path in sorted(lane.glob("0*" if how == "files" else "*.index"))[-1 if how == "newest index" else 0 :]:
            path.unlink()
    try:
        writer.append(records(3, 5))
    except SpoolWriteError:
        writer.close()
        following = writer.next_seq  # some were stored where nobody finds them, but may have looked
        writer = LaneWriter.open(folder, settings(segment_bytes=segment_bytes), after=writer)
        assert (writer.spool_id, writer.lane, writer.next_seq) == (spool_id, "0000", following)
        writer.append(records(following, following + 2))
    other.close()
    writer.close()
    stop = SpoolReader(folder).offsets().lanes["0000"].next
    assert stop == writer.next_seq >= 5
    assert read_lines(folder, start=stop - 2) == expected_lines(stop - 2, stop)


def test_the_name_of_a_spool_is_written_again_where_it_was_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LaneWriter.open(tmp_path) as writer:
        writer.append(records(0, 2))
        identity = read_identity(tmp_path)
        (tmp_path / "spool.json").unlink()
        writer.maintain()
        writer.maintain()
        assert read_identity(tmp_path) == identity
        writer.append(records(2, 3))
    assert caplog.text.count("was removed under a running server") == 1
    assert read_lines(tmp_path) == expected_lines(0, 3)


def test_a_record_for_a_folder_that_is_gone_is_refused_at_once_not_counted_as_kept(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer = LaneWriter.open(folder, settings())
    writer.append(records(0, 3))
    shutil.rmtree(folder)
    with pytest.raises(SpoolWriteError, match="removed, moved or changed"):
        writer.append([record(3)])
    assert writer.gone
    assert writer.counters.snapshot()["records"] == 3
    writer.close()


def test_a_removed_folder_is_noticed_when_the_next_segment_is_begun(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer = LaneWriter.open(folder, settings(segment_bytes=100))
    writer.append([record(0)])
    shutil.rmtree(folder)
    with pytest.raises(SpoolWriteError, match="removed, moved or changed"):
        writer.append([record(1)])
    assert writer.gone
    writer.close()


def test_sync_brings_the_rolled_segments_too_and_skips_those_deleted_since(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=200)) as writer:
        writer.append(records(0, 9))
        for path in files_of(lane_of(tmp_path), 0):
            path.unlink()
        writer.sync()
        assert writer._unsynced == []
        writer.append(records(9, 10))
        writer.sync()


def test_a_closed_writer_takes_nothing_and_may_be_closed_again(tmp_path: Path) -> None:
    writer = LaneWriter.open(tmp_path, settings())
    writer.close()
    writer.close()
    with pytest.raises(SpoolWriteError, match="is closed"):
        writer.append([record(0)])


def test_a_writer_leaves_no_file_open(tmp_path: Path) -> None:
    before = open_files()
    for number in range(5):
        with LaneWriter.open(tmp_path, settings(segment_bytes=300)) as writer:
            writer.append(records(number * 10, number * 10 + 10))
            writer.sync()
            writer.maintain()
    read_lines(tmp_path)
    assert open_files() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_spool_folder_of_another_user_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(SpoolPermissionError, match="belongs to another user") as caught:
        LaneWriter.open(folder, settings())
    assert str(folder) in caught.value.message


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_folder_that_may_not_be_written_is_a_named_error() -> None:
    with open_to_all() as place:
        said = run_writer(
            place,
            """
os.setuid(65534)
try:
    LaneWriter.open(folder / "spool", SMALL)
except SpoolPermissionError as error:
    print(error)
""",
        )
    assert f"{place}/spool may not be written by this user" in said
    assert "DSPARK_SPOOL" in said


def test_a_path_that_can_not_be_a_folder_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "spool"):
        with pytest.raises(SpoolWriteError):
            LaneWriter.open(path, settings())


def test_default_sizes_follow_from_the_retention(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=None, retention_bytes=8 << 20)) as writer:
        assert writer._segment_bytes() == 1 << 20
    with LaneWriter.open(tmp_path, settings(segment_bytes=None, retention_bytes=8 << 30)) as writer:
        assert writer._segment_bytes() == 64 << 20
    with LaneWriter.open(tmp_path, settings(segment_bytes=None, retention_bytes=None)) as writer:
        space = os.statvfs(tmp_path)
        assert writer._limit == min(512 << 20, space.f_blocks * space.f_frsize // 4)


def test_readers_see_an_append_over_several_segments_whole_segment_by_whole_segment(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=400)) as writer:
        writer.append(records(0, 50))
        chunk = SpoolReader(tmp_path).read("0000", 0, 50)
        assert 0 < len(chunk) < 50
        assert read_lines(tmp_path) == expected_lines(0, 50)


@pytest.mark.parametrize("place", ["/proc/no-such-folder", "/proc/no-such-folder/spool", "/etc/hostname/spool"])
def test_a_folder_that_can_not_be_made_is_said_to_be_one(place: str) -> None:
    with pytest.raises(SpoolError, match=r"can't be created|may not be written") as caught:
        LaneWriter.open(Path(place))
    assert "DSPARK_SPOOL" in caught.value.remedy
    assert "was removed" not in str(caught.value)


def test_a_file_in_the_place_of_the_folder_is_said_to_keep_it_from_being_made(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    with pytest.raises(SpoolWriteError, match="can't be created") as caught:
        LaneWriter.open(tmp_path / "spool")
    assert caught.value.remedy == "Check DSPARK_SPOOL."
