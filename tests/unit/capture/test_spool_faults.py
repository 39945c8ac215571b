"""Real file systems that fill up or become read-only, clocks that step, and servers that share a folder."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spool_support import PAGE, fill, small_disk
from unit.capture.driving import (
    Client,
    ReplayApp,
    answer_messages,
    ask,
    closing,
    counters,
    get,
    lines,
    make_hook,
    records,
)

from dspark_json.spool.layout import HEADER_BYTES, INDEX_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.hook import JsonOutputHook

TESTS = Path(__file__).parents[2]
MIB = 1 << 20
BODY = (
    b'{"id":"c","pad":"' + b"x" * 8_000 + b'","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
)
APP = ReplayApp(answer_messages([BODY]))


@pytest.fixture(name="small_disk")
def small_disk_for_a_test() -> Iterator[Path]:
    with small_disk() as place:
        yield place


def serve(hook: JsonOutputHook, times: int) -> None:
    async def run() -> None:
        for _ in range(times):
            assert (await ask(hook, Client())).body == BODY

    asyncio.run(run())


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def wait_for(condition: object, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_whole(folder: Path) -> bool:
    """Whether every record of a spool can be read, with numbers that are dense."""
    return [json.loads(line)["_dspark"]["seq"] for line in lines(folder)] == list(range(len(lines(folder))))


@pytest.mark.parametrize("durability", ["async", "write", "fsync"])
def test_a_disk_that_somebody_else_fills_costs_records_and_no_answer_until_it_has_room_again(
    small_disk: Path, durability: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = small_disk / "spool"
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY=durability)) as hook:
        serve(hook, 10)
        wait_for(lambda: counters(hook).get("records") == 10)
        filler = fill(small_disk)
        time.sleep(0.3)  # free space is looked at four times a second
        serve(hook, 5)
        wait_for(lambda: counters(hook).get("dropped_records") == 5)
        if durability != "async":
            assert counters(hook)["unrecorded_answers"] == 5
        assert is_whole(folder)
        filler.unlink()
        time.sleep(0.3)
        serve(hook, 5)
        wait_for(lambda: counters(hook).get("records") == 15)
    assert len(records(folder)) == 15
    assert is_whole(folder)
    assert "DROPPED: DSPARK_JSON_SPOOL_WRITE" in caplog.text
    assert counters(hook).get("hook_exceptions", 0) == 0


def test_a_disk_that_is_full_in_the_middle_of_a_write_leaves_no_half_record(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_disk / "spool"
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write", RETENTION_MB="64")) as hook:
        serve(hook, 1)
        writer = hook._appender._writer
        assert writer is not None
        writer._settings = type(writer._settings)(min_free_ratio=-1.0)  # up to the last byte
        serve(hook, 600)
        found = counters(hook)
        assert found["records"] + found["dropped_records"] == 601
        assert found["dropped_records"] == found["unrecorded_answers"] > 0
        assert is_whole(folder)
        assert len(records(folder)) == found["records"]
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write")) as again:
        serve(again, 1)  # the reserve of 10 % is not free: dropped, and nothing broken
    assert is_whole(folder)


@pytest.mark.parametrize("durability", ["async", "write", "fsync"])
def test_a_group_of_which_some_records_stay_counts_each_of_its_answers_once(
    small_disk: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark_json.capture.appender._MAINTAIN_SECONDS", 3600.0)  # which writes files too
    folder, body = small_disk / "spool", b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    stay = (PAGE - HEADER_BYTES) // INDEX_ENTRY.size  # in the first page of the index
    first = stay - 19

    async def asked(times: int) -> None:
        await asyncio.gather(*(ask(hook, Client()) for _ in range(times)))

    def run(times: int) -> None:
        asyncio.run(asked(times))
        wait_for(lambda: hook._appender.backlog.weight == 0)

    settings = {"DURABILITY": durability, "HOLD_MS": "10000", "RETENTION_MB": "64"}
    with closing(make_hook(ReplayApp(answer_messages([body])), folder, monkeypatch, **settings)) as hook:
        run(first)
        writer, append = hook._appender._writer, hook._appender._append
        assert writer is not None
        assert writer._segment is not None
        writer._settings = type(writer._settings)(min_free_ratio=-1.0)  # up to the last byte
        sizes = [len(line) for line in lines(folder)]
        times, pages = many_of_some_size(writer._segment.end, min(sizes) - 9, max(sizes) + 9)
        filler = fill(small_disk, but=pages)

        def slow(group: Any) -> int:
            time.sleep(0.2)  # all the others come meanwhile
            return append(group)

        monkeypatch.setattr(hook._appender, "_append", slow)
        run(times)
        filler.unlink()
        found = counters(hook)
        assert (found["records"], found["dropped_records"]) == (stay, first + times - stay)
        assert found["bytes"] == sum(map(len, lines(folder)))
        assert found["dropped_bytes"] == (first + times - stay) * len(body)
        assert found.get("unrecorded_answers", 0) == (0 if durability == "async" else first + times - stay)
        assert len(records(folder)) == stay
        run(5)
    assert counters(hook)["records"] == len(records(folder)) == stay + 5
    assert is_whole(folder)


def many_of_some_size(end: int, least: int, most: int) -> tuple[int, int]:
    """How many lines of about one size to put behind ``end``, so that it is certain how many pages they need."""
    for times in range(30, 100):
        ends = {-(-(end + times * size) // PAGE) for size in (least, most)}
        if len(ends) == 1:
            return times, ends.pop() - -(-end // PAGE)
    raise AssertionError((end, least, most))


def test_the_default_retention_keeps_the_spool_below_what_fills_a_small_disk(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_disk / "spool"
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write")) as hook:
        for _ in range(4):
            serve(hook, 100)
            time.sleep(1.1)  # retention runs each second
        assert counters(hook).get("dropped_records", 0) == 0
        assert counters(hook)["retention_deleted_records"] > 0
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2 * MIB


def test_a_disk_that_becomes_read_only_costs_records_and_no_answer_and_readers_read_on(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = small_disk / "spool"
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write", API_KEY="k")) as hook:
        serve(hook, 3)
    remount(small_disk, "ro")
    try:
        with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write", API_KEY="k")) as hook:
            serve(hook, 3)
            assert counters(hook)["dropped_records"] == 3
            assert "Read-only file system" in caplog.text
            assert "set DSPARK_SPOOL to one that can be written" in caplog.text
            offsets = json.loads(asyncio.run(get(hook, "/dspark/v1/offsets", key="k")).body)
            assert offsets["lanes"]["0000"]["next"] == 3
            remount(small_disk, "rw")
            wait_for(lambda: hook._appender._writer is not None, 40)
            serve(hook, 1)
    finally:
        remount(small_disk, "rw")
    assert len(records(folder)) == 4
    assert is_whole(folder)


def test_a_quota_of_files_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with (
        small_disk("size=64m,nr_inodes=5") as place,
        closing(make_hook(APP, place / "spool", monkeypatch, DURABILITY="write")) as hook,
    ):
        serve(hook, 2)
        assert counters(hook)["dropped_records"] == 2
    assert "No space left on device" in caplog.text


def test_times_never_go_down_when_the_clock_is_set_back_under_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspark_json.spool.reader import SpoolReader

    offset = [0]
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + offset[0])
    for step in (0, -3_600, 7_200, -80_000, 30):
        offset[0] += step * 1_000_000_000
        with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook:
            serve(hook, 2)
            offset[0] -= 5_000_000_000
            serve(hook, 2)
    index = SpoolReader(tmp_path).index("0000", 0, 20)
    assert len(index) == 20
    assert index.appended_at == sorted(index.appended_at)
    assert is_whole(tmp_path)


TWO = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
hook = JsonOutputHook(ReplayApp(answer_messages([{body!r}])))
async def run():
    for _ in range(200):
        await ask(hook, Client())
print("up", flush=True)
sys.stdin.readline()
asyncio.run(run())
found = hook._appender._writer.lane
hook._appender.close()
print(found)
"""


def test_servers_that_start_on_one_folder_at_once_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    code = TWO.format(tests=str(TESTS), body=BODY)
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path / "s"), "DSPARK_DURABILITY": "write"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    lanes = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert len(records(tmp_path / "s")) == 800
    found: dict[str, list[int]] = {}
    for record in records(tmp_path / "s"):
        found.setdefault(record["_dspark"]["lane"], []).append(record["_dspark"]["seq"])
    assert set(found) == set(lanes)
    assert all(seqs == list(range(len(seqs))) for seqs in found.values())
