"""The few ASGI moves that the small servers here share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import orjson

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON_TYPE: Final = (b"content-type", b"application/json")
STREAM_TYPE: Final = (b"content-type", b"text/event-stream; charset=utf-8")


async def read_body(receive: Receive) -> bytes | None:
    """The whole request body; None if the client left before it was complete."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def send_json(send: Send, status: int, value: object) -> None:
    """Send ``value`` as a whole JSON response."""
    await send_body(send, status, orjson.dumps(value), JSON_TYPE)


async def send_body(send: Send, status: int, body: bytes, content_type: tuple[bytes, bytes] | None) -> None:
    """Send a whole response with ``content-length``."""
    headers = [(b"content-length", b"%d" % len(body))]
    if content_type is not None:
        headers.append(content_type)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
