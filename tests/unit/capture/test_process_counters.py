"""The counters of a server's process never go back while it lives, whatever becomes of its spool's folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from typing import TYPE_CHECKING

from spool_support import SMALL
from spool_support import records as some_records
from unit.capture.driving import (
    Client,
    ask,
    closing,
    counters,
    get,
    make_hook,
    plain_app,
    records,
    serve,
    wait_for,
)

from dspark_json.capture.appender import Appender
from dspark_json.capture.settings import HookSettings
from dspark_json.spool.stats import load_counters, sum_counters
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    import pytest

    from dspark_json.capture.hook import JsonOutputHook

APP = plain_app()


@contextlib.contextmanager
def watched(hook: JsonOutputHook) -> Iterator[list[str]]:
    """Look at the counters all the time; gives each one that went back."""
    fell: list[str] = []
    over = threading.Event()

    def look() -> None:
        last: dict[str, int] = {}
        while not over.wait(0.002):
            now = counters(hook)
            fell.extend(
                f"{name}: {value} → {now.get(name)}" for name, value in last.items() if now.get(name, 0) < value
            )
            last = now

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield fell
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def counting_hook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonOutputHook]:
    """A hook that has kept three answers and lost seven."""
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write")) as hook:
        serve(hook, 3)
        hook._appender.count("dropped_records", 7)
        yield hook


def in_lifespan(hook: JsonOutputHook, what: Callable[[], Awaitable[None]]) -> None:
    """Start the server, do something and end it, as an ASGI server does."""

    async def run() -> None:
        told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        serving = asyncio.create_task(hook({"type": "lifespan"}, told.get, said.put))  # type: ignore[arg-type]
        await told.put({"type": "lifespan.startup"})
        assert (await said.get())["type"] == "lifespan.startup.complete"
        await what()
        await told.put({"type": "lifespan.shutdown"})
        assert (await said.get())["type"] == "lifespan.shutdown.complete"
        await serving

    asyncio.run(run())


def spool_is_new(folder: Path, before: str) -> bool:
    try:
        return bool(json.loads((folder / "spool.json").read_text())["spool_id"] != before)
    except (OSError, ValueError):
        return False


def test_they_go_on_where_the_folder_is_removed_and_are_in_the_stats_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    with counting_hook(folder, monkeypatch) as hook:
        before = json.loads((folder / "spool.json").read_text())["spool_id"]
        with watched(hook) as fell:
            shutil.rmtree(folder)
            serve(hook)
            wait_for(lambda: spool_is_new(folder, before) and hook._appender._writer is not None)
            serve(hook)
            wait_for(lambda: sum_counters(folder) == counters(hook))
        assert fell == []
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (5, 7)
        text = asyncio.run(get(hook, "/dspark/metrics")).body.decode()
        assert "\ndspark_dropped_records_total 7\n" in text
        assert len(records(folder)) <= 2
    assert sum_counters(folder)["dropped_records"] == 7
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write")) as hook:
        serve(hook)
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (6, 7)


def test_they_go_on_while_no_folder_can_be_made_and_count_once_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "spool"
    with counting_hook(folder, monkeypatch) as hook, watched(hook) as fell:
        folder.rename(tmp_path / "moved")
        folder.write_text("a file in its place")
        wait_for(lambda: hook._appender._writer is None)
        serve(hook, 2)
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (3, 9)
        folder.unlink()
        wait_for(lambda: hook._appender._writer is not None)
        serve(hook)
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (4, 9)
    assert fell == []


def test_they_count_once_where_only_the_segments_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting_hook(tmp_path, monkeypatch) as hook, watched(hook) as fell:
        lane = tmp_path / "lanes/0000"
        wait_for(lambda: load_counters(lane).get("dropped_records") == 7)
        first = hook._appender._writer
        for path in (*lane.glob("*.index"), *lane.glob("*.ndjson")):
            path.unlink()
        wait_for(lambda: hook._appender._writer not in {first, None})
        serve(hook)
        wait_for(lambda: sum_counters(tmp_path) == counters(hook))
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (4, 7)
    assert fell == []


def test_what_lanes_without_a_writer_had_stays_and_counts_once_when_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LaneWriter.open(tmp_path, SMALL) as one, LaneWriter.open(tmp_path, SMALL) as other:
        for writer in (one, other):
            writer.append(some_records(0, 2))
            writer.counters.add("dropped_records", 10)
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook, watched(hook) as fell:
        serve(hook)
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (5, 20)
        shutil.rmtree(tmp_path / "lanes/0001")
        assert counters(hook)["dropped_records"] == 20
        hook._appender.count("dropped_records")
        assert counters(hook)["dropped_records"] == 21, "what was lost since is told all the same"
        shutil.rmtree(tmp_path / "lanes")
        serve(hook)
        wait_for((tmp_path / "lanes/0000/stats.json").exists)
        assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (6, 21)
    assert fell == []


def test_they_go_on_in_a_second_start_of_the_same_server_whatever_its_files_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        await ask(hook, Client())
        hook._appender.count("dropped_records", 7)

    hook = make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")
    in_lifespan(hook, run)
    assert load_counters(tmp_path / "lanes/0000").get("dropped_records") == 7
    (tmp_path / "lanes/0000/stats.json").write_text('{"dropped_records":2}')  # as a full disk leaves it
    assert counters(hook)["dropped_records"] == 7
    in_lifespan(hook, run)
    assert (counters(hook)["records"], counters(hook)["dropped_records"]) == (2, 14)
    assert load_counters(tmp_path / "lanes/0000").get("dropped_records") == 14


def test_another_lane_that_is_taken_next_counts_once(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, SMALL) as one, LaneWriter.open(tmp_path, SMALL) as other:
        other.counters.add("dropped_records", 10)
        one.counters.add("dropped_records", 100)
    appender = Appender(HookSettings.from_environment({}), lambda _: None)
    appender.start(tmp_path)
    try:
        assert appender.wait_until_opened(10)
        assert appender.counters()["dropped_records"] == 110
        shutil.rmtree(tmp_path / "lanes/0000")
        (tmp_path / "lanes/0000").touch()  # so that it can't have its own again
        wait_for(lambda: appender._writer is not None and appender._writer.lane == "0001")
        assert appender.counters()["dropped_records"] == 110
    finally:
        appender.close()
    assert load_counters(tmp_path / "lanes/0001").get("dropped_records") == 110
