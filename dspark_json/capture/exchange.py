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
    header,
    is_encoded,
    is_event_stream,
)
from dspark_json.capture.endpoints import RESPONSES
from dspark_json.capture.hold import Hold
from dspark_json.capture.notices import Notice
from dspark_json.capture.sse import DoneDetector, LastEventDetector

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
_FIRST_BODY_KEPT: Final = 64 << 10
# ASGI extensions by which the server sends the body from a file itself.
_SENT_BY_SERVER: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})


# What an exchange has in place of what it captured once the writer has that.
_HANDED_OVER: Final = Captured(None, (), 0)


class Desk:
    """What all exchanges of a hook share: settings, the appender, how many answers are under way, with what held."""

    __slots__ = ("appender", "held", "max_held", "max_record", "max_request", "settings", "under_way", "unrecorded")

    def __init__(self, settings: HookSettings, appender: Appender) -> None:
        self.settings = settings
        self.appender = appender
        self.under_way = 0  # exchanges whose records are not submitted yet
        self.held = 0
        self.max_held = settings.assembly
        self.max_record = settings.max_record
        self.max_request = settings.max_record if settings.capture_requests == "full" else PARSED_BYTES
        self.unrecorded = Notice(logging.ERROR)


class Exchange:
    """Stands between the server and the application for one request.

    Give the application ``receive`` and ``send`` in place of the server's, and call ``finish`` when it has returned or
    raised. The record is submitted when the answer ends.
    """

    __slots__ = (
        "_began",
        "_captured",
        "_desk",
        "_held",
        "_holding",
        "_request_open",
        "_request_tail",
        "_server_receive",
        "_server_send",
        "_submitted",
    )

    def __init__(
        self, desk: Desk, path: str, request_headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
    ) -> None:
        self._desk = desk
        desk.under_way += 1
        self._server_receive = receive
        self._server_send = send
        self._captured = Captured(path, request_headers, time.time_ns() // 1000)
        self._began = time.perf_counter()
        self._request_tail = b""
        self._request_open = True
        self._held = 0
        self._holding = True
        self._submitted = False

    async def receive(self) -> Message:
        """The server's next message."""
        message = await self._server_receive()
        if self._request_open and not self._submitted:
            try:
                self._observe_request(message)
            except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
                self._desk.appender.note_exception()
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message of the application on to the server."""
        try:
            if message["type"] == "http.response.body":
                body = message.get("body")
                if body and not self._submitted:
                    self._take(body)
                if not message.get("more_body", False):
                    self._end()
            elif message["type"] == "http.response.start":
                message = self._observe_start(message)
            elif message["type"] in _SENT_BY_SERVER:
                self._observe_unseen(message)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()
        return self._server_send(message)

    def finish(self, error: BaseException | None) -> None:
        """The application returned, or raised ``error``."""
        if self._submitted:
            return
        try:
            raised = type(error).__name__ if _is_failure(error) else None
            self._submit(None, raised=raised)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()

    def _observe_request(self, message: Message) -> None:
        if message["type"] != "http.request":
            return
        captured = self._captured
        body = message.get("body") or b""
        captured.request_size += len(body)
        if captured.request is None:
            self._search_echo(body)
        elif body:
            if captured.request_size > self._desk.max_request or self._desk.held + len(body) > self._desk.max_held:
                self._hold(-sum(map(len, captured.request)))
                self._search_echo(b"".join([*captured.request, body]))
                captured.request = None
            else:
                captured.request.append(bytes(body))
                self._hold(len(body))
        if not message.get("more_body", False):
            self._request_open = False

    def _search_echo(self, piece: bytes) -> None:
        """Look in a request that is not kept for what makes the answer begin with the prompt."""
        captured = self._captured
        if not captured.asks_for_echo:
            searched = self._request_tail + piece
            captured.asks_for_echo = _ECHO.search(searched) is not None
            self._request_tail = searched[-_LONGEST_ECHO:]

    def _observe_start(self, message: Message) -> Message:
        """The start message with our header; the application's own object stays as it is."""
        headers = list(message.get("headers") or ())
        if not self._submitted:
            self._captured.headers = headers
            self._captured.status = message["status"]
            if is_encoded(headers):
                self._release(ENCODED)
        return {**message, "headers": [*headers, MARK]}

    def _observe_unseen(self, message: Message) -> None:
        if not self._submitted:
            self._release(NOT_SEEN)
        if not message.get("more_body", False):
            self._end()

    def _end(self) -> None:
        """The answer is complete for the client with the message at hand."""
        if not self._submitted:
            self._captured.ended = True
            self._submit(None)

    def _take(self, body: bytes) -> None:
        desk, captured = self._desk, self._captured
        size = captured.size = captured.size + len(body)
        if captured.first_byte_ms is None:
            captured.first_byte_ms = self._milliseconds()
        if self._holding:
            weight = len(body) + _MESSAGE_OVERHEAD
            self._held += weight
            desk.held += weight
            if size > desk.max_record:
                self._release(TOO_LARGE)
            elif desk.held > desk.max_held:
                self._release(ASSEMBLY_FULL)
            else:
                captured.body.append(body if body.__class__ is bytes else bytes(body))

    def _hold(self, weight: int) -> None:
        self._held += weight
        self._desk.held += weight

    def _release(self, missing: str) -> None:
        """Let go of the answer's bytes, of all but a first message that may tell the id."""
        captured = self._captured
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
        self._submitted = True
        self._holding = False  # whatever may come after the end
        captured, self._captured = self._captured, _HANDED_OVER
        desk = self._desk
        captured.duration_ms = self._milliseconds()
        captured.raised = raised
        weight, self._held = self._held, 0
        desk.under_way -= 1
        desk.held -= weight
        desk.appender.submit(captured, weight + _MESSAGE_OVERHEAD, waiter)


class HeldExchange(Exchange):
    """An exchange whose last message waits for the record (durability ``write`` and ``fsync``, DESIGN §2 rule 7)."""

    __slots__ = ("_detector", "_length", "_size", "_waiter")

    def __init__(
        self, desk: Desk, path: str, request_headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
    ) -> None:
        super().__init__(desk, path, request_headers, receive, send)
        self._detector: DoneDetector | LastEventDetector | None = None
        self._length: int | None = None
        self._size = 0
        self._waiter: Waiter | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on; the one that completes the answer for the client, and later ones, wait for the record."""
        try:
            if message["type"] == "http.response.body":
                self._observe_body(message)
            elif message["type"] == "http.response.start":
                message = self._observe_start(message)
            elif message["type"] in _SENT_BY_SERVER:
                self._observe_unseen(message)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()
        if self._waiter is not None:
            await self._wait(self._waiter)
        await self._server_send(message)

    def _observe_start(self, message: Message) -> Message:
        marked = super()._observe_start(message)
        captured = self._captured
        if is_event_stream(captured.headers):
            self._detector = LastEventDetector() if captured.path == RESPONSES else DoneDetector()
        else:
            length = header(captured.headers, b"content-length")
            self._length = int(length) if length is not None and length.isdecimal() else None
        return marked

    def _observe_body(self, message: Message) -> None:
        if self._submitted:
            return
        body = message.get("body")
        if body:
            self._take(body)
        last = not message.get("more_body", False)
        if not last and self._detector is None and self._length is not None:
            last = self._captured.size >= self._length
        if not last and body and self._detector is not None:
            last = self._detector.seen_in(body)
        if last:
            self._end()

    def _end(self) -> None:
        if not self._submitted:
            self._captured.ended = True
            self._size = self._captured.size
            self._waiter = asyncio.get_running_loop().create_future()
            self._submit(self._waiter)

    async def _wait(self, waiter: Waiter) -> None:
        """Wait until the record is kept, at most ``DSPARK_HOLD_MS`` of a loop that has its turns."""
        hold = Hold(waiter, self._desk.settings.hold)
        try:
            kept = await waiter
        finally:
            hold.end()
            self._waiter = None  # told once; and if the client is gone, nothing more is held
        if not kept:
            self._desk.appender.count("unrecorded_answers")
            self._desk.unrecorded.say(
                f"an answer of {self._size} bytes went to its client WITHOUT a record, after at most "
                f"{self._desk.settings.hold * 1000:g} ms (DSPARK_HOLD_MS)"
            )


def _is_failure(error: BaseException | None) -> bool:
    """Whether the application failed by itself, rather than being cancelled or losing its client."""
    if not isinstance(error, Exception) or isinstance(error, (asyncio.CancelledError, OSError)):
        return False
    return type(error).__name__ != "ClientDisconnect"


def make_exchange(
    desk: Desk, path: str, request_headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
) -> Exchange:
    """An exchange of the kind that the durability asks for."""
    kind = Exchange if desk.settings.durability == "async" else HeldExchange
    return kind(desk, path, request_headers, receive, send)
