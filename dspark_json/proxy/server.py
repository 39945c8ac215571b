"""Running an ASGI application under uvicorn until a signal comes: ``dspark-json proxy`` and ``dspark-json serve``."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.notices import make_visible
from dspark_json.errors import ListenError, MissingPackageError
from dspark_json.extras import installing
from dspark_json.printable import printable
from dspark_json.proxy.failures import AnswerBroken, ClientStalled

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

# Longer than clients keep theirs, as a rule: who closes an idle connection first never meets a request on it.
_KEEP_ALIVE_SECONDS: Final = 75
_BACKLOG: Final = 2048
# Connections beyond are refused with status 503, before they cost anything else.
_MOST_CONNECTIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that is bound, so that its port is known and never free before it is served."""

    socket: socket.socket
    host: str

    @classmethod
    def bind(cls, host: str, port: int) -> Listener:
        """Listen on ``host:port`` (0: the system chooses). ``ListenError`` where that can't be had."""
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # With the protocol named, asyncio sets TCP_NODELAY; else each answer would wait 40 ms for the client's ACK.
            listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host that no name can be
            raise _refused(host, port, error) from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
        except OSError as error:
            listener.close()
            raise _refused(host, port, error) from error
        return cls(listener, host)

    @property
    def port(self) -> int:
        """The port, the one chosen by the system too."""
        found: int = self.socket.getsockname()[1]
        return found

    @property
    def address(self) -> str:
        """``http://host:port``."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def run_server(app: Any, listener: Listener, grace: int, on_start: Callable[[], None]) -> None:
    """Serve ``app`` until SIGTERM or Ctrl-C, then let requests under way finish for ``grace`` seconds at most.

    ``on_start`` is called once requests are taken. ``app`` finds the port where vLLM keeps it. Raises
    ``MissingPackageError`` without uvicorn, ``SystemExit`` (0) after SIGTERM, ``KeyboardInterrupt`` after Ctrl-C.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingPackageError("this command needs uvicorn", remedy=f"Install it: {installing('proxy')}.") from None

    class StartedServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                on_start()

    make_visible()
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    config = uvicorn.Config(
        _with_port(app, listener.port),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="on",
        ws="none",  # an upgrade is seen as the request it is, and refused by name
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace,
    )
    # uvicorn ends in good order and then raises the signal again, for who handled it before.
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        StartedServer(config).run(sockets=[listener.socket])
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.socket.close()


def _exit(*_: object) -> None:
    sys.exit(0)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn says something: answers that are broken off on purpose were told already."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return not isinstance(error, (AnswerBroken, ClientStalled))


def _refused(host: str, port: int, error: OSError | UnicodeError) -> ListenError:
    reason = error.strerror if isinstance(error, OSError) else error
    return ListenError(f"can't listen on {printable(host)}:{port} ({reason})", remedy="Choose another address.")


def _with_port(app: Any, port: int) -> Any:
    """``app`` as it is called inside vLLM, whose arguments (``port``) are in ``scope["app"].state.args``."""
    like_vllm = SimpleNamespace(state=SimpleNamespace(args=SimpleNamespace(port=port)))

    async def with_port(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope["app"] = like_vllm
        await app(scope, receive, send)

    return with_port
