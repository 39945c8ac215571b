"""The bytes of a streamed answer → an ``Assembly``, quickly where the stream looks like vLLM's."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import orjson

from dspark_json.capture.assembly import Assembly
from dspark_json.capture.jsontext import loads_to_write
from dspark_json.capture.sse import EventSplitter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.capture.pacing import Pacer

_SLICE_BYTES: Final = 12 << 10  # about 100 µs of parsing and assembly
_LONGEST_FAST_EVENT: Final = 256 << 10
_SHOWN_OF_BAD_EVENT: Final = 200
_DONE: Final = b"[DONE]"
_DONE_EVENT: Final = b"data: [DONE]\n\n"
# Stands between events that are parsed together. Nobody can guess it, so no event can hold it and pass for several.
_MARK: Final = (1 << 62) + secrets.randbits(62)
_BETWEEN_EVENTS: Final = b"},%d,{" % _MARK


class Assembling(Protocol):
    """What takes the events of a stream: ``ValueError`` for one that does not have the shape of an event."""

    def feed(self, event: dict[str, Any], /) -> None: ...


A = TypeVar("A", bound=Assembling)


class EventReader(Generic[A]):
    """Feeds an assembly from a stream's bytes.

    The result depends on the bytes alone, not on how they were cut. Events after ``[DONE]`` are not looked at.
    ``bad_event`` is the beginning of the first event that was no chunk, else None, and ``bad_event_size`` its bytes;
    ``done`` tells that ``[DONE]`` came. Numbers are kept by their value, not as written; one that does not fit 64 bits
    becomes the nearest double, but one beyond a double stays as it was.
    """

    __slots__ = ("_pending", "_splitter", "_started", "assembly", "bad_event", "bad_event_size", "done")

    def __init__(self, assembly: A) -> None:
        self.assembly = assembly
        self.bad_event: str | None = None
        self.bad_event_size = 0
        self.done = False
        self._pending = b""
        self._started = False
        self._splitter: EventSplitter | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; a few KiB at a time are quickest."""
        if self.done:
            return
        if self._splitter is None:
            data = self._pending + piece
            cut = data.rfind(b"\n\n")
            if b"\r" not in data and (cut >= 0 or len(data) < _LONGEST_FAST_EVENT):
                self._pending = data[cut + 2 :] if cut >= 0 else data
                if cut >= 0 and not self._feed_whole_events(data[: cut + 2]):
                    self._feed_events(EventSplitter(at_start=not self._started).feed(data[: cut + 2]))
                self._started = self._started or cut >= 0
                return
            # Other line ends, or a very long event: from here on line by line.
            self._splitter = EventSplitter(at_start=not self._started)
            self._pending, piece = b"", data
        self._feed_events(self._splitter.feed(piece))

    def finish(self, *, cut_off: bool) -> None:
        """The stream is over; ``cut_off``: in the middle, so a last event may be half there."""
        splitter = self._splitter
        if splitter is None:
            splitter = EventSplitter(at_start=not self._started)
            self._feed_events(splitter.feed(self._pending))
            self._pending = b""
        rest = splitter.finish()
        if rest is not None and not self.done:
            known_bad = self.bad_event
            self._feed_event(rest)
            if cut_off:
                self.bad_event = known_bad

    def _feed_whole_events(self, data: bytes) -> bool:
        """Take events that are all ``data: {…}`` and a blank line, in one parse; False if they aren't."""
        done = data.endswith(_DONE_EVENT)
        if done:
            data = data[: -len(_DONE_EVENT)]
        if data:
            if not (data.startswith(b"data: {") and data.endswith(b"\n\n")):
                return False
            try:
                chunks = orjson.loads(b"[" + data[6:].replace(b"}\n\ndata: {", _BETWEEN_EVENTS) + b"]")
            except orjson.JSONDecodeError:
                return False
            # n events have 2n line feeds. With n - 1 marks between n values each event is one value: a mark can't be
            # made up, and one that got inside a value is missing here.
            if len(chunks) != data.count(b"\n") - 1 or chunks[1::2].count(_MARK) != len(chunks) // 2:
                return False
            feed = self.assembly.feed
            for number, chunk in enumerate(chunks[::2]):
                try:
                    feed(chunk)
                except ValueError:
                    if self.bad_event is None:
                        self._note_bad(data.split(b"\n\n")[number].removeprefix(b"data: "))
        self.done = done
        return True

    def _feed_events(self, events: Iterable[bytes]) -> None:
        for event in events:
            if self.done:
                return
            self._feed_event(event)

    def _feed_event(self, event: bytes) -> None:
        if event.strip() == _DONE:
            self.done = True
            return
        try:
            chunk = loads_to_write(event)
            if not isinstance(chunk, dict):
                raise ValueError("not an object")  # noqa: TRY004, TRY301 - one kind of bad event
            self.assembly.feed(chunk)
        except ValueError:
            self._note_bad(event)

    def _note_bad(self, event: bytes) -> None:
        if self.bad_event is None:
            self.bad_event = event[: 4 * _SHOWN_OF_BAD_EVENT].decode("utf-8", "replace")[:_SHOWN_OF_BAD_EVENT]
            self.bad_event_size = len(event)


class StreamReader(EventReader[Assembly]):
    """Reads a stream of chunks, as chat and completions have them."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Assembly())


def reading(reader: EventReader[Any], chunks: Iterable[bytes], *, cut_off: bool) -> Iterator[None]:
    """Read a whole stream from its messages' bodies; stops after each slice of work."""
    for piece in _slices(chunks):
        reader.feed(piece)
        yield
    reader.finish(cut_off=cut_off)


def read_stream(chunks: Iterable[bytes], *, cut_off: bool, pacer: Pacer) -> StreamReader:
    """Read a whole stream from its messages' bodies, in slices."""
    reader = StreamReader()
    for _ in reading(reader, chunks, cut_off=cut_off):
        pacer.tick()
    return reader


def _slices(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about ``_SLICE_BYTES``."""
    gathered: list[bytes] = []
    size = 0
    for chunk in chunks:
        if len(chunk) > 2 * _SLICE_BYTES:
            if gathered:
                yield b"".join(gathered)
                gathered, size = [], 0
            for start in range(0, len(chunk), _SLICE_BYTES):
                yield chunk[start : start + _SLICE_BYTES]
            continue
        gathered.append(chunk)
        size += len(chunk)
        if size >= _SLICE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
