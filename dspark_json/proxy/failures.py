"""What the proxy answers by itself, in the form of OpenAI's errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from dspark_json.capture.exchange import Send


@dataclass(slots=True, eq=False)
class Failure(Exception):  # noqa: N818 - an answer, not an error of this program
    """An answer that does not come from an upstream: its status, and ``code`` and ``message`` of ``error``."""

    status: int
    code: str
    message: str


class AnswerBroken(Exception):  # noqa: N818 - its name stands in records as the error's type
    """The upstream ended in the middle of its answer: what began at the client can only be broken off there too."""


class ClientStalled(OSError):  # noqa: N818 - named as its neighbour is
    """The client took nothing of its answer for too long, so it is as if it had left."""


async def send_failure(send: Send, failure: Failure) -> None:
    """Send a failure as a whole answer."""
    error = {"message": failure.message, "type": "proxy_error", "param": None, "code": failure.code}
    body = orjson.dumps({"error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": failure.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
