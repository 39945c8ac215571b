"""One line of text that says what a record holds."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import loads
from dspark_json.printable import printable

if TYPE_CHECKING:
    from dspark_json.cli.records import StoredRecord

_CONTENT_CHARACTERS: Final = 80
_WORD_CHARACTERS: Final = 200


def summary(record: StoredRecord) -> str:
    """Time, lane and number, status, model, finish reasons, tokens, and the beginning of the content.

    A request that failed has the error's message instead of what follows the model.

    Safe for a terminal: what came from outside is shown with its control characters escaped.
    """
    time = local_time(record.appended_at, "%H:%M:%S")
    head = f"{time}.{record.appended_at // 1000 % 1000:03} {record.lane}:{record.seq}"
    try:
        answer = loads(record.line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        text = record.line.decode(errors="replace").rstrip("\n")
        return printable(f"{head} ??? {text[:_CONTENT_CHARACTERS]}")
    about = _mapping(answer.get("_dspark"))
    choices = [choice for choice in _sequence(answer.get("choices")) if isinstance(choice, dict)]
    reasons = ",".join(str(choice.get("finish_reason") or "-") for choice in choices) or "-"
    usage = _mapping(answer.get("usage"))
    tokens = usage.get("total_tokens")
    parts = [
        head,
        _word(about.get("status") or "-"),
        _word(answer.get("model") or about.get("model") or "-"),
    ]
    message = _mapping(answer.get("error") or about.get("error")).get("message")
    if message and not choices:
        return printable(" ".join([*parts, f"error: {_word(message)}"]))
    parts += [
        _word(reasons),
        f"{'-' if tokens is None else _word(tokens)} tokens",
        " | ".join(_content(choice) for choice in choices) or "(no choices)",
    ]
    if about.get("completed") is False:
        parts.insert(2, "unfinished")
    return printable(" ".join(parts))


def _content(choice: dict[str, Any]) -> str:
    message = _mapping(choice.get("message"))
    text = message.get("content") or choice.get("text")
    if not isinstance(text, str) or not text:
        calls = [_mapping(_mapping(call).get("function")) for call in _sequence(message.get("tool_calls"))]
        text = ", ".join(f"{call.get('name')}({call.get('arguments')})" for call in calls) or "(no content)"
    return _cut(text, _CONTENT_CHARACTERS)


def _word(value: object) -> str:
    return _cut(str(value), _WORD_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def local_time(moment_us: int, form: str) -> str:
    """A time in µs since 1970 on this machine's clock; "?" for one that no calendar has."""
    try:
        return dt.datetime.fromtimestamp(moment_us // 1_000_000).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):
        return "?"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
