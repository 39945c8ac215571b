"""Recorded exchanges through the real hook, without a server: each is answered as it was, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

from dspark_json.capture.endpoints import COVERED
from dspark_json.capture.hook import JsonOutputHook

if TYPE_CHECKING:
    from dspark_json.capture.settings import HookSettings
    from dspark_json.replay.asgi import Message, Receive, Send
    from dspark_json.replay.exchanges import RecordedExchange


def is_covered(exchange: RecordedExchange) -> bool:
    """Whether the hook keeps a record of such an exchange."""
    return exchange.method == "POST" and exchange.path in COVERED


class HookReplay:
    """A hook around an application that answers as recorded; a context manager. ``settings`` name the spool."""

    def __init__(self, settings: HookSettings) -> None:
        self._loop = asyncio.new_event_loop()
        self._app = _RecordedApp()
        self._hook = JsonOutputHook(self._app, settings)

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._lifespan("startup"))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run_until_complete(self._lifespan("shutdown"))
        finally:
            self._loop.close()

    def run(self, exchange: RecordedExchange) -> None:
        """Let the hook see an exchange."""
        self._app.exchange = exchange
        self._loop.run_until_complete(self._ask(exchange))

    async def _ask(self, exchange: RecordedExchange) -> None:
        scope = {
            "type": "http",
            "method": exchange.method,
            "path": exchange.path,
            "headers": [(b"content-type", b"application/json")],
        }
        given: list[Message] = [{"type": "http.request", "body": exchange.request, "more_body": False}]

        async def receive() -> Message:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            pass

        with contextlib.suppress(_RecordedError):
            await self._hook(scope, receive, send)

    async def _lifespan(self, step: str) -> None:
        """One step of the lifespan; the application ends after it, so that the hook sees both."""
        given: list[Message] = [{"type": f"lifespan.{step}"}]

        async def receive() -> Message:
            return given.pop()

        async def send(_: Message) -> None:
            pass

        await self._hook({"type": "lifespan"}, receive, send)


class _RecordedError(Exception):
    """What an application raised when it was recorded; the class has that name."""


class _RecordedApp:
    """Reads the request and answers with the messages of ``exchange``."""

    def __init__(self) -> None:
        self.exchange: RecordedExchange | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        message = await receive()
        if scope["type"] == "lifespan":
            await send({"type": message["type"] + ".complete"})
            return
        exchange = self.exchange
        assert exchange is not None
        for message in exchange.messages:
            await send(message)
        if exchange.raised is not None:
            raise type(exchange.raised, (_RecordedError,), {})
