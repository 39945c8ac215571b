"""What is kept of a request (DESIGN §2 rule 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dspark_json.capture.captured import PARSED_BYTES
from dspark_json.capture.echo import Echo, requested_echo
from dspark_json.capture.endpoints import COMPLETIONS
from dspark_json.capture.jsontext import dumps
from dspark_json.capture.request_body import read_request
from dspark_json.capture.utf8 import json_string
from dspark_json.schema.requested import RequestedSchemas, requested_schemas

if TYPE_CHECKING:
    from dspark_json.capture.captured import Captured
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.settings import RequestCapture

SAMPLING_SETTINGS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "min_tokens",
    "n",
    "best_of",
    "echo",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "response_format",
    "structured_outputs",
    "guided_json",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "reasoning",
    "reasoning_effort",
    "include_reasoning",
    "stream_options",
    "ignore_eos",
    "priority",
    "service_tier",
    "truncation",
    "background",
    "store",
    "previous_response_id",
)

# A record may be nested 128 levels deep (DESIGN §6), three of them are around a setting.
_DEEPEST_SETTING: Final = 100


class RequestFacts(NamedTuple):
    """A request as far as the record needs it.

    ``kept`` is JSON text for ``_dspark.request``. ``stream`` is None where the request could not be read. ``echo`` is
    what the answer's texts may begin with, None where nothing is echoed.
    """

    model: str | None
    stream: bool | None
    kept: bytes
    schemas: RequestedSchemas
    echo: Echo | None = None


def request_facts(captured: Captured, mode: RequestCapture, pacer: Pacer) -> RequestFacts:
    """Look into a request; one above 256 KiB is not parsed."""
    parts = captured.request
    document: dict[str, Any] | None = None
    if parts is not None and captured.request_size <= PARSED_BYTES:
        parsed = read_request(captured)
        document = parsed if isinstance(parsed, dict) else None
    kept = b"null"
    if mode != "none" and document is not None:
        kept = _settings_text(_settings(document))
    if mode == "full" and parts is not None:
        members = kept[1:-1] if document is not None else b""
        kept = b"{" + members + (b"," if members else b"") + b'"body":' + json_string(parts, pacer) + b"}"
    if document is None:
        echo = Echo(in_logprobs=captured.path == COMPLETIONS) if captured.asks_for_echo else None
        return RequestFacts(None, None, kept, RequestedSchemas(), echo)
    model = document.get("model")
    return RequestFacts(
        model if isinstance(model, str) else None,
        bool(document.get("stream")),
        kept,
        requested_schemas(document),
        requested_echo(captured.path, document),
    )


def _settings(document: dict[str, Any]) -> dict[str, Any]:
    """The settings; the format that ``/v1/responses`` takes in ``text`` is told as the others' ``response_format``."""
    settings: dict[str, Any] = {key: document[key] for key in SAMPLING_SETTINGS if key in document}
    text = document.get("text")
    text_format = text.get("format") if isinstance(text, dict) else None
    if isinstance(text_format, dict) and "response_format" not in settings:
        kind = text_format.get("type")
        settings["response_format"] = {"type": kind}
        if kind == "json_schema":
            settings["response_format"][kind] = {key: value for key, value in text_format.items() if key != "type"}
    return settings


def _settings_text(settings: dict[str, Any]) -> bytes:
    """Settings as JSON; one that is nested so deeply that nobody could read the record is its JSON text (a string)."""
    try:
        text = dumps(settings)
        if text.count(b"{") + text.count(b"[") <= _DEEPEST_SETTING:
            return text
    except RecursionError:
        pass
    return dumps({key: value if _depth(value) <= _DEEPEST_SETTING else _text(value) for key, value in settings.items()})


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        depth += 1
    return depth


def _text(value: Any) -> str | None:
    """The JSON text of a value; None where it is nested deeper than anybody writes."""
    try:
        return dumps(value).decode()
    except RecursionError:
        return None
