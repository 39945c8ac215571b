"""Clients at a steady rate over plain sockets: some stream, some leave; they note which answers they have whole."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dspark_json.capture.endpoints import CHAT, RESPONSES
from dspark_json.replay.recording import ROUTES, packaged_request

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

# Recorded requests, and how often each is made among all.
_MIX: Final = {
    "chat_order": 20,
    "chat_risk": 10,
    "chat_n3": 5,
    "chat_tools_required": 5,
    "chat_plain": 8,
    "completions_json": 8,
    "completions_two_prompts": 3,
    "responses_json": 8,
    "stream_plain": 6,
    "stream_length": 6,
    "stream_completions": 6,
    "stream_completions_two_prompts": 3,
    "stream_responses": 5,
    "stream_n2": 2,
    "stream_order_usage": 4,
}
_REFUSED: Final = 1  # requests for a model that is not there, among all
_LEAVING: Final = 0.1
_LEAVING_BYTES: Final = 5_000
_LEAVING_SEC: Final = 0.25
_MOST_OPEN: Final = 600
_DOWN_SEC: Final = 0.1
_ANSWER_SEC: Final = 60.0

_ID: Final = re.compile(rb'"id": ?"((?:chatcmpl-|cmpl-|resp_)[0-9a-f]{16})"')
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
_LAST_EVENT: Final = re.compile(rb"event: response\.(?:completed|incomplete|failed)\n[^\n]*\n\n")
_DONE: Final = re.compile(rb"data: \[DONE\]\n\n")


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that its client received completely; ``answer`` is its id, None of an error."""

    answer: str | None
    status: int


@dataclass(slots=True)
class Account:
    """What became of all requests, by their ids; ``left`` are those whose client went away, with the server's number.

    Of those only the ones that had begun to be answered are there. ``cut`` are answers that broke off with their
    server, ``refused`` connections that a server did not take, ``late`` requests not made because too many were open.
    """

    asked: int = 0
    whole: dict[str, Whole] = field(default_factory=dict)
    streamed: int = 0
    left: dict[str, int] = field(default_factory=dict)
    left_unanswered: int = 0
    cut: dict[int, int] = field(default_factory=dict)
    refused: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class _Question:
    path: str
    body: bytes


class Clients:
    """Ask the servers on some ports ``rate`` times a second, at random times, until told to stop."""

    def __init__(self, ports: Sequence[int], rate: float, source: random.Random) -> None:
        self.account = Account()
        self.source = source
        self._ports = ports
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._questions, self._weights = _questions()
        self._idle: list[list[_Connection]] = [[] for _ in ports]
        self._down_until = [0.0 for _ in ports]
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until ``stop``; then drop what is open."""
        due = self._loop.time()
        while not stop.is_set():
            due += self.source.expovariate(self._rate)
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if len(self._open) + len(self._tasks) >= _MOST_OPEN:
                self.account.late += 1
                continue
            self._ask()
        for connection in [*self._open, *(one for idle in self._idle for one in idle)]:
            connection.drop()
        await asyncio.gather(*self._tasks)

    def _ask(self) -> None:
        now = self._loop.time()
        up = [server for server, until in enumerate(self._down_until) if until <= now]
        server = self.source.choice(up or range(len(self._ports)))
        (question,) = self.source.choices(self._questions, self._weights)
        self.account.asked += 1
        name = f"soak-{self.account.asked}"
        if self._idle[server]:
            self._put(self._idle[server].pop(), name, question)
        else:
            task = asyncio.create_task(self._connect(server, name, question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, server: int, name: str, question: _Question) -> None:
        try:
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self, server), "127.0.0.1", self._ports[server]
            )
        except OSError:
            self.account.refused += 1
            self._down_until[server] = self._loop.time() + _DOWN_SEC
        else:
            self._put(connection, name, question)

    def _put(self, connection: _Connection, name: str, question: _Question) -> None:
        self._open.add(connection)
        connection.ask(name, question)

    def idle(self, connection: _Connection) -> None:
        """A connection is free again."""
        self._open.discard(connection)
        self._idle[connection.server].append(connection)

    def gone(self, connection: _Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        if connection in self._idle[connection.server]:
            self._idle[connection.server].remove(connection)


class _Connection(asyncio.Protocol):
    """A keep-alive connection to one server, with one request under way at most."""

    def __init__(self, clients: Clients, server: int) -> None:
        self.server = server
        self._clients = clients
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._name: str | None = None
        self._path = ""
        self._got = bytearray()
        self._searched = 0
        self._whole = False
        self._leave_at: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        account = self._clients.account
        if self._name is not None and not self._whole:
            account.cut[self.server] = account.cut.get(self.server, 0) + 1
        self._end()
        self._clients.gone(self)

    def ask(self, name: str, question: _Question) -> None:
        assert self._transport is not None
        source, loop = self._clients.source, asyncio.get_running_loop()
        self._name, self._path, self._got, self._searched, self._whole = name, question.path, bytearray(), 0, False
        self._leave_at = None
        self._timers = [loop.call_later(_ANSWER_SEC, self.drop)]
        if source.random() < _LEAVING:
            if source.random() < 0.5:
                self._leave_at = source.randrange(1, _LEAVING_BYTES)
            else:
                self._timers.append(loop.call_later(source.uniform(0, _LEAVING_SEC), self._leave))
        head = f"POST {question.path} HTTP/1.1\r\nhost: t\r\nx-request-id: {name}\r\ncontent-type: application/json\r\n"
        self._transport.write(head.encode() + b"content-length: %d\r\n\r\n" % len(question.body) + question.body)

    def data_received(self, data: bytes) -> None:
        if self._name is None:
            return
        got = self._got
        got += data
        if not self._whole and self._is_whole():
            self._whole = True
            found = _ID.search(got)
            account = self._clients.account
            account.whole[self._name] = Whole(found[1].decode() if found else None, int(got[9:12]))
            account.streamed += self._length() is None
        if self._leave_at is not None and len(got) >= self._leave_at:
            self._leave()
        elif self._whole and (self._length() is not None or got.endswith(b"\r\n0\r\n\r\n")):
            self._end()
            self._clients.idle(self)

    def drop(self) -> None:
        """Close without a word."""
        if self._name is not None and not self._whole:
            self._leave()
        elif self._transport is not None:
            self._end()
            self._transport.close()

    def _leave(self) -> None:
        assert self._transport is not None
        if self._name is not None and not self._whole:
            if self._got:
                self._clients.account.left[self._name] = self.server
            else:
                self._clients.account.left_unanswered += 1
        self._end()
        if self._clients.source.random() < 0.5:
            self._transport.abort()
        else:
            self._transport.close()

    def _end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._name = None

    def _length(self) -> int | None:
        """What the whole answer takes, head and body; None of a stream."""
        end = self._got.find(b"\r\n\r\n")
        found = _LENGTH.search(self._got, 0, end + 2)
        return end + 4 + int(found[1]) if found else None

    def _is_whole(self) -> bool:
        """Whether the client has all it needs of the answer, whatever is still to come of the framing."""
        if b"\r\n\r\n" not in self._got:
            return False
        length = self._length()
        if length is not None:
            return len(self._got) >= length
        last = _LAST_EVENT if self._path == RESPONSES else _DONE
        found = last.search(self._got, self._searched) is not None
        self._searched = max(0, self._got.rfind(b"\n\n"))  # where the last whole event ends
        return found


def _questions() -> tuple[list[_Question], list[int]]:
    questions, weights = [], []
    for name, weight in _MIX.items():
        request = packaged_request(name)
        path = next(path for path, member in ROUTES.items() if member in request)
        questions.append(_Question(path, json.dumps(request).encode()))
        weights.append(weight)
    absent = {**packaged_request("chat_order"), "model": "absent"}
    return [*questions, _Question(CHAT, json.dumps(absent).encode())], [*weights, _REFUSED]
