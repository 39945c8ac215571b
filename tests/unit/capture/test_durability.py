"""``write`` and ``fsync`` hold the message that completes an answer until its record is kept (DESIGN §2 rule 7)."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import (
    CHAT,
    RESPONSES,
    Client,
    Message,
    ReplayApp,
    answer_messages,
    ask,
    closing,
    counters,
    event,
    make_hook,
    records,
    scope_for,
)

from dspark_json.capture.hold import TURNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dspark_json.capture.hook import JsonOutputHook

STREAM = "text/event-stream"
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
DELTA = event("response.output_text.delta", delta="x")
LAST = event("response.completed", response={"id": "r", "status": "completed"}, sequence_number=1)
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'


def with_length(messages: list[Message], length: int) -> list[Message]:
    messages[0]["headers"].append((b"Content-Length", b"%d" % length))
    return messages


def records_seen_at_each_message(hook: JsonOutputHook, folder: Path, path: str = CHAT) -> list[int]:
    """How many records the spool had as each message went to the client."""
    seen: list[int] = []

    async def look(_: Message) -> None:
        seen.append(len(records(folder)) if (folder / "spool.json").exists() else 0)

    async def run() -> None:
        await ask(hook, Client(on_send=look), scope_for(path))

    asyncio.run(run())
    return seen


def _path(messages: list[Message]) -> str:
    return RESPONSES if any(b"response." in message.get("body", b"") for message in messages) else CHAT


CASES: dict[str, tuple[list[Message], int]] = {
    "the message with [DONE]": (answer_messages([EVENT, EVENT, DONE], content_type=STREAM), 3),
    "the event and [DONE] in one": (answer_messages([EVENT, EVENT + DONE], content_type=STREAM), 2),
    "the rest of a [DONE] that was cut": (
        answer_messages([EVENT, b"data: [DO", b"NE]\n", b"\n"], content_type=STREAM),
        3,
    ),
    "the last message of a stream without [DONE]": (answer_messages([EVENT, EVENT], content_type=STREAM), 3),
    "not [DONE] inside a string": (
        answer_messages([b'data: {"x":"\\ndata: [DONE]\\n"}\n\n', DONE], content_type=STREAM),
        2,
    ),
    "the last event of a response": (answer_messages([DELTA, LAST], content_type=STREAM), 2),
    "the rest of a last event that was cut": (
        answer_messages([DELTA, LAST[:20], LAST[20:-1], b"\n", b": bye\n\n"], content_type=STREAM),
        4,
    ),
    "not the name of a last event inside a string": (
        answer_messages([event("response.x", delta="\nevent: response.completed\n\n"), LAST], content_type=STREAM),
        2,
    ),
    "the last message of a response without a last event": (answer_messages([DELTA], content_type=STREAM), 2),
    "the only message of an answer": (answer_messages([PLAIN]), 1),
    "the bytes that meet Content-Length": (
        with_length(
            [*answer_messages([PLAIN[:9], PLAIN[9:]], end=False), {"type": "http.response.body", "more_body": False}],
            len(PLAIN),
        ),
        2,
    ),
    "the last message where there is no Content-Length": (answer_messages([PLAIN[:9], PLAIN[9:], b""]), 3),
    "the last message where Content-Length is no number": (
        [
            {**answer_messages([PLAIN])[0], "headers": [(b"content-length", b"x")]},
            *answer_messages([PLAIN[:9], PLAIN[9:]])[1:],
        ],
        2,
    ),
}


@pytest.mark.parametrize("durability", ["write", "fsync"])
@pytest.mark.parametrize("case", list(CASES))
def test_exactly_the_completing_message_and_later_ones_wait_for_the_record(
    case: str, durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, held = CASES[case]
    with closing(make_hook(ReplayApp(messages), tmp_path / "s", monkeypatch, DURABILITY=durability)) as hook:
        seen = records_seen_at_each_message(hook, tmp_path / "s", _path(messages))
    assert seen == [0] * held + [1] * (len(messages) - held)
    assert counters(hook).get("unrecorded_answers", 0) == 0
    (record,) = records(tmp_path / "s")
    assert record["_dspark"]["disconnected"] is False


def test_async_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch)) as hook:
        assert records_seen_at_each_message(hook, tmp_path / "s") == [0, 0]
    assert len(records(tmp_path / "s")) == 1


def test_many_answers_at_once_are_written_together_and_each_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        clients = await asyncio.gather(*(ask(hook, Client()) for _ in range(200)))
        assert all(client.body == PLAIN for client in clients)
        assert len(records(tmp_path / "s")) == 200

    with closing(
        make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch, DURABILITY="write")
    ) as hook:
        asyncio.run(run())
    assert counters(hook)["records"] == 200


def test_answers_that_wait_together_share_an_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def fsync(descriptor: int, sync: Callable[[int], None] = os.fsync) -> None:
        synced.append(descriptor)
        sync(descriptor)

    async def run() -> None:
        await ask(hook, Client())
        monkeypatch.setattr(os, "fsync", fsync)
        clients = await asyncio.gather(*(ask(hook, Client()) for _ in range(200)))
        assert all(client.body == PLAIN for client in clients)
        assert len(records(tmp_path / "s")) == 201

    with closing(
        make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch, DURABILITY="fsync")
    ) as hook:
        asyncio.run(run())
    assert 2 <= len(synced) <= 20, "data and index, for each group"
    assert counters(hook).get("unrecorded_answers", 0) == 0


class StuckWriter:
    """Stands in the way of a hook's writer thread: what it does next takes as long as the test wants."""

    def __init__(self, hook: JsonOutputHook, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        append = hook._appender._append

        def slow(batch: Any) -> int:
            time.sleep(seconds)
            return append(batch)

        monkeypatch.setattr(hook._appender, "_append", slow)


def test_a_message_is_held_no_longer_than_told_and_counted_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = ReplayApp(answer_messages([EVENT, DONE], content_type=STREAM))

    async def run() -> Client:
        return await ask(hook, Client())

    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="80")) as hook:
        StuckWriter(hook, monkeypatch, 0.5)
        client = asyncio.run(run())
        held = client.sent_at[2] - client.sent_at[1]
        assert 0.07 < held < 0.4
        assert client.sent_at[3] - client.sent_at[2] < 0.05, "what follows is not held again"
        assert client.body == EVENT + DONE
    assert counters(hook)["unrecorded_answers"] == 1
    assert "WITHOUT a record" in caplog.text
    assert len(records(tmp_path / "s")) == 1, "late, but kept"


class LateLoop:
    """Makes each turn of the running loop take so long, and counts them; with or without the GIL meanwhile."""

    def __init__(self, seconds: float, *, keeps_gil: bool) -> None:
        self.turns = 0
        self._seconds = seconds
        self._keeps_gil = keeps_gil
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.turns += 1
        until = time.perf_counter() + self._seconds
        while self._keeps_gil and time.perf_counter() < until:
            pass
        time.sleep(max(0.0, until - time.perf_counter()))
        self._loop.call_soon(self._turn)


@pytest.mark.parametrize("keeps_gil", [True, False], ids=["busy", "blocked"])
def test_a_late_loop_lets_no_answer_go_without_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_gil: bool
) -> None:
    kept: list[int] = []

    async def look(message: Message) -> None:
        if message["type"] == "http.response.body":
            kept.append(len(records(tmp_path / "s")))

    async def run() -> None:
        await ask(hook, Client())
        late = LateLoop(0.08, keeps_gil=keeps_gil)
        await asyncio.gather(*(ask(hook, Client(on_send=look)) for _ in range(20)))
        assert late.turns > 1

    app = ReplayApp(answer_messages([PLAIN]))
    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="40")) as hook:
        asyncio.run(run())
    assert kept == [21] * 20
    assert counters(hook).get("unrecorded_answers", 0) == 0


def test_a_stuck_writer_holds_an_answer_for_some_turns_of_a_late_loop_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        late = LateLoop(0.05, keeps_gil=False)
        assert (await ask(hook, Client())).body == PLAIN
        return late.turns

    app = ReplayApp(answer_messages([PLAIN]))
    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="40")) as hook:
        StuckWriter(hook, monkeypatch, 1.5)
        turns = asyncio.run(run())
    assert TURNS <= turns <= 2 * TURNS + 4, "a timer that is set late in a turn is due in the next but one"
    assert counters(hook)["unrecorded_answers"] == 1


def test_a_dropped_record_releases_its_answer_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_text("a file where the spool should be")

    async def run() -> None:
        start = time.perf_counter()
        for _ in range(3):
            assert (await ask(hook, Client())).body == PLAIN
        assert time.perf_counter() - start < 5

    app = ReplayApp(answer_messages([PLAIN]))
    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="60000")) as hook:
        asyncio.run(run())
        assert counters(hook)["unrecorded_answers"] == 3
        assert counters(hook)["dropped_records"] == 3


def test_a_client_that_leaves_while_its_answer_is_held_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> Client:
        client = Client()
        task = asyncio.create_task(ask(hook, client))
        await asyncio.sleep(0.1)
        task.cancel()
        start = time.perf_counter()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.perf_counter() - start < 0.2
        return client

    app = ReplayApp(answer_messages([PLAIN]))
    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="60000")) as hook:
        StuckWriter(hook, monkeypatch, 0.6)
        client = asyncio.run(run())
    assert client.body == b"", "what was held is not sent to a client that is gone"
    assert counters(hook).get("unrecorded_answers", 0) == 0
    assert len(records(tmp_path / "s")) == 1


def test_a_server_whose_send_fails_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError("client gone")

    async def run(durability: str) -> None:
        app = ReplayApp(answer_messages([EVENT, DONE], content_type=STREAM))
        with closing(make_hook(app, tmp_path / durability, monkeypatch, DURABILITY=durability)) as hook:
            client = Client(on_send=fail)
            with pytest.raises(OSError, match="client gone"):
                await ask(hook, client)
        (record,) = records(tmp_path / durability)
        assert record["_dspark"]["disconnected"] is True
        assert record["_dspark"]["error"] is None

    for durability in ("async", "write"):
        asyncio.run(run(durability))
