"""What is kept of a request (DESIGN §2 rule 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.captured import PARSED_BYTES
from dspark_json.capture.jsontext import dumps, loads
from dspark_json.capture.utf8 import json_string

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
    "n",
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
    "reasoning_effort",
    "stream_options",
    "ignore_eos",
    "priority",
)


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request as far as the record needs it.

    ``kept`` is JSON text for ``_dspark.request``. ``stream`` is None where the request could not be read.
    """

    model: str | None
    stream: bool | None
    kept: bytes
    json_object_without_schema: bool


def request_facts(captured: Captured, mode: RequestCapture, pacer: Pacer) -> RequestFacts:
    """Look into a request; one above 256 KiB is not parsed."""
    parts = captured.request
    document: dict[str, Any] | None = None
    if parts is not None and captured.request_size <= PARSED_BYTES:
        try:
            parsed = loads(parts[0] if len(parts) == 1 else b"".join(parts))
        except ValueError:
            parsed = None
        document = parsed if isinstance(parsed, dict) else None
    kept = b"null"
    if mode != "none" and document is not None:
        kept = dumps({key: document[key] for key in SAMPLING_SETTINGS if key in document})
    if mode == "full" and parts is not None:
        members = kept[1:-1] if document is not None else b""
        kept = b"{" + members + (b"," if members else b"") + b'"body":' + json_string(parts, pacer) + b"}"
    if document is None:
        return RequestFacts(None, None, kept, json_object_without_schema=False)
    model, stream, response_format = document.get("model"), document.get("stream"), document.get("response_format")
    return RequestFacts(
        model if isinstance(model, str) else None,
        bool(stream),
        kept,
        json_object_without_schema=isinstance(response_format, dict) and response_format.get("type") == "json_object",
    )
