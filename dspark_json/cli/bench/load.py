"""A cheap load generator in a process of its own: HTTP/1.1 keep-alive over plain asyncio protocols.

``python -m dspark_json.cli.bench.load`` reads a ``Load`` as JSON from standard input and prints a ``Yield`` as JSON.
It knows the answers of ``BurstApp`` and reads no more of them than it must: on two cores the server is the busy one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, cast

from dspark_json.errors import DSparkJsonError

_END_OF_CHUNKS: Final = b"\r\n0\r\n\r\n"
_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: ``requests`` answers or ``seconds`` long, from ``clients`` connections.

    Without ``rate`` each client asks again at once. With it (requests a second) they come at random times, the same
    ones for the same ``seed``, and wait for a free connection where there is none.
    """

    host: str
    port: int
    stream: bool
    clients: int
    requests: int | None = None
    seconds: float | None = None
    rate: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Yield:
    """What came: answers with status 200, other answers, the time it took, and the CPU of the load generator.

    ``latencies_ms`` has the time to the end of each answer, ``first_ms`` that to its first byte.
    """

    answers: int
    failures: int
    seconds: float
    cpu_s: float
    latencies_ms: list[float]
    first_ms: list[float]


def run_load(load: Load) -> Yield:
    """Run ``load`` in a process of its own."""
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", __name__],
        input=json.dumps(dataclasses.asdict(load)),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is for the command; it then ends this
    )
    if done.returncode:
        raise DSparkJsonError("the load generator failed", remedy="What it said stands above.")
    return Yield(**json.loads(done.stdout))


class _Generator:
    """Hands requests to connections and keeps account of the answers."""

    def __init__(self, load: Load, request: bytes) -> None:
        self._load = load
        self.request = request
        self._loop = asyncio.get_running_loop()
        # In turn: a server closes a connection that nobody uses for some seconds.
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[float] = deque()
        self._sent = 0
        self._open = 0
        self._begin = 0.0
        self._done = self._loop.create_future()
        self.latencies: list[float] = []
        self.firsts: list[float] = []
        self.failures = 0

    async def run(self) -> Yield:
        for _ in range(self._load.clients):
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self), self._load.host, self._load.port
            )
            self._idle.append(connection)
        self._begin = self._loop.time()
        try:
            if self._load.rate is None:
                for connection in list(self._idle):
                    self._ask_again(connection)
            else:
                await self._come_at(self._load.rate)
            await self._done
            seconds = self._loop.time() - self._begin
        finally:
            for connection in self._idle:
                connection.close()
        latencies, firsts = ([1000 * time for time in times] for times in (self.latencies, self.firsts))
        return Yield(len(latencies), self.failures, seconds, time.process_time(), latencies, firsts)

    async def _come_at(self, rate: float) -> None:
        gaps = random.Random(self._load.seed)  # noqa: S311 - no secret
        due = self._begin
        while self._more():
            due += gaps.expovariate(rate)
            if (pause := due - self._loop.time()) > 0:
                await asyncio.sleep(pause)
            if self._done.done() or not self._more():
                break
            self._sent += 1
            now = self._loop.time()
            if self._idle:
                self._ask(self._idle.popleft(), now)
            else:
                self._waiting.append(now)
        self._end_if_over()

    def answered(self, connection: _Connection, asked_at: float, first_at: float, good: bool) -> None:
        """An answer, whose first byte came at ``first_at``, is complete on this connection."""
        self._open -= 1
        if good:
            self.latencies.append(self._loop.time() - asked_at)
            self.firsts.append(first_at - asked_at)
        else:
            self.failures += 1
        if self._load.rate is None:
            self._ask_again(connection)
        elif self._waiting:
            self._ask(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)
        self._end_if_over()

    def now(self) -> float:
        """The time that all others are compared with."""
        return self._loop.time()

    def lost(self, *, asking: bool) -> None:
        """A connection was closed; by the server if it was ``asking``, or is still to be used."""
        if (asking or self._load.rate is not None) and not self._done.done():
            when = "in the middle of an answer" if asking else "that it was to be asked on again"
            self._done.set_exception(ConnectionError(f"the server closed a connection {when}"))

    def _ask_again(self, connection: _Connection) -> None:
        if self._more():
            self._sent += 1
            self._ask(connection, self._loop.time())

    def _ask(self, connection: _Connection, asked_at: float) -> None:
        self._open += 1
        connection.ask(asked_at)

    def _more(self) -> bool:
        if self._load.requests is not None:
            return self._sent < self._load.requests
        return self._loop.time() - self._begin < (self._load.seconds or 0)

    def _end_if_over(self) -> None:
        if not self._open and not self._waiting and not self._more() and not self._done.done():
            self._done.set_result(None)


class _Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way at most."""

    def __init__(self, generator: _Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport | None = None
        self._asked_at: float | None = None
        self._first_at = 0.0
        self._head = b""
        self._tail = b""
        self._missing = -1  # bytes of a body with content-length; -1 while unknown or chunked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._generator.lost(asking=self._asked_at is not None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def ask(self, asked_at: float) -> None:
        assert self._transport is not None
        self._asked_at, self._head, self._tail, self._missing = asked_at, b"", b"", -1
        self._transport.write(self._generator.request)

    def data_received(self, data: bytes) -> None:
        if self._asked_at is None:
            return
        if self._missing >= 0:
            self._missing -= len(data)
        elif not self._tail:
            if not self._head:
                self._first_at = self._generator.now()
            self._head += data
            end = self._head.find(_END_OF_HEAD)
            if end < 0:
                return
            at = self._head.find(_LENGTH, 0, end)
            if at >= 0:
                length = int(self._head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
                self._missing = length - (len(self._head) - end - len(_END_OF_HEAD))
            self._tail = self._head[-len(_END_OF_CHUNKS) :]
        else:
            self._tail = (self._tail + data)[-len(_END_OF_CHUNKS) :]
        if self._missing == 0 or (self._missing < 0 and self._tail == _END_OF_CHUNKS):
            asked_at, self._asked_at = self._asked_at, None
            self._generator.answered(self, asked_at, self._first_at, self._head.startswith(b"HTTP/1.1 200"))


def _request(load: Load) -> bytes:
    from dspark_json.replay.recording import packaged_request

    document = packaged_request("stream_order_usage" if load.stream else "chat_order")
    body = json.dumps(document, separators=(",", ":")).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {load.host}:{load.port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def main() -> None:
    """Run the load that standard input describes."""
    spec: dict[str, Any] = json.load(sys.stdin)
    load = Load(**spec)

    async def run() -> Yield:
        return await _Generator(load, _request(load)).run()

    json.dump(dataclasses.asdict(asyncio.run(run())), sys.stdout)


if __name__ == "__main__":
    main()
