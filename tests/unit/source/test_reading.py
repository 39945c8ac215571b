"""Reading splits where something is wrong with what they name."""

from __future__ import annotations

import logging
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as with_
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from serving import elsewhere, free_port, hook, serving
from unit.source.spools import expire, replace, write

from dspark_json.errors import (
    DataLossError,
    EndpointKeyError,
    EndpointUnreachableError,
    SpoolCorruptError,
    SpoolElsewhereError,
    SpoolNotFoundError,
)
from dspark_json.source.reading import read_split
from dspark_json.source.splits import Split
from dspark_json.spool.reader import Chunk, SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "s3cret-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def reading(split: Split, *, fail: bool = True, key: str | None = None) -> Iterator[Chunk]:
    return read_split(split, key=key, timeout_s=5.0, fail_on_data_loss=fail)


def numbers(split: Split, *, fail: bool = True, key: str | None = None) -> list[int]:
    chunks = reading(split, fail=fail, key=key)
    return [seq for chunk in chunks for seq in range(chunk.first_seq, chunk.next_seq)]


def damage(folder: Path, seq: int) -> None:
    """Flip a bit in the middle of one record."""
    data = [p for p in sorted((folder / "lanes" / "0000").glob("*.ndjson")) if int(p.stem) <= seq][-1]
    first = int(data.stem)
    ends = SpoolReader(folder).index("0000", first, seq + 1).ends
    raw = bytearray(data.read_bytes())
    raw[ends[-1] - 10] ^= 1
    data.write_bytes(raw)


def lose_a_middle_segment(folder: Path) -> range:
    stems = sorted(p.stem for p in (folder / "lanes" / "0000").glob("*.index"))
    for suffix in (".index", ".ndjson"):
        (folder / "lanes" / "0000" / f"{stems[1]}{suffix}").unlink()
    return range(int(stems[1]), int(stems[2]))


def test_a_range_is_read_whole_and_in_order(folder: Path) -> None:
    spool_id = write(folder, 40)
    assert numbers(Split(spool_id, "0000", 3, 37, str(folder))) == list(range(3, 37))


def test_a_damaged_record_fails_the_read_or_is_skipped_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool_id = write(folder, 40)
    damage(folder, 11)
    split = Split(spool_id, "0000", 0, 40, str(folder))
    with pytest.raises(SpoolCorruptError, match="11"):
        numbers(split)
    with caplog.at_level(logging.WARNING):
        assert numbers(split, fail=False) == [i for i in range(40) if i != 11]
    assert "lost_records 1," in caplog.text


def test_a_missing_segment_fails_the_read_or_is_skipped_alone(folder: Path) -> None:
    spool_id = write(folder, 40)
    gone = lose_a_middle_segment(folder)
    split = Split(spool_id, "0000", 0, 40, str(folder))
    with pytest.raises(SpoolCorruptError):
        numbers(split)
    assert numbers(split, fail=False) == [i for i in range(40) if i not in gone]


def spoil_header(folder: Path, stem: str) -> None:
    index = folder / "lanes" / "0000" / f"{stem}.index"
    index.write_bytes(b"x" + index.read_bytes()[1:])


def spoil_time(folder: Path, seq: int) -> None:
    """Make the time of one record of the first segment one that can't be true."""
    index = folder / "lanes" / "0000" / f"{0:020d}.index"
    raw = bytearray(index.read_bytes())
    raw[32 + 24 * seq + 15] = 0x80
    index.write_bytes(raw)


@pytest.mark.parametrize("way", ["folder", "http"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_with_a_damaged_header_fails_the_read_or_is_skipped_alone(
    folder: Path, caplog: pytest.LogCaptureFixture, which: int, way: str
) -> None:
    spool_id = write(folder, 40)
    stems = sorted(p.stem for p in (folder / "lanes" / "0000").glob("*.index"))
    first = int(stems[which])
    gone = range(first, min((int(stem) for stem in stems if int(stem) > first), default=40))
    spoil_header(folder, stems[which])
    with serving(elsewhere(hook(folder, KEY))) as address:
        split = Split(spool_id, "0000", 0, 40, address, str(folder) if way == "folder" else None)
        with pytest.raises(SpoolCorruptError, match=rf"record {first}.*not an index of format 1"):
            numbers(split, key=KEY)
        with caplog.at_level(logging.WARNING):
            assert numbers(split, fail=False, key=KEY) == [i for i in range(40) if i not in gone]
    assert f"lost_records {len(gone)}," in caplog.text


@pytest.mark.parametrize("way", ["folder", "http"])
def test_a_record_whose_time_can_not_be_true_fails_the_read_or_is_skipped_alone(folder: Path, way: str) -> None:
    spool_id = write(folder, 40)
    spoil_time(folder, 2)
    with serving(elsewhere(hook(folder, KEY))) as address:
        split = Split(spool_id, "0000", 0, 40, address, str(folder) if way == "folder" else None)
        with pytest.raises(SpoolCorruptError, match=rf"{spool_id}.*record 2|record 2 .*{spool_id}"):
            numbers(split, key=KEY)
        assert numbers(split, fail=False, key=KEY) == [i for i in range(40) if i != 2]


def test_damage_up_to_the_end_of_the_split_ends_it(folder: Path) -> None:
    spool_id = write(folder, 40)
    damage(folder, 10)
    damage(folder, 11)
    assert numbers(Split(spool_id, "0000", 8, 12, str(folder)), fail=False) == [8, 9]


def test_a_spool_replaced_after_planning_is_data_loss(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    split = Split(write(folder, 5), "0000", 0, 5, str(folder))
    replace(folder, 9)
    with pytest.raises(DataLossError, match="records 0 to 4"):
        numbers(split)
    with caplog.at_level(logging.WARNING):
        assert numbers(split, fail=False) == []
    assert "lost_records 5" in caplog.text


def test_a_range_beyond_the_end_is_data_loss(folder: Path) -> None:
    split = Split(write(folder, 5), "0000", 0, 9, str(folder))
    with pytest.raises(DataLossError, match="records 5 to 8"):
        numbers(split)
    assert numbers(split, fail=False) == [0, 1, 2, 3, 4]


def test_an_expired_range_is_skipped_up_to_what_is_kept(folder: Path) -> None:
    split = Split(write(folder, 30), "0000", 0, 30, str(folder))
    first = expire(folder)
    assert numbers(split, fail=False) == list(range(first, 30))
    assert numbers(Split(split.spool_id, "0000", 0, 3, str(folder)), fail=False) == []


def test_a_folder_that_is_gone_is_a_named_error(folder: Path) -> None:
    split = Split(write(folder, 5), "0000", 0, 5, str(folder))
    shutil.rmtree(folder)
    with pytest.raises(SpoolNotFoundError, match=str(folder)):
        numbers(split, fail=False)


def test_a_folder_that_goes_away_while_it_is_read_is_followed_by_http(folder: Path, tmp_path: Path) -> None:
    spool_id = write(folder, 30)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with serving(elsewhere(hook(folder, KEY))) as address:
        chunks = reading(Split(spool_id, "0000", 0, 30, address, str(copy)), key=KEY)
        first = next(chunks)
        shutil.rmtree(copy)
        assert [first.next_seq, *(c.next_seq for c in chunks)][-1] == 30


def test_without_folder_and_key_the_error_says_what_to_do(folder: Path) -> None:
    spool_id = write(folder, 3)
    with serving(hook(folder, KEY)) as address, pytest.raises(EndpointKeyError, match="vllm_api_key") as caught:
        numbers(Split(spool_id, "0000", 0, 3, address, str(folder / "elsewhere")))
    assert str(folder / "elsewhere") in str(caught.value)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("left", ["another spool", "nothing"])
def test_without_a_key_a_server_that_has_another_spool_now_is_data_loss(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str, *, known: bool
) -> None:
    spool_id = write(folder, 5)
    shutil.rmtree(folder)
    if left == "another spool":
        write(folder, 1)
    with serving(hook(folder if left == "another spool" else tmp_path / "elsewhere")) as address:
        split = Split(spool_id, "0000", 0, 5, address, str(folder) if known else None)
        with pytest.raises(DataLossError, match=r"records 0 to 4.*has spool"):
            numbers(split)
        with caplog.at_level(logging.WARNING):
            assert numbers(split, fail=False) == []
    assert "lost_records 5" in caplog.text


def test_without_a_key_a_default_folder_made_anew_is_data_loss_also_while_the_server_is_down(folder: Path) -> None:
    port = free_port()
    place = Path(f"/dev/shm/dspark_vllm_{port}")
    try:
        spool_id = write(place, 5)
        replace(place, 2)
        split = Split(spool_id, "0000", 0, 5, f"http://127.0.0.1:{port}")
        with pytest.raises(DataLossError, match=str(place)):
            numbers(split)
        assert numbers(split, fail=False) == []
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_without_a_key_a_default_folder_of_another_server_is_no_loss(folder: Path) -> None:
    port = free_port()
    place = Path(f"/dev/shm/dspark_vllm_{port}")
    try:
        write(place, 2)
        with serving(hook(folder), port) as address, pytest.raises(EndpointKeyError, match="vllm_api_key"):
            numbers(Split(write(folder, 3), "0000", 0, 3, address), fail=False)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_a_folder_replaced_while_it_is_read_without_a_key_is_data_loss(folder: Path) -> None:
    spool_id = write(folder, 30)
    with serving(hook(folder)) as address:
        split = Split(spool_id, "0000", 0, 30, address, str(folder))
        chunks = reading(split, fail=False)
        first = next(chunks)
        shutil.rmtree(folder)
        replaced = write(folder, 2)
        assert replaced != spool_id
        assert list(chunks) == []
        assert first.next_seq < 30


def test_without_folder_key_and_server_the_error_names_both_ways(folder: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EndpointUnreachableError, match=f"{address}.*does not answer") as caught:
        numbers(Split("id", "0000", 0, 3, address, str(folder)), fail=False)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("fail", [True, False])
def test_on_another_machine_another_folder_or_localhost_is_an_error_and_no_loss(
    folder: Path, tmp_path: Path, fail: bool
) -> None:
    write(folder, 3)
    planned = Split("another-spool", "0000", 0, 3, str(folder), planned_on="driver boot")
    with pytest.raises(SpoolElsewhereError, match=f"{folder}.*driver"):
        numbers(planned, fail=fail)
    with pytest.raises(SpoolElsewhereError):
        numbers(with_(planned, endpoint=str(tmp_path / "none")), fail=fail)
    with serving(elsewhere(hook(folder, KEY))) as address, pytest.raises(SpoolElsewhereError, match="vllm_endpoint"):
        numbers(with_(planned, endpoint=address), fail=fail, key=KEY)


def test_the_machine_is_of_no_matter_where_the_records_are_found(folder: Path) -> None:
    spool_id = write(folder, 3)
    assert numbers(Split(spool_id, "0000", 0, 3, str(folder), planned_on="driver boot")) == [0, 1, 2]


def test_a_server_that_is_gone_is_asked_as_long_as_an_answer_may_take_and_then_named() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EndpointUnreachableError, match=f"{address}.*asked 4 times"):
        list(read_split(Split("id", "0000", 0, 3, address), key=KEY, timeout_s=2.0, fail_on_data_loss=True))


def test_a_server_that_comes_back_in_that_time_is_read_on(folder: Path) -> None:
    spool_id, port = write(folder, 5), free_port()
    split = Split(spool_id, "0000", 0, 5, f"http://127.0.0.1:{port}")
    with ThreadPoolExecutor() as pool:
        read = pool.submit(numbers, split, key=KEY)
        time.sleep(1.2)
        assert not read.done()
        with serving(hook(folder, KEY), port):
            assert read.result(30) == list(range(5))
