"""A server that answers at once from memory: next to it, what the hook costs shows."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.lifespan import answer_lifespan
from dspark_json.errors import DSparkJsonError
from dspark_json.replay.asgi import (
    JSON_TYPE,
    STREAM_TYPE,
    Receive,
    Send,
    read_body,
    send_body,
    send_json,
)
from dspark_json.replay.recording import packaged_recordings

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAM_EVENTS: Final = 150
ANSWER_BYTES: Final = 1500
CPU_PATH: Final = "/bench/cpu"


class BurstApp:
    """Answers each chat request at once: 1.5 KB, or 150 server-sent events of about 220 bytes and ``[DONE]``."""

    def __init__(self) -> None:
        self._body = burst_body()
        self._events = burst_events()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope (HTTP or lifespan)."""
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send)
        elif scope["path"] == CPU_PATH:
            # All threads of this process, in ns: finer than the ticks of /proc.
            await send_json(send, 200, {"cpu_ns": time.process_time_ns()})
        elif (request := await read_body(receive)) is not None:
            if b'"stream":true' in request:
                await self._stream(send)
            else:
                await send_body(send, 200, self._body, JSON_TYPE)

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [STREAM_TYPE]})
        for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def burst_body() -> bytes:
    """A recorded answer, its content made longer so that the whole is 1.5 KB."""
    body = next(r for r in packaged_recordings() if r.name == "chat_order").parts[0]
    start = body.index(b'"content":"') + len(b'"content":"')
    return body[:start] + b" " * (ANSWER_BYTES - len(body)) + body[start:]


def burst_events() -> list[bytes]:
    """The events of a recorded stream, some in the middle repeated until there are 150."""
    events = list(next(r for r in packaged_recordings() if r.name == "stream_order_usage").parts)
    middle = len(events) // 2
    return events[:middle] + events[middle : middle + 1] * (STREAM_EVENTS - len(events)) + events[middle:]


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m dspark_json.cli.bench.server")
    parser.add_argument("--no-hook", action="store_true")
    parser.add_argument("--exit-with-stdin", action="store_true")
    options = parser.parse_args()
    from dspark_json.replay.serve import serve

    try:
        app: Any = BurstApp()
        if not options.no_hook:
            from dspark_json import JsonOutputHook

            app = JsonOutputHook(app)
        serve(app, exit_with_stdin=options.exit_with_stdin)
    except DSparkJsonError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
