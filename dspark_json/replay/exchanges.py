"""Recorded exchanges of several formats, as the messages that an application sends (``dspark-json replay``).

A JSON object each, a line each or all in one array:

- ``{"path", "request", "messages": [{"type": "start", "status", "headers"}, {"type": "body", "body", "more"}, …],
  "raised"}``: every ASGI message as it was;
- ``{"path", "request", "status", "headers" or "content_type", "chunks" or "chunks_latin1": […], "end"}``: the body's
  pieces; ``end`` is ``complete`` (if absent) or ``disconnect``;
- ``{"request", "body" or "events": […]}``: an answer, or the events of a stream without ``[DONE]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from dspark_json.capture.endpoints import RESPONSES
from dspark_json.errors import RecordedLineError
from dspark_json.replay.recording import ROUTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.replay.asgi import Message

_STREAM: Final = "text/event-stream; charset=utf-8"
_JSON: Final = "application/json"
_DONE: Final = "data: [DONE]\n\n"
_REMEDY: Final = "The formats are in `dspark-json replay --help`."


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """A request's body, and the messages of its answer; ``raised`` is what the application ended with."""

    path: str
    method: str
    request: bytes
    messages: tuple[Message, ...]
    raised: str | None = None

    @classmethod
    def of(cls, recorded: object) -> RecordedExchange:
        """Read one; raises ``RecordedLineError`` where it has none of the formats."""
        if not isinstance(recorded, dict):
            raise _bad("it is no object")
        request = recorded.get("request")
        path = recorded.get("path", _route_of(request))
        if not isinstance(path, str):
            raise _bad('it has no "path"')
        messages = _recorded(recorded["messages"]) if "messages" in recorded else _made(recorded, path)
        method, raised = recorded.get("method", "POST"), recorded.get("raised")
        if not isinstance(method, str) or not (raised is None or isinstance(raised, str)):
            raise _bad('its "method" or "raised" is no string')
        body = request.encode() if isinstance(request, str) else b"" if request is None else orjson.dumps(request)
        return cls(path, method, body, messages, raised)


def _recorded(messages: object) -> tuple[Message, ...]:
    if not isinstance(messages, list):
        raise _bad('its "messages" are no list')
    found: list[Message] = []
    for message in messages:
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "start":
            found.append(_start(message.get("status"), _headers(message.get("headers", []))))
        elif kind == "body" and isinstance(message.get("body"), str):
            found.append(_body(message["body"].encode("utf-8", "surrogatepass"), more=message.get("more") is True))
        else:
            raise _bad('its "messages" are not all of the type "start" or "body"')
    return tuple(found)


def _made(recorded: Mapping[str, Any], path: str) -> tuple[Message, ...]:
    pieces, content_type = _pieces(recorded, path)
    if "headers" in recorded:
        headers = _headers(recorded["headers"])
    else:
        headers = [(b"content-type", str(recorded.get("content_type", content_type)).encode())]
    end = recorded.get("end", "complete")
    if end not in ("complete", "disconnect"):
        raise _bad('its "end" is neither "complete" nor "disconnect"')
    messages = [_start(recorded.get("status", 200), headers), *(_body(piece, more=True) for piece in pieces)]
    if end == "complete":
        messages.append(_body(b"", more=False))
    return tuple(messages)


def _pieces(recorded: Mapping[str, Any], path: str) -> tuple[list[bytes], str]:
    """The body's pieces, and the content type where none is told."""
    encoding = "utf-8"
    if "events" in recorded:
        texts = [*_texts(recorded["events"]), *(() if path == RESPONSES else (_DONE,))]
    elif "body" in recorded:
        texts = _texts([recorded["body"]])
    elif "chunks_latin1" in recorded:
        texts, encoding = _texts(recorded["chunks_latin1"]), "latin-1"
    elif "chunks" in recorded:
        texts = _texts(recorded["chunks"])
    else:
        raise _bad('it has no "messages", "chunks", "events" or "body"')
    try:
        pieces = [text.encode(encoding) for text in texts]
    except UnicodeEncodeError:
        raise _bad("a piece of its body can't be written as bytes") from None
    is_stream = bool(texts) and texts[0].startswith(("data:", "event:", ":"))
    return pieces, _STREAM if is_stream else _JSON


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _bad("the pieces of its body are not a list of strings")
    return value


def _headers(headers: object) -> list[tuple[bytes, bytes]]:
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if isinstance(pairs, list):
        try:
            return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
        except (AttributeError, TypeError, UnicodeEncodeError, ValueError):
            pass
    raise _bad('its "headers" are no pairs of strings')


def _start(status: object, headers: list[tuple[bytes, bytes]]) -> Message:
    if not isinstance(status, int):
        raise _bad('its "status" is no number')
    return {"type": "http.response.start", "status": status, "headers": headers}


def _body(body: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def _route_of(request: object) -> str | None:
    if isinstance(request, dict):
        return next((path for path, member in ROUTES.items() if member in request), None)
    return None


def _bad(what: str) -> RecordedLineError:
    return RecordedLineError(what, remedy=_REMEDY)
