"""Records are made on the event loop in short turns, else by the writer thread, always in their order."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import (
    Client,
    Message,
    ReplayApp,
    answer_messages,
    ask,
    closing,
    counters,
    make_hook,
    records,
    scope_for,
)

from dspark_json.capture import making, recording
from dspark_json.capture.pacing import Deadline, OutOfTimeError

if TYPE_CHECKING:
    from pathlib import Path

    from dspark_json.capture.hook import JsonOutputHook

STREAM = "text/event-stream"
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}


def makers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that made records, as they did."""
    make, seen = recording.make_recording, []

    def noting(*arguments: Any, **more: Any) -> Any:
        made = make(*arguments, **more)
        seen.append(threading.current_thread().name)
        return made

    monkeypatch.setattr(making, "make_recording", noting)
    return seen


def numbered(number: int) -> Message:
    return scope_for(headers=[(b"x-request-id", b"%d" % number)])


def kept(folder: Path) -> list[int]:
    return [int(found["_dspark"]["request_id"]) for found in records(folder)]


async def turns(hook: JsonOutputHook) -> int:
    """Let the event loop turn until the hook has nothing to do there; how many turns it took."""
    before = hook._appender.backlog._turns
    while hook._appender.backlog._unmade:  # noqa: ASYNC110 - its turns are what is waited for
        await asyncio.sleep(0)
    return hook._appender.backlog._turns - before


def test_quick_answers_are_made_on_the_event_loop_and_all_others_in_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        "plain": (answer_messages([PLAIN]), b"{}", "MainThread"),
        "stream": (answer_messages([EVENT, DONE], content_type=STREAM), b"{}", "MainThread"),
        "large": (answer_messages([b'{"a":"' + b"x" * 40_000 + b'"}']), b"{}", "dspark-json-writer"),
        "asked at length": (answer_messages([PLAIN]), b'{"a":"' + b"x" * 40_000 + b'"}', "dspark-json-writer"),
        "long stream": (answer_messages([EVENT] * 5_000, content_type=STREAM), b"{}", "dspark-json-writer"),
        "error": (answer_messages([PLAIN], status=400), b"{}", "dspark-json-writer"),
    }
    app = ReplayApp([])

    async def run() -> None:
        for messages, request, _ in cases.values():
            app.messages = messages
            await ask(hook, Client(request))
            await turns(hook)

    seen = makers(monkeypatch)
    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        asyncio.run(run())
    assert dict(zip(cases, seen, strict=True)) == {name: thread for name, (*_, thread) in cases.items()}


def test_a_schema_is_registered_in_the_thread_and_then_known_to_the_loop_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        for separators in ((",", ":"), (",", ":"), (", ", ": "), (", ", ": ")):
            await ask(hook, Client(json.dumps({"response_format": SCHEMA}, separators=separators).encode()))
            await turns(hook)

    seen = makers(monkeypatch)
    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch, DURABILITY="write")) as hook:
        asyncio.run(run())
        (use,) = hook._appender.schema_uses().values()
    assert seen == ["dspark-json-writer", "MainThread", "MainThread", "MainThread"]
    assert use.requests == 4
    assert len({found["_dspark"]["schema"]["hash"] for found in records(tmp_path)}) == 1


def test_work_that_takes_too_long_is_left_to_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(self: Deadline) -> None:
        raise OutOfTimeError

    async def run() -> None:
        await ask(hook, Client())
        await turns(hook)

    seen = makers(monkeypatch)
    monkeypatch.setattr(Deadline, "tick", give_up)
    echo = answer_messages([b'{"choices":[{"finish_reason":"stop","prompt_token_ids":[1,2]}]}'])
    with closing(make_hook(ReplayApp(echo), tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    assert seen == ["dspark-json-writer"]
    assert counters(hook).get("hook_exceptions", 0) == 0
    assert records(tmp_path)[0]["choices"][0]["prompt_token_ids"] is None


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


def test_a_long_stream_leaves_the_event_loop_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ReplayApp(answer_messages([*[EVENT] * 3_000, DONE], content_type=STREAM))

    async def run() -> int:
        await ask(hook, Client())
        return await turns(hook)

    monkeypatch.setattr("dspark_json.capture.backlog._TURN_SECONDS", 0.0)
    monkeypatch.setattr("dspark_json.capture.backlog._SHARE", 0.0)
    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        assert asyncio.run(run()) >= 12, "a turn for each slice of 12 KiB"
    assert len(records(tmp_path)[0]["choices"][0]["message"]["content"]) == 3_000


def test_what_a_closed_event_loop_left_is_made_by_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(number: int) -> None:
        await ask(hook, Client(), numbered(number))

    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)) as hook:
        for number in range(5):
            asyncio.run(run(number))  # a loop that ends before the hook has its turn
        deadline = time.monotonic() + 10
        while counters(hook).get("records") != 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert kept(tmp_path) == list(range(5))


def test_what_is_taken_over_in_the_middle_of_a_stream_is_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp(answer_messages([*[EVENT] * 3_000, DONE], content_type=STREAM))

    async def run() -> None:
        for number in range(3):
            await ask(hook, Client(), numbered(number))
        await asyncio.sleep(0)
        assert backlog._at_work is not None
        backlog.take_over()
        await asyncio.sleep(0)
        await ask(hook, Client(), numbered(3))
        await turns(hook)

    monkeypatch.setattr("dspark_json.capture.backlog._TURN_SECONDS", 0.0)
    monkeypatch.setattr("dspark_json.capture.backlog._SHARE", 0.0)
    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        backlog = hook._appender.backlog
        backlog._gather = 0
        asyncio.run(run())
    assert kept(tmp_path) == list(range(4))
    assert backlog.weight == 0


def test_a_server_on_another_kind_of_loop_is_captured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)
    with closing(hook), pytest.raises(StopIteration):
        ask(hook, Client(), numbered(7)).send(None)  # type: ignore[attr-defined]
    assert kept(tmp_path) == [7]
