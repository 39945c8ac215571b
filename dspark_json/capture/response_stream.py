"""The bytes of a streamed response → the text of the response.

The last event holds the whole response, so the events before it are not parsed: only their types are looked at, for
those that this version does not know. A stream without a last event, or in another form than vLLM's, is read event by
event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import BOM, dumps, loads_to_write
from dspark_json.capture.response_events import KNOWN_EVENTS, LAST_EVENTS, PASSED_EVENTS, ResponseAssembly
from dspark_json.capture.scanner import value_spans
from dspark_json.capture.stream import EventReader, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.capture.pacing import Pacer

_DONE: Final = b"data: [DONE]"
_KNOWN: Final = frozenset(name.encode() for name in KNOWN_EVENTS)
_LAST: Final = frozenset(name.encode() for name in LAST_EVENTS)
_PASSED: Final = frozenset(name.encode() for name in PASSED_EVENTS)
_NAMED: Final = b"event: "
_DATA: Final = b"data: "
_EVENTS_A_TICK: Final = 512
# The data of vLLM's last event: the response, then these two.
_RESPONSE_FIRST: Final = b'{"response":'
_AFTER_RESPONSE: Final = re.compile(rb',"sequence_number":[0-9]{1,18},"type":"(response\.[a-z]+)"\}\Z')
_LONGEST_REST: Final = 80


@dataclass(slots=True)
class StreamedResponse:
    """What a stream amounts to.

    ``text`` is the response as JSON, ``response`` its value; empty where no event had one. ``is_last``: it came in a
    last event. ``done``: nothing of the answer is missing to the client. ``unknown`` are the texts of events of types
    that this version does not know, in order. ``error`` is an error event's value, ``bad_event`` the beginning of the
    first event that was none, ``bad_event_size`` its bytes.
    """

    text: bytes = b"{}"
    response: dict[str, Any] = field(default_factory=dict)
    is_last: bool = False
    done: bool = False
    unknown: list[bytes] = field(default_factory=list)
    error: Any = None
    bad_event: str | None = None
    bad_event_size: int = 0


def read_response_stream(bodies: Sequence[bytes], *, cut_off: bool, pacer: Pacer) -> StreamedResponse:
    """Read a whole stream from its messages' bodies; ``cut_off``: it was left in the middle."""
    return _from_last_event(b"".join(bodies), pacer) or _event_by_event(bodies, cut_off=cut_off, pacer=pacer)


def _from_last_event(stream: bytes, pacer: Pacer) -> StreamedResponse | None:
    """The response of a stream in vLLM's form that is whole: each event two lines, the last one a last event."""
    if b"\r" in stream or not stream.endswith(b"\n\n"):
        return None
    events = stream.split(b"\n\n")
    events.pop()
    if events and events[-1] == _DONE:
        events.pop()
    last = events.pop() if events else b""
    name, data = _name_and_data(last)
    if name not in _LAST:
        return None
    unknown: list[bytes] = []
    for number, event in enumerate(events, start=1):
        if number % _EVENTS_A_TICK == 0:
            pacer.tick()
        if event.startswith(_NAMED):
            end = event.find(b"\n", 7)
            if event[7:end] in _PASSED:
                continue
        if event.startswith(b":") and b"\n" not in event:  # a comment
            continue
        name_of_it, data_of_it = _name_and_data(event)
        if not name_of_it or name_of_it in _KNOWN:  # no name, an error, or a last event before the last
            return None
        unknown.append(data_of_it)
    text = _response_text(data, name, pacer)
    if text is None or any(part.startswith(BOM) for part in (text, *unknown)):  # a mark that would stay inside
        return None
    try:
        response = loads_to_write(text)
        if not isinstance(response, dict) or not all(isinstance(loads_to_write(event), dict) for event in unknown):
            return None
    except ValueError:
        return None
    return StreamedResponse(text, response, is_last=True, done=True, unknown=unknown)


def _name_and_data(event: bytes) -> tuple[bytes, bytes]:
    """The type and the data of an event of two lines; empty where it is none."""
    named, _, data = event.partition(b"\n")
    if named.startswith(_NAMED) and data.startswith(_DATA) and b"\n" not in data:
        return named[len(_NAMED) :], data[len(_DATA) :]
    return b"", b""


def _response_text(data: bytes, name: bytes, pacer: Pacer) -> bytes | None:
    """The response's text in the data of the last event; None if it is not one of that type."""
    rest = _AFTER_RESPONSE.search(data, max(0, len(data) - _LONGEST_REST))
    if data.startswith(_RESPONSE_FIRST) and rest is not None and rest[1] == name:
        return data[len(_RESPONSE_FIRST) : rest.start()]
    try:
        event = loads_to_write(data)
        if not isinstance(event, dict) or event.get("type") != name.decode():
            return None
        spans = value_spans(data, lambda path, key: path == () and key == "response", pacer)
        texts = [data[start:end] for start, end, _ in spans]
    except ValueError:
        return None
    return texts[-1] if texts else None


def _event_by_event(bodies: Sequence[bytes], *, cut_off: bool, pacer: Pacer) -> StreamedResponse:
    assembly = ResponseAssembly()
    reader = EventReader(assembly)
    for _ in reading(reader, bodies, cut_off=cut_off):
        pacer.tick()
    response = assembly.answer()
    return StreamedResponse(
        dumps(response),
        response,
        is_last=assembly.is_last,
        done=reader.done or assembly.is_last,
        unknown=[dumps(event) for event in assembly.unknown],
        error=assembly.error,
        bad_event=reader.bad_event,
        bad_event_size=reader.bad_event_size,
    )
