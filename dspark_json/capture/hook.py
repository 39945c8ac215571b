"""``JsonOutputHook``: the ASGI middleware that ``vllm serve --middleware dspark_json.JsonOutputHook`` takes."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

import dspark_json
from dspark_json.capture.appender import CLOSE_SECONDS, Appender
from dspark_json.capture.control import ControlRoutes
from dspark_json.capture.endpoints import COVERED
from dspark_json.capture.exchange import Desk, make_exchange
from dspark_json.capture.notices import LOGGER, make_visible
from dspark_json.capture.process_counters import ProcessCounters
from dspark_json.capture.settings import HookSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from dspark_json.capture.exchange import Message, Receive, Send
    from dspark_json.spool.writer import LaneWriter

    Scope = MutableMapping[str, Any]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

# A key of the scope that says that a hook further out takes care of it.
_TAKEN: Final = "dspark_json.hook"
_OPEN_SECONDS: Final = 5.0
# A server that ends cancels what is left and tells the end at once; applications take some turns of the loop to unwind.
_UNWIND_STEPS: Final = 200
_UNWIND_STEP_SECONDS: Final = 0.01
_LAST_OF_LIFESPAN: Final = ("lifespan.startup.failed", "lifespan.shutdown.complete", "lifespan.shutdown.failed")


class JsonOutputHook:
    """Keeps every JSON answer of the application it wraps, and passes everything on as it is (DESIGN §2).

    Configured by ``DSPARK_*`` variables (docs/options.md). Raises ``InvalidOptionError`` for a bad one, so that a
    server does not start with other promises than were asked for. The spool is opened when the server starts (ASGI
    lifespan), or at the first covered request where it tells of no start; a second start of the same server opens it
    again. Of hooks around one another only the outermost does anything.
    """

    def __init__(self, app: App, settings: HookSettings | None = None) -> None:
        """``settings`` are those of the environment unless they are given."""
        self.app = app
        self._settings = HookSettings.from_environment(os.environ) if settings is None else settings
        self._is_told_twice = False
        self._counters = ProcessCounters()
        self._renew()

    def _renew(self) -> None:
        self._appender = Appender(self._settings, self._announce, self._counters)
        self._desk = Desk(self._settings, self._appender)
        self._control = ControlRoutes(self._settings, self._appender)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if _TAKEN in scope:
            self._tell_twice()
        elif scope["type"] == "http":
            path = _route_path(scope)
            if path in COVERED and scope["method"] == "POST":
                await self._exchange(path, scope, receive, send)
                return
            if self._control.owns(path):
                await self._control.answer(path, scope, send)
                return
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _tell_twice(self) -> None:
        if not self._is_told_twice:
            self._is_told_twice = True
            LOGGER.warning(
                "DSpark JSON: the hook is around the application twice; the inner one does nothing. Give "
                "--middleware dspark_json.JsonOutputHook once."
            )

    async def _exchange(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._appender.started:
            self._start(scope)
        exchange = make_exchange(self._desk, path, scope["headers"], receive, send)
        # In the scope itself, not in a copy: what the application adds to it is for those further out.
        scope[_TAKEN] = True
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            exchange.finish(error)
            raise
        finally:
            scope.pop(_TAKEN, None)
        exchange.finish(None)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open the spool beside the application's own start, close it after the application's own end."""
        if self._appender.closed:
            self._renew()
        self._start(scope)

        async def pass_on(message: Message) -> None:
            try:
                if message["type"] == "lifespan.startup.complete":
                    await asyncio.to_thread(self._appender.wait_until_opened, _OPEN_SECONDS)
                elif message["type"] in _LAST_OF_LIFESPAN:
                    await self._wait_for_exchanges()
                    await asyncio.to_thread(self._appender.close, CLOSE_SECONDS)
                    self._control.close()
            except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
                self._appender.note_exception()
            await send(message)

        scope[_TAKEN] = True
        try:
            await self.app(scope, receive, pass_on)
        finally:
            scope.pop(_TAKEN, None)

    async def _wait_for_exchanges(self) -> None:
        """Let the answers that the server has just cancelled end: their records come once the application unwinds."""
        for _ in range(_UNWIND_STEPS):
            if not self._desk.under_way:
                break
            await asyncio.sleep(_UNWIND_STEP_SECONDS)

    def _start(self, scope: Scope) -> None:
        if self._appender.started:
            return
        try:
            make_visible()
            for warning in self._settings.warnings:
                LOGGER.warning("DSpark JSON: %s", warning)
            port = _port(scope)
            folder = self._settings.folder(port)
            if port is None and self._settings.spool is None:
                LOGGER.warning(
                    "DSpark JSON: the server's port is not known here; the spool is %s, where readers of another port "
                    "won't look, and which all servers of unknown ports share. Set DSPARK_SPOOL for each: readers look "
                    "into %s by themselves.",
                    folder,
                    folder.with_name("dspark_vllm_<port>"),
                )
            self._appender.start(folder)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1: a server whose hook can't start serves all the same
            self._appender.note_exception()

    def _announce(self, writer: LaneWriter) -> None:
        LOGGER.info(
            "DSpark JSON mode enabled: version %s, spool %s, spool id %s, lane %s, durability %s",
            dspark_json.__version__,
            writer.folder,
            writer.spool_id,
            writer.lane,
            self._settings.durability,
        )
        LOGGER.info("json_output_hook_enabled: true")


def _route_path(scope: Scope) -> str:
    """The path below the application's root path (a reverse proxy may or may not have taken that off)."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root + "/"):
        return path[len(root) :]
    return path


def _port(scope: Scope) -> int | None:
    """The port vLLM was told to serve on (its parsed arguments are in the application's state)."""
    arguments = getattr(getattr(scope.get("app"), "state", None), "args", None)
    port = getattr(arguments, "port", None)
    return port if isinstance(port, int) else None
