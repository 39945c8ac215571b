"""A line of somebody's log → an exchange, as if its answer had just been captured.

Two kinds of lines: an answer as the API gives it, and the output of a batch
(``{"id","custom_id","response":{"status_code","request_id","body"},"error"}``), as ``vllm run-batch``
(vllm/entrypoints/launchers/run_batch.py) and OpenAI write it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from dspark_json.capture.captured import Captured
from dspark_json.capture.endpoints import CHAT, COMPLETIONS, RESPONSES
from dspark_json.capture.jsontext import BOM, dumps, loads_to_write
from dspark_json.errors import RecordedLineError

_JSON_HEADERS: Final = ((b"content-type", b"application/json"),)
_OK: Final = 200
_STATUSES: Final = range(100, 600)
_ERROR_STATUSES: Final = range(400, 600)
_PATHS: Final = {"chat.completion": CHAT, "text_completion": COMPLETIONS, "response": RESPONSES}
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_MICROSECONDS: Final = 1_000_000
_DECODER: Final = json.JSONDecoder()
_PIECES_OF_EXCHANGES: Final = ("messages", "chunks", "chunks_latin1", "events")
_WANTED: Final = "Give answers of the API, or the output of a batch, one JSON object a line."


def imported_exchange(line: bytes) -> Captured:
    """The exchange whose answer a line holds.

    ``custom_id`` of a batch's line becomes the request's id, else the batch's ``request_id``. An error of a batch
    without a body becomes the answer ``{"error": …}``. The time is the answer's ``created``, else now. What was asked
    is not known. Raises ``RecordedLineError`` where the line is none of the two kinds.
    """
    if line.removeprefix(BOM).lstrip().startswith(b"["):
        raise _bad(
            "an array begins there",
            remedy="Give one object a line (`jq -c '.[]'`); an array of exchanges is for `dspark-json replay`.",
        )
    try:
        value = loads_to_write(line)
    except ValueError:
        raise _bad("it is not JSON") from None
    if not isinstance(value, dict):
        raise _bad("it is JSON, but no object")
    if "_dspark" in value:
        raise _bad("it is a record of a spool", remedy="Read that spool itself.")
    if _is_exchange(value):
        raise _bad("it is a recorded exchange", remedy="Use `dspark-json replay` for those.")
    if "url" in value and "response" not in value:
        raise _bad("it is a request of a batch, not its output")
    if _is_of_batch(value):
        return _of_batch(line, value)
    path = _path_of(value)
    status = _error_status(value) if _is_error(value) else _OK
    return _captured(path, status, line.strip().removeprefix(BOM), value, None)


def is_answer(value: object) -> bool:
    """Whether something looks like one of the two kinds: what ``dspark-json import`` is for."""
    if not isinstance(value, dict) or _is_exchange(value):
        return False
    is_whole = value.get("object") in [*_PATHS] or "choices" in value or isinstance(value.get("output"), list)
    return is_whole or _is_of_batch(value) or _is_error(value)


def _is_exchange(value: dict[str, Any]) -> bool:
    """Whether it looks like a recorded exchange: an answer in pieces, or as a text, beside its request or route."""
    if value.keys().isdisjoint(("request", "path")) or "choices" in value or isinstance(value.get("response"), dict):
        return False
    return isinstance(value.get("body"), str) or not value.keys().isdisjoint(_PIECES_OF_EXCHANGES)


def _is_of_batch(value: dict[str, Any]) -> bool:
    return "custom_id" in value or isinstance(value.get("response"), dict)


def _of_batch(line: bytes, value: dict[str, Any]) -> Captured:
    response = value.get("response")
    if response is not None and not isinstance(response, dict):
        raise _bad("its response is no object")
    status: int | None = None
    body: Any = None
    if response is not None:
        body, code = response.get("body"), response.get("status_code", _OK)
        status = code if isinstance(code, int) and code in _STATUSES else None
    error = value.get("error")
    request_id = value.get("custom_id")
    if request_id is None and response is not None:
        request_id = response.get("request_id")
    if isinstance(body, dict):
        path = _path_of(body)
        text = _text_of(line, body)
        if error is not None and body.get("error") is None:
            body, text = {**body, "error": error}, dumps({**body, "error": error})
    elif error is not None:
        path, body = None, _error_answer(error)
        text = dumps(body)
    elif isinstance(body, str):
        path, text, body = None, body.encode("utf-8", "replace"), {}
    else:
        raise _bad("it has neither a body nor an error")
    return _captured(path, status, text, body, _as_text(request_id))


def _captured(
    path: str | None, status: int | None, text: bytes, answer: dict[str, Any], request_id: str | None
) -> Captured:
    return Captured(
        path=path,
        request_headers=(),
        request=None,
        request_size=0,
        status=status,
        headers=_JSON_HEADERS,
        body=[text],
        size=len(text),
        missing=None,
        received_at=_time_of(answer),
        first_byte_ms=None,
        duration_ms=None,
        ended=True,
        raised=None,
        request_id=request_id,
    )


def _path_of(answer: dict[str, Any]) -> str | None:
    """The route that gives such answers; None for an error, which any may give."""
    kind = answer.get("object")
    if isinstance(kind, str) and kind in _PATHS:
        return _PATHS[kind]
    if _is_error(answer):
        return None
    if kind is not None:
        what = "a chunk of a stream" if str(kind).endswith(".chunk") else f"an object {json.dumps(kind)[:80]}"
        raise _bad(f"it is {what}, not a whole answer of chat, completions or responses")
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        if "message" in choices[0]:
            return CHAT
        if "text" in choices[0]:
            return COMPLETIONS
    if isinstance(answer.get("output"), list):
        return RESPONSES
    raise _bad("it has neither choices nor an output nor an error")


def _is_error(answer: dict[str, Any]) -> bool:
    return answer.get("object") == "error" or ("choices" not in answer and answer.get("error") is not None)


def _error_status(answer: dict[str, Any]) -> int | None:
    """The HTTP status that an error tells as its code."""
    error = answer.get("error", answer)
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code in _ERROR_STATUSES else None


def _error_answer(error: object) -> dict[str, Any]:
    """An error of a batch as an answer; ``vllm run-batch`` puts a whole answer there, or a text."""
    if isinstance(error, dict):
        return error if isinstance(error.get("error"), dict) else {"error": error}
    return {"error": {"message": _as_text(error)}}


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else dumps(value).decode()


def _text_of(line: bytes, body: dict[str, Any]) -> bytes:
    """The body as it stands in the line, so that its numbers stay as they were written."""
    text = line.decode("utf-8", "replace")
    start = text.find('"body"')
    while start >= 0:
        value = text.find("{", start)
        if value >= 0 and not text[start + len('"body"') : value].strip(" \t\r:"):
            try:
                _, end = _DECODER.raw_decode(text, value)
            except (ValueError, RecursionError):
                break
            if loads_to_write(text[value:end].encode("utf-8", "surrogatepass")) == body:
                return text[value:end].encode("utf-8", "surrogatepass")
        start = text.find('"body"', start + 1)
    return dumps(body)


def _time_of(answer: dict[str, Any]) -> int:
    """When the answer was made, in µs since the epoch."""
    for name in ("created", "created_at"):
        seconds = answer.get(name)
        if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds <= _LAST_SECOND:
            return int(seconds * _MICROSECONDS)
    return time.time_ns() // 1000


def _bad(what: str, *, remedy: str = _WANTED) -> RecordedLineError:
    return RecordedLineError(what, remedy=remedy)
