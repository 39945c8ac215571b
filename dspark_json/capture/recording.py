"""A captured exchange → the record that the spool keeps (DESIGN §2 and §3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dspark_json.capture.answer_errors import response_error, stream_error
from dspark_json.capture.assembly import TOP_ORDER
from dspark_json.capture.captured import (
    ASSEMBLY_FULL,
    ENCODED,
    NOT_SEEN,
    PARSED_BYTES,
    TOO_LARGE,
    Captured,
    header,
    is_event_stream,
)
from dspark_json.capture.echo import cut_from_object
from dspark_json.capture.endpoints import RESPONSES
from dspark_json.capture.jsontext import BOM, dumps, loads_to_write
from dspark_json.capture.redaction import (
    is_answer,
    may_echo,
    may_quote,
    may_tell_an_error,
    redact_error,
    redact_errors_inside,
    redact_object,
    redact_parsed,
    redact_prompt,
    redact_text,
    redact_unknown,
)
from dspark_json.capture.request import request_facts
from dspark_json.capture.request_texts import Private, RequestTexts
from dspark_json.capture.response_stream import read_response_stream
from dspark_json.capture.responses import choices_member, is_finished
from dspark_json.capture.stream import read_stream
from dspark_json.capture.utf8 import json_string, one_line
from dspark_json.schema.protocol import UNFINISHED
from dspark_json.spool.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.capture.glance import Glance
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.registration import SchemaReference
    from dspark_json.capture.settings import RequestCapture
    from dspark_json.schema.requested import RequestedSchemas

    # Takes what a request names and when it came (µs); gives what its record refers to.
    RegisterSchemas = Callable[[RequestedSchemas, int], SchemaReference | None]

_BLANKS: Final = b" \t\r\n"
_OPENING: Final = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*")
_FIRST_ID: Final = re.compile(rb'\{\s*"id"\s*:\s*"([^"\\]{1,256})"')
_OK: Final = 200
_ERROR_STATUS: Final = 400
_STRANGER_STATUS: Final = (401, 403)  # who may not ask the server may not fill its registry of schemas either
_INTERNAL_SERVER_ERROR: Final = 500
_MISSING_MESSAGES: Final = {
    TOO_LARGE: "the answer is larger than DSPARK_MAX_RECORD_MB",
    ASSEMBLY_FULL: "the answers under way are larger than DSPARK_ASSEMBLY_MB",
    NOT_SEEN: "the server sent the answer's body from a file itself",
    ENCODED: "the answer's body is compressed (Content-Encoding)",
}


class Recording(NamedTuple):
    """A record, and what the counters want to know about it.

    ``failed``: an error status, or an error in the answer. ``untyped_model``: the model, where the request asked for
    ``json_object`` without a schema, else None.
    """

    record: Record
    failed: bool
    disconnected: bool
    untyped_model: str | None


@dataclass(slots=True)
class _Answer:
    """What a captured body amounts to: a JSON object's members, or a text that is none (as a JSON string literal).

    ``withheld``: the text may hold something of the request that is not to be kept, so it is not here either.
    """

    members: bytes = b""
    text: bytes = b"null"
    id: str | None = None
    model: str | None = None
    completed: bool | None = False
    disconnected: bool = False
    error: dict[str, str | None] | None = None
    withheld: bool = False


def make_recording(
    captured: Captured,
    mode: RequestCapture,
    pacer: Pacer,
    register_schemas: RegisterSchemas,
    *,
    glance: Glance | None = None,
) -> Recording:
    """The record of an exchange; ``pacer`` is asked between pieces of work.

    With a ``glance``, what is ordinary of the exchange is looked at natively; ``register_schemas`` may then get a
    schema as an ``orjson.Fragment``.

    Unless ``mode`` is ``full``, what echoes or quotes the request is taken out of a JSON answer, and a text that may do
    so is withheld: ``_dspark.body`` is null and ``_dspark.error``, where there is no other, has the code
    ``body_withheld`` and says how long it was. With ``none`` no schema is registered either.
    """
    request = None if glance is None else glance.request(captured)
    if request is None:
        request = request_facts(captured, mode, pacer)
    is_unregistered = mode == "none" or captured.status in _STRANGER_STATUS
    schema = None if is_unregistered else register_schemas(request.schemas, captured.received_at)
    streamed = is_event_stream(captured.headers)
    private = None
    if mode != "full":
        private = Private(mode, RequestTexts(captured, mode), request.echo)
    if captured.missing is not None:
        answer = _without_body(captured, captured.missing, streamed=streamed, pacer=pacer)
    else:
        echoes = private is not None and private.echo is not None
        glanced = None if echoes else _glanced(captured, glance, streamed=streamed)
        answer = glanced or _looked_at(captured, private, pacer, streamed=streamed)
    status = captured.status
    if captured.raised is not None:
        if status is None:  # whoever is around the hook answers with this
            status = _INTERNAL_SERVER_ERROR
            answer.disconnected = False
        if answer.error is None:
            answer.error = {
                "message": f"the application raised {captured.raised}",
                "type": captured.raised,
                "code": "app_exception",
            }
    if answer.withheld and answer.error is None:
        answer.error = {
            "message": f"a body of {captured.size} bytes that can't be read may hold something of the request; it is "
            f"not kept (DSPARK_CAPTURE_REQUESTS={mode})",
            "type": "capture",
            "code": "body_withheld",
        }
    if answer.error is None and status is not None and _is_failed(status):
        answer.error = {"message": _phrase(status), "type": "http", "code": str(status)}
    if status is None or answer.error is not None:
        answer.completed = False
    meta = {
        "request_id": captured.request_id
        or header(captured.request_headers, b"x-request-id")
        or header(captured.headers, b"x-request-id")
        or answer.id,
        "path": captured.path,
        "model": request.model if request.model is not None else answer.model,
        "status": status,
        "stream": streamed if request.stream is None else request.stream,
        "received_at": captured.received_at,
        "first_byte_ms": captured.first_byte_ms,
        "duration_ms": captured.duration_ms,
        "completed": answer.completed,
        "disconnected": answer.disconnected,
        "error": answer.error,
        "schema": schema,
    }
    return Recording(
        Record(
            b"".join((dumps(meta)[1:-1], b',"request":', request.kept, b',"body":', answer.text)),
            answer.members,
        ),
        failed=answer.error is not None,
        disconnected=answer.disconnected,
        untyped_model=(request.model or "") if request.schemas.json_object_without_schema else None,
    )


def salvage(captured: Captured, problem: BaseException, mode: RequestCapture, pacer: Pacer) -> Record:
    """A record for an exchange that ``make_recording`` failed on: the raw bytes as text, where they may be kept."""
    whole = b"".join(captured.body)
    asks_for_echo = captured.asks_for_echo or b'"echo"' in b"".join(captured.request or ())
    is_withheld = mode != "full" and (asks_for_echo or may_quote(whole, pacer, of_error=RequestTexts(captured, mode)))
    text = b"null" if is_withheld else json_string(captured.body, pacer)
    meta = {
        "request_id": None,
        "path": captured.path,
        "model": None,
        "status": captured.status,
        "stream": is_event_stream(captured.headers),
        "received_at": captured.received_at,
        "first_byte_ms": captured.first_byte_ms,
        "duration_ms": captured.duration_ms,
        "completed": False,
        "disconnected": not captured.ended,
        "error": {
            "message": f"the answer could not be read ({type(problem).__name__})",
            "type": "capture",
            "code": "capture_failed",
        },
        "schema": None,
        "request": None,
    }
    return Record(dumps(meta)[1:-1] + b',"body":' + text, b"")


def is_completed(answer: dict[str, Any]) -> bool:
    """Whether an answer (of a status below 400) is whole: no error, and each choice ended by itself."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or response_error(answer) is not None:
        return False
    for choice in choices:
        reason = choice.get("finish_reason") if isinstance(choice, dict) else None
        if reason is None or reason in UNFINISHED:
            return False
    return True


def _glanced(captured: Captured, glance: Glance | None, *, streamed: bool) -> _Answer | None:
    """An ordinary answer, told by native code; None for any other."""
    if glance is None or captured.status != _OK:
        return None
    seen, is_over = None, captured.ended
    if captured.path == RESPONSES:
        seen = glance.response(captured, streamed=streamed)
        is_over = is_over or streamed  # nothing is missing of a stream that had its last event
    elif streamed:
        stream = glance.stream(captured)
        if stream is not None:
            identity, model, is_whole, is_done, members = stream
            seen, is_over = (identity, model, is_whole, members), is_over or is_done
    elif captured.size <= PARSED_BYTES:
        seen = glance.answer(captured)
    if seen is None:
        return None
    identity, model, is_whole, members = seen
    return _Answer(members, id=identity, model=model, completed=is_whole, disconnected=not is_over)


def _looked_at(captured: Captured, private: Private | None, pacer: Pacer, *, streamed: bool) -> _Answer:
    """Any answer, told by way of its objects."""
    is_response = captured.path == RESPONSES
    if streamed and not _is_plain_error(captured):
        return _streamed_response(captured, private, pacer) if is_response else _streamed(captured, private, pacer)
    if captured.size > PARSED_BYTES and not is_response:  # whose choices are not in it, but made of it
        return _large(captured, private, pacer)
    return _small(captured, private, pacer)


def _is_plain_error(captured: Captured) -> bool:
    """Whether what calls itself a stream is an error without an event, which some servers send."""
    return _is_failed(captured.status) and bool(captured.body) and captured.body[0].lstrip(_BLANKS).startswith(b"{")


def _phrase(status: int) -> str:
    try:
        return f"status {status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return f"status {status}"


def _small(captured: Captured, private: Private | None, pacer: Pacer) -> _Answer:
    parts = captured.body
    text = parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        parsed = loads_to_write(text)
    except ValueError:
        parsed = None
    pacer.tick()
    if not isinstance(parsed, dict):
        return _as_text(captured, text, private, pacer)
    return _object(captured, text.removeprefix(BOM), parsed, private, pacer)


def _object(captured: Captured, text: bytes, parsed: dict[str, Any], private: Private | None, pacer: Pacer) -> _Answer:
    """A JSON object, ``text`` with the value ``parsed``."""
    if private is not None:
        text, parsed = _without(private, text, parsed, captured.status, pacer)
    members = _members(text)
    if captured.path == RESPONSES:
        members = b",".join(filter(None, (choices_member(parsed), members)))
        is_whole = is_finished(parsed) and response_error(parsed) is None
    else:
        is_whole = is_completed(parsed)
    if not members.isascii() or b"\n" in members or b"\r" in members:
        members = one_line((members,), pacer)
    return _Answer(
        members,
        id=_text_or_none(parsed.get("id")),
        model=_text_or_none(parsed.get("model")),
        completed=is_whole,
        disconnected=not captured.ended,
        error=response_error(parsed),
    )


def _without(
    private: Private, text: bytes, parsed: dict[str, Any], status: int | None, pacer: Pacer
) -> tuple[bytes, dict[str, Any]]:
    """An object without what is of the request: its text and its value (the one given may be changed)."""
    if may_echo(text, pacer):
        text = redact_parsed(text, parsed, pacer)
    kept = _without_quotes(private, text, pacer, is_error=_is_error(parsed, status))
    if private.echo is not None:
        kept = redact_prompt(kept, private.echo, pacer)
    return kept, parsed if kept is text else loads_to_write(kept)


def _without_quotes(private: Private, text: bytes, pacer: Pacer, *, is_error: bool) -> bytes:
    """The text of an object without what it quotes of the request, as an error or where it tells one."""
    if is_error:
        return redact_error(text, private.texts, pacer)
    return redact_errors_inside(text, private.texts, pacer) if may_tell_an_error(text, pacer) else text


def _is_failed(status: int | None) -> bool:
    return status is not None and status >= _ERROR_STATUS


def _is_error(answer: dict[str, Any], status: int | None) -> bool:
    """Whether all of an answer is an error, or at least no answer, rather than one with an error in it."""
    if _is_failed(status) or answer.get("object") == "error":
        return True
    choices = answer.get("choices")
    return not ((isinstance(choices, list) and choices) or isinstance(answer.get("output"), list))


def _is_stream_of_error(answer: dict[str, Any], status: int | None) -> bool:
    """The same for an answer that was put together, which may have ended before its first choice."""
    if not (answer["choices"] or status is None or _is_failed(status) or answer.get("object") == "error"):
        return any(answer[name] is not None for name in answer.keys() - TOP_ORDER)
    return _is_error(answer, status)


def _large(captured: Captured, private: Private | None, pacer: Pacer) -> _Answer:
    """A body that is not parsed here: ``completed`` is null, and readers judge it by the same rule."""
    text = one_line(captured.body, pacer).removeprefix(BOM).strip(_BLANKS)
    if not (captured.ended and text.startswith(b"{") and text.endswith(b"}")):
        return _as_text(captured, text, private, pacer)
    if private is not None:
        try:
            text = _redacted(text, captured.status, private, pacer)
        except ValueError:
            return _as_text(captured, text, private, pacer)
    first_id = _FIRST_ID.match(text)
    return _Answer(
        _members(text),
        id=first_id[1].decode("utf-8", "replace") if first_id is not None else None,
        completed=None,
    )


def _redacted(text: bytes, status: int | None, private: Private, pacer: Pacer) -> bytes:
    """The text of an object without what is of the request, found token by token; ``ValueError`` if it is none."""
    if may_echo(text, pacer):
        text = redact_text(text, pacer)
    text = _without_quotes(private, text, pacer, is_error=_is_failed(status) or not is_answer(text, pacer))
    return text if private.echo is None else redact_prompt(text, private.echo, pacer)


def _as_text(captured: Captured, text: bytes, private: Private | None, pacer: Pacer) -> _Answer:
    """A body that is no whole JSON object; ``text`` is its bytes, maybe on one line."""
    status = captured.status
    if status is None:
        return _Answer(disconnected=not captured.ended)
    is_withheld = False
    if private is not None:
        is_error = _is_failed(status) or may_tell_an_error(text, pacer) or not is_answer(text, pacer)
        of_error = private.texts if is_error else None
        is_withheld = private.echo is not None or may_quote(text, pacer, of_error=of_error)
    return _Answer(
        text=b"null" if is_withheld else json_string(captured.body, pacer),
        disconnected=_is_left(captured, text),
        withheld=is_withheld,
    )


def _streamed(captured: Captured, private: Private | None, pacer: Pacer) -> _Answer:
    reader = read_stream(captured.body, cut_off=not captured.ended, pacer=pacer)
    assembled = reader.assembly.answer()
    if private is not None:
        redact_object(assembled)
        if private.echo is not None:
            cut_from_object(assembled, private.echo)
    error = stream_error(reader.assembly.error, reader, private, pacer)
    text = dumps(assembled)
    if private is not None:
        is_error = _is_stream_of_error(assembled, captured.status)
        kept = _without_quotes(private, text, pacer, is_error=is_error)
        if kept is not text:
            text, assembled = kept, loads_to_write(kept)
    if error is None:
        error = response_error(assembled)
    return _Answer(
        text[1:-1],
        id=_text_or_none(assembled.get("id")),
        model=_text_or_none(assembled.get("model")),
        completed=error is None and is_completed(assembled),
        disconnected=not (captured.ended or reader.done),
        error=error,
    )


def _streamed_response(captured: Captured, private: Private | None, pacer: Pacer) -> _Answer:
    read = read_response_stream(captured.body, cut_off=not captured.ended, pacer=pacer)
    # No response begins with its prompt.
    own = None if private is None else replace(private, echo=None)
    answer = _object(captured, read.text, read.response, own, pacer)
    if read.unknown:
        events = read.unknown if own is None else [redact_unknown(event, own.texts, pacer) for event in read.unknown]
        member = b'"unknown_events":[' + one_line((b",".join(events),), pacer) + b"]"
        answer.members = b",".join(filter(None, (answer.members, member)))
    if answer.error is None:
        answer.error = stream_error(read.error, read, own, pacer)
    answer.completed = bool(answer.completed) and answer.error is None
    answer.disconnected = not (captured.ended or read.done)
    pacer.tick()
    return answer


def _without_body(captured: Captured, code: str, *, streamed: bool, pacer: Pacer) -> _Answer:
    answer = _Answer(
        disconnected=not captured.ended,
        error={"message": _MISSING_MESSAGES[code], "type": "capture", "code": code},
    )
    if streamed and captured.body:
        if captured.path == RESPONSES:
            first = read_response_stream(captured.body, cut_off=True, pacer=pacer).response
        else:
            first = read_stream(captured.body, cut_off=True, pacer=pacer).assembly.answer()
        names = () if _is_failed(captured.status) else ("id", "object", "created", "created_at", "model")
        head = {key: first[key] for key in names if key in first}
        answer.members = dumps(head)[1:-1]
        answer.id, answer.model = _text_or_none(head.get("id")), _text_or_none(head.get("model"))
    return answer


def _members(text: bytes) -> bytes:
    """What stands between the outer braces of a JSON object's text, copied once."""
    opening = _OPENING.match(text)
    start = opening.end() if opening is not None else 0
    end = text.rindex(b"}")
    while end > start and text[end - 1] in _BLANKS:
        end -= 1
    return text[start:end]


def _is_left(captured: Captured, text: bytes) -> bool:
    """Whether the client left: no whole answer, or vLLM's ``null`` for a client that left a non-streaming call."""
    return not captured.ended or (captured.status == 200 and text.strip(_BLANKS) == b"null")


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
