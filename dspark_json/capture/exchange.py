"""The life of one covered request: the messages pass through, references to their bytes are kept."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.captured import (
    ASSEMBLY_FULL,
    ENCODED,
    NOT_SEEN,
    PARSED_BYTES,
    TOO_LARGE,
    Captured,
    is_encoded,
)
from dspark_json.capture.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from dspark_json.capture.appender import Appender
    from dspark_json.capture.backlog import Waiter
    from dspark_json.capture.settings import HookSettings

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MARK: Final = (b"x-dspark", b"json")
# What asks for an echo, in any Unicode encoding; inside a string its quotes would be escaped. What is true is what
# pydantic takes for it.
_ECHO: Final = re.compile(
    rb'"\0*(?:e|\\u0065)\0*(?:c|\\u0063)\0*(?:h|\\u0068)\0*(?:o|\\u006[fF])\0*"[\s\0]*:[\s\0]*'
    rb"(?:[Tt]\0*[Rr]\0*[Uu]\0*[Ee]|1|\"[\s\0]*(?:[1TtYy]|[Oo]\0*[Nn]))"
)
_LONGEST_ECHO: Final = 256  # with some blanks
_MESSAGE_OVERHEAD: Final = 48  # what a bytes object costs beside its bytes
_ROOM: Final = 8 << 10  # some thirty events of a stream
_FIRST_BODY_KEPT: Final = 64 << 10
# ASGI extensions by which the server sends the body from a file itself.
SENT_BY_SERVER: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})


class Desk:
    """What all exchanges of a hook share: settings, the appender, how many answers are under way, with what held."""

    __slots__ = (
        "appender",
        "held",
        "max_held",
        "max_record",
        "max_request",
        "max_reserved",
        "reserved",
        "settings",
        "under_way",
        "unrecorded",
    )

    def __init__(self, settings: HookSettings, appender: Appender) -> None:
        self.settings = settings
        self.appender = appender
        self.under_way = 0  # exchanges whose records are not submitted yet
        self.held = 0
        self.max_held = settings.assembly
        self.reserved = 0  # the part of ``held`` that is room for what may come
        self.max_reserved = settings.assembly // 16
        self.max_record = settings.max_record
        self.max_request = settings.max_record if settings.capture_requests == "full" else PARSED_BYTES
        self.unrecorded = Notice(logging.ERROR)


class Exchange:
    """Stands between the server and the application for one request.

    Give the application ``receive`` and ``send`` in place of the server's, and call ``finish`` when it has returned or
    raised. The record is submitted when the answer has ended.

    What is done before the first bytes of an answer makes them later, and costs ten times what it costs in a tight
    loop: the server has done other things meanwhile. So before the first body only our header is added and the request
    kept as it came; the first and the last body are looked at when the server has taken them.
    """

    __slots__ = (
        "_began",
        "_captured",
        "_counted",
        "_desk",
        "_has_begun",
        "_held",
        "_holding",
        "_path",
        "_request",
        "_request_headers",
        "_request_open",
        "_request_tail",
        "_reserved",
        "_room",
        "_server_receive",
        "_server_send",
        "_start",
        "_submitted",
    )

    def __init__(
        self, desk: Desk, path: str, request_headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
    ) -> None:
        self._began = time.perf_counter()
        self._desk = desk
        desk.under_way += 1
        self._path = path
        self._request_headers = request_headers
        self._server_receive = receive
        self._server_send = send
        self._request = b""  # a whole one that nobody has looked at
        self._request_open = True
        self._request_tail = b""
        self._start: Message | None = None  # the message that began the answer, until somebody looks at it
        self._captured: Captured | None = None
        self._has_begun = False  # whether something of the answer's body is captured
        self._held = 0
        self._holding = True
        self._room = 0  # what is left of what is reserved for messages to come, with their overhead
        self._reserved = 0
        self._counted = 0  # messages of the body when it was reserved
        self._submitted = False

    async def receive(self) -> Message:
        """The server's next message."""
        message = await self._server_receive()
        if self._request_open:
            try:
                self._keep_request(message)
            except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
                self._desk.appender.note_exception()
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message of the application on to the server."""
        captured, room = self._captured, self._room
        if room and captured is not None:
            try:
                body = message["body"]
                room -= len(body) + _MESSAGE_OVERHEAD
                is_next = (
                    room > 0
                    and message["more_body"]
                    and body.__class__ is bytes
                    and message["type"] == "http.response.body"
                )
            except Exception:  # noqa: BLE001 - an odd one: the long way tells what it is
                is_next = False
            if is_next:
                self._room = room
                captured.body.append(body)
                return self._server_send(message)
        if self._has_begun and message.get("more_body", False):
            self._note(message, is_sent=True, is_last=False)
            return self._server_send(message)
        return self._send_then_note(message)

    async def _send_then_note(self, message: Message) -> None:
        """Pass on what begins the answer or ends it, and note it once the server has taken it."""
        if not self._has_begun and message.get("type") == "http.response.start":
            message = self._marked(message)
        try:
            await self._server_send(message)
        except BaseException:
            self._note(message, is_sent=False, is_last=False)
            raise
        self._note(message, is_sent=True, is_last=not message.get("more_body", False))

    def finish(self, error: BaseException | None) -> None:
        """The application returned, or raised ``error``."""
        if self._submitted:
            return
        try:
            raised = type(error).__name__ if _is_failure(error) else None
            self._submit(None, raised=raised)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()

    def _keep_request(self, message: Message) -> None:
        body = message.get("body")
        desk = self._desk
        if (
            body.__class__ is bytes
            and self._captured is None
            and not message.get("more_body", False)
            and len(body) <= desk.max_request
            and desk.held + len(body) <= desk.max_held
        ):
            self._request_open = False
            self._request = body
            self._held = len(body)
            desk.held += len(body)
        else:
            self._observe_request(message)

    def _observe_request(self, message: Message) -> None:
        if message["type"] != "http.request":
            return
        captured = self._captured or self._capture()
        body = message.get("body") or b""
        captured.request_size += len(body)
        if captured.request is None:
            self._search_echo(captured, body)
        elif body:
            if captured.request_size > self._desk.max_request or self._desk.held + len(body) > self._desk.max_held:
                self._hold(-sum(map(len, captured.request)))
                self._search_echo(captured, b"".join([*captured.request, body]))
                captured.request = None
            else:
                captured.request.append(bytes(body))
                self._hold(len(body))
        if not message.get("more_body", False):
            self._request_open = False

    def _search_echo(self, captured: Captured, piece: bytes) -> None:
        """Look in a request that is not kept for what makes the answer begin with the prompt."""
        if not captured.asks_for_echo:
            searched = self._request_tail + piece
            captured.asks_for_echo = _ECHO.search(searched) is not None
            self._request_tail = searched[-_LONGEST_ECHO:]

    def _marked(self, message: Message) -> Message:
        """The start message with our header; the application's own object stays as it is."""
        try:
            message["status"]  # without one it begins nothing
            self._start = marked = {**message, "headers": [*(message.get("headers") or ()), MARK]}
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()
            return message
        return marked

    def _note(self, message: Message, *, is_sent: bool, is_last: bool) -> None:
        """Capture a message: what the server did not take, too. With the last one the client has the whole answer."""
        if self._submitted:
            return
        try:
            kind = message["type"]
            if kind == "http.response.body":
                body = message.get("body")
                if body:
                    self._take(body, is_sent=is_sent)
            elif kind in SENT_BY_SERVER:
                self._begin()
                self._release(NOT_SEEN)
            else:
                return
            if is_last:
                self._end()
            elif self._holding and not self._room:
                self._reserve()
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()

    def _capture(self) -> Captured:
        """Begin to capture; the request, too, came before."""
        elapsed = time.perf_counter() - self._began
        received_at = time.time_ns() // 1000 - round(elapsed * 1_000_000)
        captured = self._captured = Captured(self._path, self._request_headers, received_at)
        if self._request:
            captured.request = [self._request]
            captured.request_size = len(self._request)
            self._request = b""
        return captured

    def _begin(self) -> Captured:
        """Look at how the answer began."""
        captured = self._captured or self._capture()
        self._has_begun = True
        start = self._start
        if start is not None:
            self._start = None
            captured.status = start["status"]
            captured.headers = start["headers"][:-1]
            if is_encoded(captured.headers):
                self._release(ENCODED)
        return captured

    def _end(self) -> None:
        """The answer is complete for the client."""
        captured = self._begin()
        captured.ended = True
        self._submit(None)

    def _take(self, body: bytes, *, is_sent: bool) -> None:
        desk, captured = self._desk, self._captured
        if captured is None or not self._has_begun:
            captured = self._begin()
            if is_sent:
                captured.first_byte_ms = self._milliseconds()
        elif self._reserved:
            self._settle(captured)
        captured.size += len(body)
        if self._holding:
            self._hold(len(body) + _MESSAGE_OVERHEAD)
            if captured.size > desk.max_record:
                self._release(TOO_LARGE)
            elif desk.held > desk.max_held:
                self._release(ASSEMBLY_FULL)
            else:
                captured.body.append(body if body.__class__ is bytes else bytes(body))

    def _reserve(self) -> None:
        """Account for some of what comes next ahead: ``send`` then takes it without a look at any limit."""
        desk, captured = self._desk, self._captured
        if captured is None or not captured.body:
            return
        room = min(_ROOM, desk.max_record - captured.size, desk.max_held - desk.held, desk.max_reserved - desk.reserved)
        if room > 0:
            self._hold(room)
            desk.reserved += room
            self._room = self._reserved = room
            self._counted = len(captured.body)

    def _settle(self, captured: Captured) -> None:
        """Count what ``send`` took since it was reserved, and give back the rest."""
        if self._reserved:
            messages = len(captured.body) - self._counted
            captured.size += self._reserved - self._room - messages * _MESSAGE_OVERHEAD
            self._hold(-self._room)
            self._desk.reserved -= self._reserved
            self._room = self._reserved = 0

    def _hold(self, weight: int) -> None:
        self._held += weight
        self._desk.held += weight

    def _release(self, missing: str) -> None:
        """Let go of the answer's bytes, of all but a first message that may tell the id."""
        captured = self._captured or self._capture()
        self._settle(captured)
        captured.missing = missing
        self._holding = False
        del captured.body[1:]
        if captured.body and len(captured.body[0]) > _FIRST_BODY_KEPT:
            captured.body.clear()
        left = sum(len(body) for body in captured.body) + sum(len(body) for body in captured.request or ())
        self._hold(left - self._held)

    def _milliseconds(self) -> float:
        """How long ago the request came."""
        return round((time.perf_counter() - self._began) * 1000, 3)

    def _submit(self, waiter: Waiter | None, *, raised: str | None = None) -> None:
        if self._submitted:
            return
        captured = self._begin()
        self._settle(captured)
        self._submitted = True
        self._request_open = False
        self._captured = None  # the writer has it
        desk = self._desk
        captured.duration_ms = self._milliseconds()
        captured.raised = raised
        weight, self._held = self._held, 0
        desk.under_way -= 1
        desk.held -= weight
        desk.appender.submit(captured, weight + _MESSAGE_OVERHEAD, waiter)


def _is_failure(error: BaseException | None) -> bool:
    """Whether the application failed by itself, rather than being cancelled or losing its client."""
    if not isinstance(error, Exception) or isinstance(error, (asyncio.CancelledError, OSError)):
        return False
    return type(error).__name__ != "ClientDisconnect"
