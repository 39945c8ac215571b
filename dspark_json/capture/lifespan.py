"""The lifespan protocol of ASGI, for applications of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dspark_json.capture.exchange import Receive, Send


async def answer_lifespan(receive: Receive, send: Send, end: Callable[[], Awaitable[None]] | None = None) -> None:
    """Answer the protocol of an application that has nothing to prepare; ``end`` is awaited before it is over."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            if end is not None:
                await end()
            await send({"type": "lifespan.shutdown.complete"})
            return
