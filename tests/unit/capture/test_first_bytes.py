"""What the hook does comes after the bytes that it could delay, and what was not sent ends no answer (DESIGN §2)."""

from __future__ import annotations

import asyncio
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

from dspark_json.capture import exchange
from dspark_json.capture.captured import Captured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = "text/event-stream"
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
MIB = 1 << 20


class Watched(list[tuple[bytes, bytes]]):
    """Headers that tell when they are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self.looks += 1
        return super().__iter__()


def refuse(place: int, error: BaseException) -> Any:
    """A server that takes so many messages and then fails."""
    taken: list[Message] = []

    async def take(message: Message) -> None:
        if len(taken) == place:
            raise error
        taken.append(message)

    return take


@pytest.mark.parametrize(
    "messages", [answer_messages([PLAIN]), answer_messages([EVENT, FINISH, DONE], content_type=STREAM)]
)
def test_the_first_body_reaches_the_server_before_anything_is_captured(
    messages: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    at_the_server: list[int] = []

    def counted(*values: Any) -> Captured:
        made.append(1)
        return Captured(*values)

    monkeypatch.setattr(exchange, "Captured", counted)

    async def look(_: Message) -> None:
        at_the_server.append(len(made))

    with closing(make_hook(ReplayApp(messages), tmp_path, monkeypatch)) as hook:
        asyncio.run(ask(hook, Client(on_send=look)))
    assert at_the_server[:2] == [0, 0]
    assert made == [1]
    assert len(records(tmp_path)) == 1


def test_no_header_of_a_request_is_looked_at_before_the_answer_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = Watched([(b"x-request-id", b"r1")])
    looks: list[int] = []

    async def look(_: Message) -> None:
        looks.append(headers.looks)

    scope = {**scope_for(), "headers": headers}
    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)) as hook:
        asyncio.run(ask(hook, Client(on_send=look), scope))
    assert looks == [0, 0]
    (record,) = records(tmp_path)
    assert record["_dspark"]["request_id"] == "r1"


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()], ids=["fails", "is cancelled"])
@pytest.mark.parametrize(
    ("messages", "place"),
    [
        (answer_messages([PLAIN]), 1),
        (answer_messages([EVENT, FINISH, DONE], content_type=STREAM), 1),
        (answer_messages([EVENT, FINISH, DONE], content_type=STREAM), 2),
    ],
    ids=["whole", "first event", "later event"],
)
def test_an_answer_whose_message_the_server_did_not_take_is_not_complete_for_the_client(
    messages: list[Message], place: int, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        with pytest.raises(type(error)):
            await ask(hook, Client(on_send=refuse(place, error)))

    with closing(make_hook(ReplayApp(messages), tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    (record,) = records(tmp_path)
    assert record["_dspark"]["disconnected"] is True
    assert record["_dspark"]["error"] is None
    assert (record["_dspark"]["first_byte_ms"] is None) == (place == 1), "nothing was sent that had a body"
    assert record["choices"][0]["index"] == 0, "what there is of the answer is kept"
    assert counters(hook).get("hook_exceptions", 0) == 0


@pytest.mark.parametrize("durability", ["async", "write"])
@pytest.mark.parametrize("size", [1, 300, 5_000, 9_000])
def test_bytes_and_room_are_counted_whatever_the_size_of_events(
    size: int, durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b": " + b"x" * size + b"\n\n"] * 400 + [FINISH, DONE]
    held: list[int] = []

    async def look(_: Message) -> None:
        held.append(hook._desk.held)

    with closing(
        make_hook(
            ReplayApp(answer_messages(bodies, content_type=STREAM)),
            tmp_path,
            monkeypatch,
            MAX_RECORD_MB="1",
            DURABILITY=durability,
        )
    ) as hook:
        client = Client(on_send=look)
        asyncio.run(ask(hook, client))
        assert hook._desk.held == 0
    assert client.body == b"".join(bodies)
    total = sum(map(len, bodies))
    (record,) = records(tmp_path)
    found = counters(hook)
    assert max(held) <= MIB + 64 * len(bodies) + (16 << 10)
    assert found.get("oversize_bytes", 0) == (total if total > MIB else 0)
    assert (record["_dspark"]["error"] is None) == (total <= MIB)
    assert record["_dspark"]["completed"] is (total <= MIB)


def test_room_kept_for_what_comes_never_passes_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in answer_messages([EVENT, EVENT, FINISH], content_type=STREAM, end=False):
            await send(message)
        await going.wait()
        for message in answer_messages([DONE], content_type=STREAM)[1:]:
            await send(message)

    async def run() -> None:
        tasks = [asyncio.create_task(ask(hook, Client())) for _ in range(300)]
        await asyncio.sleep(0.1)
        assert hook._desk.held <= MIB
        going.set()
        await asyncio.gather(*tasks)
        assert (hook._desk.held, hook._desk.reserved) == (0, 0)

    with closing(make_hook(app, tmp_path, monkeypatch, ASSEMBLY_MB="1")) as hook:
        asyncio.run(run())
    found = records(tmp_path)
    assert len(found) == 300
    assert all(record["_dspark"]["error"] is None for record in found), "all together they are smaller than it"


def test_messages_keep_their_order_while_the_server_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(text: str) -> bytes:
        return b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()

    words = [f"{number} " * 40 for number in range(200)]

    async def slow(_: Message) -> None:
        await asyncio.sleep(0)

    messages = answer_messages([*map(said, words), FINISH, DONE], content_type=STREAM)
    with closing(make_hook(ReplayApp(messages), tmp_path, monkeypatch)) as hook:
        client = Client(on_send=slow)
        asyncio.run(ask(hook, client))
    (record,) = records(tmp_path)
    assert record["choices"][0]["message"]["content"] == "".join(words)
