"""Requests sent in a closed loop (each worker asks again when it has its answer) or in an open one (at their times).

Only bytes and times are kept while the load runs; the answers are read afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx

from dspark_json.cli.bench.serving.reply import Exchange, Problem
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dspark_json.cli.bench.serving.questions import Question
    from dspark_json.cli.model_server import ModelServer

_ROUTE: Final = "/v1/chat/completions"
_SHOWN: Final = 200  # characters of what a server says
_KEEPALIVE_SEC: Final = 2.0  # servers close idle connections after 5 s; one closed under a request would be our fault


@dataclass(frozen=True, slots=True)
class Load:
    """How to send: ``workers`` requests under way at most; with ``rate``, at random times, so many a second.

    A request fails after ``timeout`` seconds. The times are the same for the same ``seed``.
    """

    workers: int
    rate: float | None
    timeout: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a load; ``busy`` is the share of a core that sending it took."""

    exchanges: tuple[Exchange, ...]
    busy: float

    @property
    def seconds(self) -> float:
        """From when the first request was due to the end of the last answer."""
        return max(one.ended for one in self.exchanges) - min(one.due for one in self.exchanges)

    def spans(self, count: int) -> list[list[Exchange]]:
        """The exchanges that ended in each of so many spans of the same length; a span may have none."""
        found: list[list[Exchange]] = [[] for _ in range(count)]
        begin = min(one.due for one in self.exchanges)
        for one in self.exchanges:
            found[min(int(count * (one.ended - begin) / self.seconds), count - 1)].append(one)
        return found


def send(server: ModelServer, questions: Sequence[Question], load: Load, on_end: Callable[[], None]) -> Sent:
    """Send all questions (one at least); ``on_end`` is called whenever one has its answer, or has failed."""
    cpu, clock = time.process_time(), time.monotonic()
    exchanges = asyncio.run(_Sender(server, load, on_end).send(questions))
    busy = (time.process_time() - cpu) / (time.monotonic() - clock)
    return Sent(tuple(exchanges), busy)


class _Sender:
    """Sends over its own connections, which are new: no server has had the time to close one."""

    def __init__(self, server: ModelServer, load: Load, on_end: Callable[[], None]) -> None:
        self._server = server
        self._load = load
        self._on_end = on_end

    async def send(self, questions: Sequence[Question]) -> list[Exchange]:
        most = self._load.workers
        limits = httpx.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=_KEEPALIVE_SEC)
        headers = {**self._server.headers, "content-type": "application/json", "accept-encoding": "identity"}
        async with httpx.AsyncClient(
            base_url=self._server.address, headers=headers, timeout=self._load.timeout, limits=limits, trust_env=False
        ) as http:
            if self._load.rate is None:
                return await self._closed(http, questions)
            return await self._open(http, questions, self._load.rate)

    async def _closed(self, http: httpx.AsyncClient, questions: Sequence[Question]) -> list[Exchange]:
        waiting = iter(questions)
        workers = min(self._load.workers, len(questions))
        await asyncio.gather(*(self._connect(http) for _ in range(workers)))

        async def worker() -> list[Exchange]:
            return [await self._ask(http, question, time.monotonic()) for question in waiting]

        done = await asyncio.gather(*(worker() for _ in range(workers)))
        return [exchange for one in done for exchange in one]

    async def _open(self, http: httpx.AsyncClient, questions: Sequence[Question], rate: float) -> list[Exchange]:
        places = asyncio.Semaphore(self._load.workers)

        async def ask(question: Question, due: float) -> Exchange:
            async with places:
                return await self._ask(http, question, due)

        tasks = []
        for question, due in zip(questions, self._times(rate), strict=False):
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(ask(question, due)))
        return await asyncio.gather(*tasks)

    def _times(self, rate: float) -> Iterator[float]:
        gaps = random.Random(self._load.seed)  # noqa: S311 - no secret
        due = time.monotonic()
        while True:
            due += gaps.expovariate(rate)
            yield due

    async def _connect(self, http: httpx.AsyncClient) -> None:
        """Open a connection, so that no request of the load has to; what it meets, a request will meet and tell."""
        with contextlib.suppress(httpx.HTTPError):
            await http.get("/health")

    async def _ask(self, http: httpx.AsyncClient, question: Question, due: float) -> Exchange:
        sent = time.monotonic()
        pieces: list[tuple[float, bytes]] = []
        problem: Problem | None = None
        try:
            async with (
                asyncio.timeout(self._load.timeout),
                http.stream("POST", _ROUTE, content=question.body) as answer,
            ):
                if answer.status_code == httpx.codes.OK and _is_stream(answer):
                    pieces = [(time.monotonic(), piece) async for piece in answer.aiter_raw()]
                else:
                    problem = self._refusal(answer.status_code, await answer.aread())
        except (TimeoutError, httpx.TimeoutException):
            problem = Problem(f"no whole answer within {self._load.timeout:g} s")
        except httpx.HTTPError as error:
            problem = Problem(type(error).__name__, printable(str(error), _SHOWN))
        self._on_end()
        return Exchange(question.schema, due, sent, time.monotonic(), tuple(pieces), problem)

    def _refusal(self, status: int, body: bytes) -> Problem:
        kind = "no stream" if status == httpx.codes.OK else f"status {status}"
        text = self._server.without_key(body.decode("utf-8", "replace"))
        return Problem(kind, printable(text, _SHOWN))


def _is_stream(answer: httpx.Response) -> bool:
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip() == "text/event-stream"
