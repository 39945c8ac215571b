"""What doctor says of answers that were lost: never that there are none where it can't know."""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from serving import elsewhere, hook, serving
from spool_support import records, small_disk
from unit.capture.driving import Client, ReplayApp, answer_messages, ask, closing, counters, make_hook

from dspark_json.doctor.losses import check_counts
from dspark_json.doctor.server import check_endpoint, check_local_folder
from dspark_json.doctor.spool import check_space
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dspark_json.doctor.check import Check

KEY = "the-hooks-key"
BODY = b'{"id":"c","pad":"' + b"x" * 8_000 + b'","choices":[]}'


def losses(checks: list[Check]) -> Check:
    (found,) = [check for check in checks if check.name == "spool_losses"]
    return found


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk("size=4m,nr_inodes=60") as place:
        yield place


def test_counters_that_a_living_server_could_not_write_are_a_warning_with_their_age(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path) as writer:
        writer.append(records(0, 7))
        writer.maintain()
        assert (check_counts(tmp_path).verdict, check_counts(tmp_path).evidence) == ("ok", "none in 7 record(s)")
        age(tmp_path / "lanes/0000/stats.json", 300)
        assert check_counts(tmp_path).verdict == "ok", "the server has just begun"
        age(tmp_path / "lanes/0000/lock", 1000)
        found = check_counts(tmp_path)
    assert found.verdict == "warn"
    assert re.search(r"the counters of lane 0000 are 30\d s old, though a server writes it", found.evidence)
    assert "dspark-json doctor http://" in found.remedy


def test_a_living_servers_counters_that_were_never_written_are_a_warning_but_not_in_its_first_seconds(
    tmp_path: Path,
) -> None:
    with LaneWriter.open(tmp_path) as writer:
        writer.append(records(0, 7))
        assert check_counts(tmp_path).verdict == "ok"
        age(tmp_path / "lanes/0000/lock", 300)
        found = check_counts(tmp_path)
    assert found.verdict == "warn"
    assert "lane 0000" in found.evidence


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0\0"])
def test_counters_that_can_not_be_read_are_a_warning(tmp_path: Path, text: str) -> None:
    with LaneWriter.open(tmp_path) as writer:
        writer.append(records(0, 7))
    (tmp_path / "lanes/0000/stats.json").write_text(text)
    found = check_counts(tmp_path)
    assert found.verdict == "warn"
    assert "the counters of lane 0000 can't be read" in found.evidence


def test_of_a_folder_without_a_server_it_says_as_of_when_there_are_none(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path) as writer:
        writer.append(records(0, 7))
    age(tmp_path / "lanes/0000/stats.json", 86_400)
    found = check_counts(tmp_path)
    assert found.verdict == "ok"
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 86_400))
    assert re.fullmatch(rf"none in 7 record\(s\) as of {day} \d\d:\d\d:\d\d; no server writes it now", found.evidence)


def test_on_a_full_disk_it_does_not_say_that_nothing_is_lost(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = disk / "spool"
    monkeypatch.setattr("dspark_json.doctor.losses._STALE_S", 2.0)

    def serve(times: int) -> None:
        async def run() -> None:
            for _ in range(times):
                await ask(hooked, Client())

        asyncio.run(run())

    app = ReplayApp(answer_messages([BODY]))
    with closing(make_hook(app, folder, monkeypatch, DURABILITY="write", RETENTION_MB="64")) as hooked:
        serve(3)
        time.sleep(1.2)
        blocks = 0
        with (disk / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    blocks += filler.write(b"x" * 4096)
            except OSError:
                assert blocks
        serve(5)
        assert counters(hooked)["dropped_records"] == 5
        time.sleep(3)
        found = {check.name: check for check in check_local_folder(folder)}
    assert found["spool_space"].verdict == "fail"
    assert found["spool_losses"].verdict == "warn"
    assert "see its log and the space that is left" in found["spool_losses"].remedy


def test_a_file_system_that_can_take_no_more_files_fails(disk: Path) -> None:
    assert check_space(disk).verdict == "ok"
    try:
        for number in range(100):
            (disk / str(number)).touch()
    except OSError:
        pass
    found = check_space(disk)
    assert found.verdict == "fail"
    assert "no file" in found.evidence


@pytest.mark.parametrize("far", [False, True])
def test_a_server_is_asked_for_its_counters_itself(tmp_path: Path, far: bool) -> None:
    app = hook(tmp_path, KEY)
    with serving(elsewhere(app) if far else app) as address:
        assert losses(check_endpoint(address, KEY, 5)).evidence == "none in 0 record(s)"
        app._appender.count("dropped_records", 3)  # which no stats.json tells yet
        found = losses(check_endpoint(address, KEY, 5))
    assert (found.verdict, found.evidence) == ("warn", "dropped_records 3")
