"""What went wrong with an answer, as ``_dspark.error`` tells it: message, type and code, each a text or null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark_json.capture.jsontext import dumps, loads_to_write
from dspark_json.capture.redaction import may_quote, redact_error

if TYPE_CHECKING:
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.request_texts import Private
    from dspark_json.capture.response_stream import StreamedResponse
    from dspark_json.capture.stream import StreamReader

    Summary = dict[str, str | None]


def stream_error(
    error: Any, reader: StreamReader | StreamedResponse, private: Private | None, pacer: Pacer
) -> Summary | None:
    """What went wrong in a stream: the first ``error`` in it, else the first event that could not be read."""
    message = reader.bad_event
    if error is not None:
        if private is not None:
            error = loads_to_write(redact_error(dumps(error), private.texts, pacer))
        return _error_summary(error)
    if message is None:
        return None
    if private is not None:
        event = message.encode("utf-8", "replace")
        if private.echo is not None or may_quote(event, pacer, of_error=private.texts):
            message = (
                f"an event of {reader.bad_event_size} bytes that is no chunk may hold something of the request; it is "
                f"not kept (DSPARK_CAPTURE_REQUESTS={private.mode})"
            )
    return {"message": message, "type": "capture", "code": "bad_event"}


def response_error(answer: dict[str, Any]) -> Summary | None:
    """The error that an answer itself tells."""
    error = answer.get("error")
    if error is not None:
        return _error_summary(error)
    # What vLLM sent before its errors got an object of their own.
    return _error_summary(answer) if answer.get("object") == "error" else None


def _error_summary(error: Any) -> Summary:
    if not isinstance(error, dict):
        return {"message": _text_of(error), "type": None, "code": None}
    return {key: _text_of(error.get(key)) for key in ("message", "type", "code")}


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return dumps(value).decode()
