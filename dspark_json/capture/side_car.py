"""``SideCar``: the control routes answered from a spool's folder alone, beside the server or without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from dspark_json.capture.control import ControlRoutes
from dspark_json.capture.lifespan import answer_lifespan
from dspark_json.capture.notices import Notice
from dspark_json.spool.schema_uses import SchemaUse, sum_schema_uses
from dspark_json.spool.stats import sum_counters

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from dspark_json.capture.exchange import Receive, Send
    from dspark_json.capture.settings import HookSettings


class StoredSpool:
    """A spool as its files tell of it: counters are those of the last second (``stats.json``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._exceptions = 0
        self._trouble = Notice(loud_times=1)

    def counters(self) -> dict[str, int]:
        """The sum of each counter over all lanes, and the exceptions here."""
        total = sum_counters(self.folder)
        total["hook_exceptions"] = total.get("hook_exceptions", 0) + self._exceptions
        return total

    def schema_uses(self) -> dict[str, SchemaUse]:
        """The uses of schemas over all lanes."""
        return sum_schema_uses(self.folder)

    def note_exception(self) -> None:
        """Count an exception and tell it once a minute; call it while handling one."""
        self._exceptions += 1
        self._trouble.say("an exception was caught", exc_info=True)


class SideCar:
    """An ASGI application that gives a spool's records to readers, and never writes.

    The spool may be made, removed and made anew while this runs: until there is one, answers say so (status 503).
    """

    def __init__(self, folder: Path, settings: HookSettings) -> None:
        """Of the settings only the key counts."""
        self._control = ControlRoutes(settings, StoredSpool(folder), is_side_car=True)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send, self._close)
        elif scope["type"] == "http":
            path = scope["path"]
            if self._control.owns(path):
                await self._control.answer(path, scope, send)
            else:
                await _no_route(send)

    async def _close(self) -> None:
        self._control.close()


async def _no_route(send: Send) -> None:
    message = "there is no such route; this serves a spool's records, not a model"
    body = orjson.dumps({"error": {"code": "DSPARK_JSON_ROUTE", "message": message}})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
