"""The life of a covered request whose answer is not complete for the client before its record is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dspark_json.capture.captured import header, is_event_stream
from dspark_json.capture.endpoints import RESPONSES
from dspark_json.capture.exchange import SENT_BY_SERVER, Exchange
from dspark_json.capture.hold import Hold
from dspark_json.capture.sse import DoneDetector, LastEventDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from dspark_json.capture.backlog import Waiter
    from dspark_json.capture.exchange import Desk, Message, Receive, Send


class HeldExchange(Exchange):
    """An exchange whose last message waits for the record (durability ``write`` and ``fsync``, DESIGN §2 rule 7)."""

    __slots__ = ("_detector", "_is_known", "_length", "_size", "_waiter")

    def __init__(
        self, desk: Desk, path: str, request_headers: Sequence[tuple[bytes, bytes]], receive: Receive, send: Send
    ) -> None:
        super().__init__(desk, path, request_headers, receive, send)
        self._is_known = False  # whether the next two are set
        self._detector: DoneDetector | LastEventDetector | None = None
        self._length: int | None = None
        self._size = 0
        self._waiter: Waiter | None = None

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message on; the one that completes the answer for the client, and later ones, wait for the record."""
        try:
            if not self._submitted and self._completes(message):
                self._note(message, is_sent=True, is_last=True)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._desk.appender.note_exception()
        if self._waiter is None:
            return super().send(message)
        return self._send_held(message, self._waiter)

    async def _send_held(self, message: Message, waiter: Waiter) -> None:
        await self._wait(waiter)
        await self._server_send(message)

    def _completes(self, message: Message) -> bool:
        """Whether the client has the whole answer once it has this message."""
        kind = message["type"]
        if kind != "http.response.body":
            return kind in SENT_BY_SERVER and not message.get("more_body", False)
        if not message.get("more_body", False):
            return True
        body = message.get("body")
        if not body:
            return False
        if not self._is_known:
            self._know()
        if self._detector is not None:
            return self._detector.seen_in(body)
        if self._length is None:
            return False
        captured = self._captured
        if captured is None:
            return len(body) >= self._length
        self._settle(captured)
        return captured.size + len(body) >= self._length

    def _know(self) -> None:
        """Find out from the headers what the end of the answer looks like."""
        headers = () if self._start is None else self._start["headers"]
        if is_event_stream(headers):
            self._detector = LastEventDetector() if self._path == RESPONSES else DoneDetector()
        else:
            length = header(headers, b"content-length")
            self._length = int(length) if length is not None and length.isdecimal() else None
        self._is_known = True

    def _end(self) -> None:
        captured = self._begin()
        captured.ended = True
        self._settle(captured)
        self._size = captured.size
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
