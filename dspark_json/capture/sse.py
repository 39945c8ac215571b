"""Server-sent events, as the WHATWG HTML standard's section 9.2.6 splits them, from bytes cut anywhere."""

from __future__ import annotations

import re
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_DONE_LINE: Final = re.compile(rb"[\r\n]data: ?\[DONE\](?=[\r\n]|\Z)")
_DONE_TAIL: Final = len(b"\ndata: [DONE]") - 1
_LAST_NAMES: Final = (b"response.completed", b"response.incomplete", b"response.failed")
_LAST_NAME: Final = rb"response\.(?:completed|incomplete|failed)"
# The line that names an event, or its data with the type as the first or the last member: no text inside of the data
# looks like these, because JSON escapes its quotes and line ends.
_LAST_LINE: Final = re.compile(
    rb"[\r\n]event: ?" + _LAST_NAME + rb"(?=[\r\n])"
    rb'|[\r\n]data: ?\{ ?"type": ?"' + _LAST_NAME + rb'"(?=[,}])'
    rb'|, ?"type": ?"' + _LAST_NAME + rb'"\}(?=[\r\n])'
)
_LAST_TAIL: Final = 64  # more than the longest of these
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BLANK_TAIL: Final = 3
_BOM: Final = b"\xef\xbb\xbf"


class EventSplitter:
    """Bytes in, the ``data`` of complete events out.

    Lines end with CR, LF or CRLF; comments and fields other than ``data`` are skipped; several ``data`` lines of an
    event are joined by a line feed.
    """

    __slots__ = ("_after_cr", "_data", "_line", "_start")

    def __init__(self, *, at_start: bool = True) -> None:
        """``at_start``: the stream's first bytes come next (a byte order mark there is skipped)."""
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._start = at_start

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that this piece completes."""
        if self._after_cr and piece:
            self._after_cr = False
            if piece.startswith(b"\n"):  # the other half of a CRLF
                piece = piece[1:]
        if not piece:
            return []
        events: list[bytes] = []
        *ended, rest = _LINE_END.split(piece)
        for text in ended:
            self._end_line(text, events)
        if rest:
            self._line.append(rest)
        self._after_cr = piece.endswith(b"\r")
        return events

    def finish(self) -> bytes | None:
        """The data of an event that nothing ended, if there is one; the stream is over."""
        events: list[bytes] = []
        self._end_line(b"", events)
        self._end_line(b"", events)
        return events[0] if events else None

    def _end_line(self, text: bytes, events: list[bytes]) -> None:
        if self._line:
            self._line.append(text)
            text = b"".join(self._line)
            self._line.clear()
        if self._start:
            self._start = False
            text = text.removeprefix(_BOM)
        if not text:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        elif text.startswith(b"data:"):
            self._data.append(text[6:] if text[5:6] == b" " else text[5:])
        elif text == b"data":
            self._data.append(b"")


class DoneDetector:
    """Finds the message that brings a stream's line ``data: [DONE]``, even when the line is cut over several."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\n"  # a stream begins at the start of a line

    def seen_in(self, body: bytes) -> bool:
        """Whether the line is complete with this message's body (only its end of line may still be missing)."""
        probe = self._tail + body
        if b"[DONE]" in probe and _DONE_LINE.search(probe) is not None:
            return True
        self._tail = probe[-_DONE_TAIL:]
        return False


class LastEventDetector:
    """Finds the message that brings the end of a streamed response's last event, however the event is cut."""

    __slots__ = ("_named", "_tail")

    def __init__(self) -> None:
        self._named = False
        self._tail = b"\n"

    def seen_in(self, body: bytes) -> bool:
        """Whether the last event is complete, with its blank line, with this message's body."""
        probe = self._tail + body
        start = 0
        if not self._named:
            line = _LAST_LINE.search(probe) if any(name in probe for name in _LAST_NAMES) else None
            if line is None:
                self._tail = probe[-_LAST_TAIL:]
                return False
            self._named = True
            start = line.end()
        if _BLANK_LINE.search(probe, start) is not None:
            return True
        self._tail = probe[max(start, len(probe) - _BLANK_TAIL) :]
        return False
