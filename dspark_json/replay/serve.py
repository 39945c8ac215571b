"""Serve an ASGI application with uvicorn, in this process, on a port that may be chosen by the system."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dspark_json.errors import ListenError, MissingPackageError
from dspark_json.extras import installing

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication


def serve(app: ASGIApplication, *, host: str = "127.0.0.1", port: int = 0, exit_with_stdin: bool = False) -> None:
    """Serve ``app`` until a signal comes; prints one JSON line ``{"address": "http://…"}`` once requests are taken.

    ``port`` 0 lets the system choose; ``app`` finds the real one where vLLM keeps it. ``exit_with_stdin`` ends the
    server when its standard input does, so that it never outlives the process that started it. Raises
    ``ListenError`` where the port can't be had.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingPackageError(
            "the replay server needs uvicorn", remedy=f"Install it: {installing('demo')}."
        ) from None

    class AnnouncingServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                print(json.dumps({"address": address}), flush=True)  # noqa: T201 - the answer to the starting process

    # The socket is bound here, not by uvicorn, so that the port is known and is never free in between.
    # With the protocol named, asyncio sets TCP_NODELAY; else each answer would wait 40 ms for the client's ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that no name can be
            reason = error.strerror if isinstance(error, OSError) else error
            raise ListenError(f"can't listen on {host}:{port} ({reason})", remedy="Choose another port.") from error
        address = f"http://{host}:{listener.getsockname()[1]}"
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        served = _with_port(app, listener.getsockname()[1])
        settings: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "on"}
        server = AnnouncingServer(uvicorn.Config(served, timeout_graceful_shutdown=2, **settings))
        if exit_with_stdin:
            threading.Thread(target=_exit_with_stdin, args=(server,), daemon=True).start()
        server.run(sockets=[listener])


def _with_port(app: ASGIApplication, port: int) -> ASGIApplication:
    """``app`` as it is called inside vLLM, whose arguments (``port``) are in ``scope["app"].state.args``."""
    inner: Any = app  # uvicorn knows ASGI 2 too
    like_vllm = SimpleNamespace(state=SimpleNamespace(args=SimpleNamespace(port=port)))

    async def with_port(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = like_vllm
        await inner(scope, receive, send)

    return with_port


def _exit_with_stdin(server: Any) -> None:
    # Not sys.stdin.buffer: a daemon thread inside its lock would keep the interpreter from ending.
    import os

    while os.read(sys.stdin.fileno(), 4096):
        pass
    server.should_exit = True
