"""Exchanges wait for the writer thread in their order, and each is kept once or told to be lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import (
    CHAT,
    Client,
    Message,
    ReplayApp,
    answer_messages,
    ask,
    close,
    closing,
    counters,
    make_hook,
    records,
    scope_for,
)

from dspark_json.capture.backlog import CLOSED, FULL, Backlog, Item
from dspark_json.capture.captured import Captured
from dspark_json.capture.making import RecordMaker

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "text/event-stream"
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}


def numbered(number: int) -> Message:
    return scope_for(headers=[(b"x-request-id", b"%d" % number)])


def kept(folder: Path) -> list[int]:
    return [int(found["_dspark"]["request_id"]) for found in records(folder)]


def test_records_are_made_and_written_by_a_thread_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, threads = RecordMaker.make, set()

    def noting(self: RecordMaker, group: Any) -> Any:
        threads.add(threading.current_thread().name)
        return make(self, group)

    monkeypatch.setattr(RecordMaker, "make", noting)
    apps = [ReplayApp(answer_messages([PLAIN])), ReplayApp(answer_messages([EVENT, DONE], content_type=STREAM))]
    for app in apps:
        with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
            asyncio.run(ask(hook, Client()))
    assert threads == {"dspark-json-writer"}
    assert len(records(tmp_path)) == 2


def test_a_schema_is_registered_once_however_it_is_written_and_each_use_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        for separators in ((",", ":"), (",", ":"), (", ", ": "), (", ", ": ")):
            await ask(hook, Client(json.dumps({"response_format": SCHEMA}, separators=separators).encode()))

    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch, DURABILITY="write")) as hook:
        asyncio.run(run())
        (use,) = hook._appender.schema_uses().values()
    assert use.requests == 4
    assert len({found["_dspark"]["schema"]["hash"] for found in records(tmp_path)}) == 1


def test_answers_keep_their_order_whoever_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [PLAIN, b'{"a":"' + b"x" * 40_000 + b'"}', PLAIN, b"no json", b'{"error":{}}', PLAIN]
    apps = [ReplayApp(answer_messages([body])) for body in bodies]
    apps.append(ReplayApp(answer_messages([*[EVENT] * 700, DONE], content_type=STREAM)))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[int(dict(scope["headers"])[b"x-request-id"]) % len(apps)](scope, receive, send)

    async def run() -> None:
        for number in range(200):
            await ask(hook, Client(), numbered(number))
            if number % 10 == 0:
                await asyncio.sleep(0)

    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    assert kept(tmp_path) == list(range(200))


def test_what_a_closed_event_loop_left_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(number: int) -> None:
        await ask(hook, Client(), numbered(number))

    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)) as hook:
        for number in range(5):
            asyncio.run(run(number))
        deadline = time.monotonic() + 10
        while counters(hook).get("records") != 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert kept(tmp_path) == list(range(5))


def test_a_server_on_another_kind_of_loop_is_captured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)
    with closing(hook), pytest.raises(StopIteration):
        ask(hook, Client(), numbered(7)).send(None)  # type: ignore[attr-defined]
    assert kept(tmp_path) == [7]


def exchange(number: int) -> Item:
    return Item(Captured(CHAT, [], number), 10, None)


def test_a_closed_backlog_takes_nothing_more_and_gives_what_it_has() -> None:
    backlog = Backlog(1 << 20)
    taken, refused = [], []
    began = threading.Barrier(2)

    def put() -> None:
        began.wait()
        for number in range(20_000):
            (refused if backlog.put(exchange(number)) else taken).append(number)

    putting = threading.Thread(target=put)
    putting.start()
    began.wait()
    while not taken:
        time.sleep(0)
    backlog.close()
    found = []
    while not backlog.is_empty:
        found += backlog.take(100, 1 << 20)
    putting.join()
    assert backlog.put(exchange(0)) == CLOSED
    assert [item.captured.received_at for item in found] == taken
    assert taken + refused == list(range(20_000))


def test_a_full_backlog_has_room_again_once_something_is_written() -> None:
    backlog = Backlog(25)
    assert [backlog.put(exchange(number)) for number in range(3)] == [None, None, FULL]
    group = backlog.take(1, 1_000)
    assert backlog.put(exchange(2)) == FULL, "taken is not written"
    backlog.done(group)
    assert backlog.put(exchange(2)) is None


def test_something_always_fits_where_nothing_is_there() -> None:
    backlog = Backlog(5)
    assert [backlog.put(exchange(number)) for number in range(2)] == [None, FULL]


def test_a_group_is_so_many_exchanges_or_so_many_bytes() -> None:
    backlog = Backlog(1 << 20)
    for number in range(10):
        backlog.put(exchange(number))
    assert [len(backlog.take(3, 1_000)), len(backlog.take(10, 15)), len(backlog.take(10, 1_000))] == [3, 2, 5]


def test_what_comes_just_before_the_close_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)
    take, closers = Backlog.take, []

    def late(self: Backlog, records: int, weight: int) -> list[Item]:
        taken = take(self, records, weight)
        if not closers and kept(tmp_path) and not taken:  # found empty; the thread has not looked whether it is to end
            closers.append(threading.Thread(target=close, args=(hook,)))
            asyncio.run(ask(hook, Client(), numbered(1)))
            closers[0].start()
            while not hook._appender.closed:
                time.sleep(0.001)
        return taken

    monkeypatch.setattr(Backlog, "take", late)
    with closing(hook):
        asyncio.run(ask(hook, Client(), numbered(0)))
        deadline = time.monotonic() + 10
        while not closers:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        closers[0].join()
    assert kept(tmp_path) == [0, 1]


class Panic(BaseException):
    """As a panic of native code is one."""


def test_a_panic_costs_only_its_group_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, panics = RecordMaker.make, [Panic()]

    def panicking(self: RecordMaker, group: Any) -> Any:
        if panics:
            raise panics.pop()
        return make(self, group)

    monkeypatch.setattr(RecordMaker, "make", panicking)
    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch, DURABILITY="write")) as hook:
        for number in range(2):
            asyncio.run(ask(hook, Client(), numbered(number)))
        found = counters(hook)
    assert kept(tmp_path) == [1]
    assert (found["dropped_records"], found["hook_exceptions"]) == (1, 1)
