"""Real servers for tests: the hook (or another ASGI application) under uvicorn, in a thread of the test's process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import uvicorn

from dspark_json import JsonOutputHook

if TYPE_CHECKING:
    from pathlib import Path

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def model(scope: Message, receive: Receive, send: Send) -> None:
    """A model that gives one short answer to everything."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"].removeprefix("lifespan.")
            await send({"type": f"lifespan.{kind}.complete"})
            if kind == "shutdown":
                return
    body = json.dumps({"detail": "Not Found"}).encode()
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


def hook(folder: Path, key: str | None = None) -> JsonOutputHook:
    """The hook around ``model``, its spool in ``folder``."""
    wanted = {"DSPARK_SPOOL": str(folder), "DSPARK_API_KEY": key or ""}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        return JsonOutputHook(model)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def elsewhere(app: App) -> App:
    """The same server as from another machine: the folder that it tells is not on this one."""

    async def asked(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/health/json-schema":
            await app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def rewrite(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            document = json.loads(body)
            if "spool" in document:
                document["spool"] = "/on/another/machine"
            new = json.dumps(document).encode()
            headers = [(n, v) for n, v in start["headers"] if n != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(new))]})
            await send({"type": "http.response.body", "body": new})

        await app(scope, receive, rewrite)

    return asked


@contextlib.contextmanager
def serving(app: App, port: int | None = None) -> Iterator[str]:
    """Serve an application; gives its address."""
    chosen = port or free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=chosen, log_level="error", lifespan="auto", ws="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        if time.monotonic() > deadline or not thread.is_alive():
            raise RuntimeError("the server did not start")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{chosen}"
    finally:
        server.should_exit = True
        thread.join(10)
