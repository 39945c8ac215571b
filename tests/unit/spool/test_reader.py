from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spool_support import (
    START,
    Clock,
    expected_lines,
    files_of,
    lane_of,
    open_files,
    open_to_all,
    read_lines,
    record,
    records,
    segments_of,
    settings,
)

from dspark_json.errors import (
    BeyondEndError,
    DSparkJsonError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.spool.reader import LaneExtent, SpoolReader
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).parents[2]
SIZE = len(record(10).line(10, "0000"))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Records 10 to 39 in segments of 5; 0 to 9 are gone."""
    folder = tmp_path / "spool"
    clock = Clock()
    with LaneWriter.open(folder, settings(segment_bytes=5 * SIZE + 10), clock=clock) as writer:
        for number in range(40):
            clock.now = START + number // 2 * 100
            writer.append([record(number)])
    for first_seq in segments_of(folder)[:2]:
        for path in files_of(lane_of(folder), first_seq):
            path.unlink()
    assert segments_of(folder) == [10, 15, 20, 25, 30, 35]
    return folder


def test_extents_are_numbers_and_bytes_of_each_lane(spool: Path) -> None:
    with LaneWriter.open(spool, settings()) as first, LaneWriter.open(spool, settings()) as second:
        assert first.lane == "0000"
        second.append([record(0)])
        found = SpoolReader(spool).offsets()
    assert found.spool_id == first.spool_id
    assert found.lanes == {
        "0000": LaneExtent(10, 40, sum(map(len, expected_lines(10, 40).values()))),
        "0001": LaneExtent(0, 1, len(record(0).line(0, "0001"))),
    }


def test_extents_take_no_read_of_any_record(spool: Path) -> None:
    for first_seq in segments_of(spool):
        data, _ = files_of(lane_of(spool), first_seq)
        data.write_bytes(bytes(data.stat().st_size))
    assert SpoolReader(spool).offsets().lanes["0000"].next == 40


@pytest.mark.parametrize("max_bytes", [1, SIZE, 2 * SIZE, 3 * SIZE + 1, 1 << 20])
def test_a_chunk_has_at_least_one_record_keeps_to_the_bytes_and_ends_with_the_segment(
    spool: Path, max_bytes: int
) -> None:
    reader = SpoolReader(spool)
    assert read_lines(spool, max_bytes=max_bytes) == expected_lines(10, 40)
    chunk = reader.read("0000", 12, 40, max_bytes=max_bytes)
    assert chunk.first_seq == 12
    assert len(chunk) == max(1, min(3, max_bytes // SIZE))
    assert chunk.next_seq == 12 + len(chunk)
    assert len(chunk.buffer) == chunk.ends[-1] == len(chunk) * SIZE
    assert chunk.spool_id == reader.identity.spool_id
    assert list(chunk.appended_at) == [START + number // 2 * 100 for number in range(12, chunk.next_seq)]


def test_a_range_ends_where_it_was_asked_to(spool: Path) -> None:
    assert len(SpoolReader(spool).read("0000", 11, 13)) == 2
    assert SpoolReader(spool).read("0000", 38, 1_000).next_seq == 40


def test_an_index_slice_goes_over_segments_and_counts_from_its_first_record(spool: Path) -> None:
    found = SpoolReader(spool).index("0000", 13, 28)
    assert found.first_seq == 13
    assert list(found.ends) == [SIZE * count for count in range(1, 16)]
    assert list(found.appended_at) == [START + number // 2 * 100 for number in range(13, 28)]
    assert len(found.crcs) == len(found) == 15
    assert len(SpoolReader(spool).index("0000", 39, 50)) == 1


def test_seeking_a_time_finds_the_first_record_at_or_after_it(spool: Path) -> None:
    reader = SpoolReader(spool)
    times = {number: START + number // 2 * 100 for number in range(10, 40)}
    for wanted in range(START + 300, START + 2_200, 50):
        assert reader.seek_time("0000", wanted) == min((n for n, at in times.items() if at >= wanted), default=40)
    assert reader.seek_time("0000", 0) == 10
    assert reader.seek_time("0000", 2**62) == 40


def test_numbers_below_what_is_kept_and_beyond_the_end_are_named_errors(spool: Path) -> None:
    reader = SpoolReader(spool)
    for call in (reader.read, reader.index):
        with pytest.raises(RecordsExpiredError, match="record 9 is no longer kept") as expired:
            call("0000", 9, 20)
        assert expired.value.first == 10
        with pytest.raises(BeyondEndError, match="record 40 is not written yet") as beyond:
            call("0000", 40, 41)
        assert beyond.value.next == 40
        with pytest.raises(ValueError, match="empty"):
            call("0000", 20, 20)


@pytest.mark.parametrize("lane", ["0001", "00", "../0000", "0000/../0000", "", "٠٠٠٠", "\x00"])
def test_an_unknown_lane_or_a_name_that_is_none_is_a_named_error(spool: Path, lane: str) -> None:
    (spool / "lanes" / "0009").touch()
    for wanted in (lane, "0009"):
        with pytest.raises(LaneNotFoundError):
            SpoolReader(spool).read(wanted, 10, 11)
        with pytest.raises(LaneNotFoundError):
            SpoolReader(spool).seek_time(wanted, 0)


def test_a_lane_in_which_nothing_was_begun_is_not_there_yet(spool: Path) -> None:
    (spool / "lanes" / "0001").mkdir()
    (spool / "lanes" / "0002").mkdir()
    (spool / "lanes" / "0002" / f"{0:020d}.index").write_bytes(b"DSPKIDX1")
    assert list(SpoolReader(spool).offsets().lanes) == ["0000"]


def test_a_newest_segment_without_a_whole_header_does_not_exist_yet(spool: Path) -> None:
    data, index = files_of(lane_of(spool), 40)
    data.write_bytes(record(40).line(40, "0000"))
    index.write_bytes(b"DSPKIDX1" + bytes(23))
    assert read_lines(spool) == expected_lines(10, 40)


def test_foreign_names_are_ignored(spool: Path) -> None:
    lane = lane_of(spool)
    for number in (0, 22, 99):
        (lane / f"{number:020d}.index").mkdir()
    (spool / "lanes" / "0001" / f"{0:020d}.index").mkdir(parents=True)
    for name in ("99.index", f"{99:020d}.index.bak", f".{99:020d}.index.tmp", "README", f"{99:021d}.index"):
        (lane / name).write_bytes(b"not ours")
    (spool / "lanes" / "12345").mkdir()
    (spool / "lanes" / "abcd").mkdir()
    assert read_lines(spool) == expected_lines(10, 40)
    assert list(SpoolReader(spool).offsets().lanes) == ["0000"]


def test_a_missing_segment_in_the_middle_is_damage_on_reading_that_range_only(spool: Path) -> None:
    for path in files_of(lane_of(spool), 20):
        path.unlink()
    reader = SpoolReader(spool)
    assert reader.offsets().lanes["0000"].next == 40
    assert reader.read("0000", 15, 40).next_seq == 20
    assert reader.read("0000", 25, 40).next_seq == 30
    for seq in (20, 24):
        with pytest.raises(SpoolCorruptError, match=rf"lane 0000, record {seq}: .*{15:020d}.index") as caught:
            reader.read("0000", seq, 40)
        assert reader.identity.spool_id in caught.value.message
    with pytest.raises(SpoolCorruptError, match="record 20"):
        reader.index("0000", 18, 26)


def test_a_missing_data_file_is_damage_that_names_it(spool: Path) -> None:
    data, _ = files_of(lane_of(spool), 20)
    data.unlink()
    with pytest.raises(SpoolCorruptError, match=rf"record 22: .*{20:020d}.ndjson is missing"):
        SpoolReader(spool).read("0000", 22, 40)


@pytest.mark.parametrize("number", [20, 22, 24, 39])
def test_a_changed_byte_is_damage_that_names_spool_lane_record_and_file(spool: Path, number: int) -> None:
    first_seq = number // 5 * 5
    data, _ = files_of(lane_of(spool), first_seq)
    raw = bytearray(data.read_bytes())
    raw[(number - first_seq) * SIZE + 60] ^= 1
    data.write_bytes(raw)
    reader = SpoolReader(spool)
    with pytest.raises(
        SpoolCorruptError, match=rf"lane 0000, record {number}: .* does not match its checksum"
    ) as caught:
        reader.read("0000", first_seq, 40)
    assert reader.identity.spool_id in caught.value.message
    assert str(data) in caught.value.message
    if number > first_seq:
        assert reader.read("0000", first_seq, number).next_seq == number


def test_an_older_index_that_is_too_short_is_damage_on_reading_what_is_missing(spool: Path) -> None:
    _, index = files_of(lane_of(spool), 20)
    os.truncate(index, index.stat().st_size - 30)
    assert SpoolReader(spool).read("0000", 20, 40).next_seq == 23
    with pytest.raises(SpoolCorruptError, match=r"record 23: .* has 3 records, but the next segment begins after 5"):
        SpoolReader(spool).read("0000", 23, 40)


def test_an_older_index_that_is_too_long_is_damage(spool: Path) -> None:
    _, index = files_of(lane_of(spool), 20)
    with index.open("ab") as file:
        file.write(index.read_bytes()[-24:])
    with pytest.raises(SpoolCorruptError, match=r"has 6 records, but the next segment begins after 5"):
        SpoolReader(spool).read("0000", 20, 40)


def test_an_older_data_file_that_is_too_short_is_damage(spool: Path) -> None:
    data, _ = files_of(lane_of(spool), 20)
    os.truncate(data, 3 * SIZE + 5)
    assert SpoolReader(spool).read("0000", 20, 23).next_seq == 23
    with pytest.raises(SpoolCorruptError, match=rf"has {3 * SIZE + 5} bytes"):
        SpoolReader(spool).read("0000", 20, 25)


@pytest.mark.parametrize("missing", [1, SIZE - 1, SIZE, 2 * SIZE + 1, 5 * SIZE])
def test_entries_of_the_newest_segment_whose_line_is_not_there_are_not_there_yet(spool: Path, missing: int) -> None:
    data, _ = files_of(lane_of(spool), 35)
    os.truncate(data, 5 * SIZE - missing)
    lost = -(-missing // SIZE)
    assert SpoolReader(spool).offsets().lanes["0000"].next == 40 - lost
    assert read_lines(spool) == expected_lines(10, 40 - lost)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: b"DSPKIDX2" + raw[8:], "not an index of format 1"),
        (lambda raw: bytes(32) + raw[32:], "not an index of format 1"),
        (lambda raw: raw[:8] + b"\x01" + raw[9:], "not what its name says"),
        (
            lambda raw: raw[:24] + b"\x01" + raw[25:],
            r"not an index of format 1 \(the last word of its header is 1, not 0",
        ),
    ],
)
@pytest.mark.parametrize("first_seq", [20, 35])
def test_a_header_that_does_not_fit_is_damage_of_that_segment_and_of_nothing_else(
    spool: Path, first_seq: int, change: Callable[[bytes], bytes], says: str
) -> None:
    with LaneWriter.open(spool, settings()), LaneWriter.open(spool, settings()) as other:
        other.append(records(0, 3))
    before = SpoolReader(spool).offsets()
    _, index = files_of(lane_of(spool), first_seq)
    index.write_bytes(change(index.read_bytes()))
    reader = SpoolReader(spool)
    assert reader.offsets() == before
    for call in (reader.read, reader.lines, reader.index):
        with pytest.raises(SpoolCorruptError, match=says) as caught:
            call("0000", first_seq + 1, first_seq + 2)
        assert f"lane 0000, record {first_seq + 1}: {index}" in caught.value.message
        assert reader.identity.spool_id in caught.value.message
    good = {number: line for number, line in expected_lines(10, 40).items() if not first_seq <= number < first_seq + 5}
    found: dict[int, bytes] = {}
    for start in {10, 15, 20, 25, 30, 35} - {first_seq}:
        found[start] = bytes(reader.read("0000", start, start + 5).buffer)
    assert b"".join(found[start] for start in sorted(found)) == b"".join(good.values())
    assert read_lines(spool, "0001") == expected_lines(0, 3, "0001")


def test_a_time_that_can_not_be_true_is_damage_of_its_record_alone(spool: Path) -> None:
    _, index = files_of(lane_of(spool), 20)
    raw = bytearray(index.read_bytes())
    raw[32 + 24 * 2 + 15] = 0x80  # the highest byte of record 22's time
    index.write_bytes(raw)
    reader = SpoolReader(spool)
    for call in (reader.read, reader.lines):
        with pytest.raises(SpoolCorruptError, match=rf"lane 0000, record 22: {index} .* which can't be") as caught:
            call("0000", 20, 25)
        assert reader.identity.spool_id in caught.value.message
        assert call("0000", 20, 22).next_seq == 22
        assert call("0000", 23, 25).next_seq == 25


@pytest.mark.parametrize("end", [0, (1 << 64) - 1])
def test_an_end_that_can_not_be_is_damage_of_its_record(spool: Path, end: int) -> None:
    _, index = files_of(lane_of(spool), 20)
    raw = bytearray(index.read_bytes())
    raw[32 + 24 * 2 : 32 + 24 * 2 + 8] = end.to_bytes(8, "little")  # of record 22
    index.write_bytes(raw)
    reader = SpoolReader(spool)
    with pytest.raises(SpoolCorruptError, match=r"lane 0000, record 2[23]: "):
        reader.read("0000", 21, 25)
    assert reader.read("0000", 20, 22).next_seq == 22
    assert reader.read("0000", 24, 25).next_seq == 25


def test_a_clock_that_was_never_set_makes_good_records(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(), clock=Clock(5)) as writer:
        writer.append(records(0, 2))
    assert list(SpoolReader(tmp_path).read("0000", 0, 2).appended_at) == [5, 5]


@pytest.mark.parametrize("damaged", [[10], [20], [20, 25], [35], [30, 35], [10, 15, 20, 25, 30, 35]])
def test_seeking_a_time_goes_round_damage_and_leaves_no_record_out(spool: Path, damaged: list[int]) -> None:
    for first_seq in damaged:
        _, index = files_of(lane_of(spool), first_seq)
        index.write_bytes(b"x" + index.read_bytes()[1:])
    reader = SpoolReader(spool)
    times = {number: START + number // 2 * 100 for number in range(10, 40)}
    for wanted in range(START + 300, START + 2_200, 50):
        exact = min((n for n, at in times.items() if at >= wanted), default=40)
        found = reader.seek_time("0000", wanted)
        assert found <= exact
        skipped = {number // 5 * 5 for number in range(found, exact)}
        assert skipped <= set(damaged)


@pytest.mark.parametrize("max_bytes", [1, 2 * SIZE, 1 << 20])
def test_lines_are_the_bytes_of_the_same_records_that_read_gives(spool: Path, max_bytes: int) -> None:
    reader = SpoolReader(spool)
    before = open_files()
    for start in (10, 12, 38):
        chunk, stored = (
            reader.read("0000", start, 40, max_bytes=max_bytes),
            reader.lines("0000", start, 40, max_bytes=max_bytes),
        )
        assert stored.next_seq == chunk.next_seq
        assert stored.data.piece(0, len(stored.data)) == bytes(chunk.buffer)
    del chunk, stored
    assert open_files() == before


def test_lines_are_verified_and_have_the_errors_of_read(spool: Path) -> None:
    data, _ = files_of(lane_of(spool), 20)
    raw = bytearray(data.read_bytes())
    raw[2 * SIZE + 60] ^= 1
    data.write_bytes(raw)
    reader = SpoolReader(spool)
    with pytest.raises(SpoolCorruptError, match=r"record 22: .* does not match its checksum"):
        reader.lines("0000", 20, 25)
    with pytest.raises(RecordsExpiredError):
        reader.lines("0000", 9, 20)
    with pytest.raises(BeyondEndError):
        reader.lines("0000", 40, 41)
    data.unlink()
    with pytest.raises(SpoolCorruptError, match="is missing"):
        reader.lines("0000", 20, 25)
    data.mkdir()
    for call in (reader.read, reader.lines):
        with pytest.raises(SpoolCorruptError, match=r"record 20: .* is not a file"):
            call("0000", 20, 25)


def test_another_spool_than_asked_for_is_a_named_error(spool: Path) -> None:
    with pytest.raises(SpoolReplacedError, match="not some-other-id"):
        SpoolReader(spool, spool_id="some-other-id")


def test_a_folder_made_anew_under_a_reader_is_a_named_error_not_other_records(spool: Path) -> None:
    reader = SpoolReader(spool)
    shutil.rmtree(spool)
    with pytest.raises(SpoolNotFoundError):
        reader.offsets()
    with pytest.raises(SpoolNotFoundError):
        reader.read("0000", 10, 11)
    with LaneWriter.open(spool, settings()) as writer:
        writer.append(records(0, 20))
        for call in (
            reader.offsets,
            lambda: reader.read("0000", 10, 20),
            lambda: reader.read("0000", 30, 31),
            lambda: reader.read("0007", 0, 1),
            lambda: reader.index("0000", 10, 20),
            lambda: reader.seek_time("0000", 0),
        ):
            with pytest.raises(SpoolReplacedError, match=writer.spool_id):
                call()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("closed", ["spool", "spool.json", "lanes", "lanes/0000", "index", "data"])
def test_missing_permissions_are_a_named_error_with_path_and_remedy(spool: Path, closed: str) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from dspark_json.errors import SpoolPermissionError\nfrom dspark_json.spool.reader import SpoolReader\n"
        "os.setuid(65534)\n"
        "try:\n    r = SpoolReader(Path(sys.argv[1])); r.offsets(); r.read('0000', 35, 36)\n"
        "except SpoolPermissionError as error:\n    print(error)\n"
    )
    with open_to_all() as place:
        spool = Path(shutil.copytree(spool, place / "spool"))
        for path in [spool, *spool.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        data, index = files_of(lane_of(spool), 35)
        path = {"spool": spool, "index": index, "data": data}.get(closed, spool / closed)
        path.chmod(0)
        said = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, str(spool)],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(TESTS.parent)},
        ).stdout
    assert "DSPARK_JSON_SPOOL_PERMISSION" in said
    assert str(path) in said
    assert "vllm_api_key" in said


def test_a_chunk_outlives_its_file_and_leaves_no_descriptor(spool: Path) -> None:
    before = open_files()
    chunk = SpoolReader(spool).read("0000", 12, 15)
    shutil.rmtree(spool)
    assert bytes(chunk.buffer) == b"".join(expected_lines(12, 15).values())
    del chunk
    assert open_files() == before


def test_a_chunk_begins_anywhere_in_a_large_segment(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings(segment_bytes=1 << 22)) as writer:
        writer.append(records(0, 300, size=1_000))
    assert len(segments_of(tmp_path)) == 1
    reader = SpoolReader(tmp_path)
    for start in range(0, 300, 7):
        chunk = reader.read("0000", start, 300, max_bytes=5_000)
        assert bytes(chunk.buffer[: chunk.ends[0]]) == record(start, 1_000).line(start, "0000")


def test_readers_beside_a_writer_with_retention_see_only_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    problems: list[object] = []
    done = threading.Event()
    seen = [0]

    def check(holds: bool, what: object) -> None:
        if not holds:
            problems.append(what)
            done.set()

    def read() -> None:
        reader, seq = SpoolReader(folder), 0
        try:
            while not done.is_set():
                try:
                    chunk = reader.read("0000", seq, seq + 1_000)
                except RecordsExpiredError as error:
                    check(error.first > seq, error)
                    seq = error.first
                except BeyondEndError as error:
                    check(error.next == seq, error)
                else:
                    begin = 0
                    for offset, end in enumerate(chunk.ends):
                        number = seq + offset
                        check(chunk.buffer[begin:end] == record(number).line(number, "0000"), number)
                        begin = end
                    seq = chunk.next_seq
                    seen[0] += len(chunk)
                extent = reader.offsets().lanes["0000"]
                check(extent.first <= extent.next, extent)
        except DSparkJsonError as problem:
            problems.append(problem)

    with LaneWriter.open(folder, settings(segment_bytes=500, retention_bytes=4_000)) as writer:
        readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
        for thread in readers:
            thread.start()
        number = 0
        while number < 1_200:
            writer.append(records(number, number + number % 13 + 1))
            number = writer.next_seq
            writer.maintain()
        done.set()
        for thread in readers:
            thread.join()
    assert problems == []
    assert seen[0] > 0
