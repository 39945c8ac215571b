"""A response of ``/v1/responses`` in the form of a chat completion (DESIGN §2 rule 3), and whether it is whole.

Items as in vLLM's ``ResponsesResponse.output`` (vllm/entrypoints/openai/responses/protocol.py) and OpenAI's
``ResponseOutputItem``. What has no place in a chat message (calls of the server's own tools, annotations) is in the
record's ``output`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

FINISHED: Final = frozenset({"completed", "incomplete"})
_FINISH_REASONS: Final = {"completed": "stop", "failed": "error", "cancelled": "abort"}
_INCOMPLETE_REASONS: Final = {"max_output_tokens": "length", None: "length"}


def chat_choices(response: Json) -> list[Json]:
    """The one choice that a response is in the chat form; none where it has said nothing and is not finished.

    ``content`` is all text of the answer (of items in the phase ``commentary`` only where there is nothing else), null
    where it has none; ``reasoning`` is the reasoning items' text, else their summaries; ``tool_calls`` are the calls of
    functions, with the ``call_id`` that their outputs refer to. ``finish_reason`` is ``stop`` for a completed response,
    ``length`` for one that reached ``max_output_tokens`` (else the reason given), ``error`` and ``abort`` for a failed
    and a cancelled one.
    """
    output = response.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    status = response.get("status")
    if not items and not is_finished(response):
        return []
    parts = [part for item in _answering(items) for part in _objects(item.get("content"))]
    message: Json = {"role": "assistant", "content": _joined(part.get("text") for part in parts)}
    refusal = _joined(part.get("refusal") for part in parts)
    if refusal is not None:
        message["refusal"] = refusal
    calls = [_call(item) for item in items if item.get("type") == "function_call"]
    if calls:
        message["tool_calls"] = calls
    reasoning = [_reasoning(item) for item in items if item.get("type") == "reasoning"]
    if any(text is not None for text in reasoning):
        message["reasoning"] = "\n".join(text for text in reasoning if text is not None)
    logprobs = [token for part in parts for token in _list(part.get("logprobs"))]
    return [
        {
            "index": 0,
            "message": message,
            "logprobs": {"content": logprobs} if logprobs else None,
            "finish_reason": _finish_reason(status, response.get("incomplete_details")),
        }
    ]


def choices_member(response: Json) -> bytes:
    """The member ``choices`` to stand before those of a response, which can't make its own; empty: none is due."""
    choices = chat_choices(response)
    if choices or "choices" in response or "output" in response:
        return b'"choices":' + dumps(choices)
    return b""


def is_finished(response: Json) -> bool:
    """Whether the response came to its end (DESIGN §2 rule 4); an error in it is for the caller to see."""
    status = response.get("status")
    return isinstance(status, str) and status in FINISHED


def _finish_reason(status: object, details: object) -> str | None:
    if status == "incomplete":
        reason = details.get("reason") if isinstance(details, dict) else None
        if reason is None or isinstance(reason, str):
            return _INCOMPLETE_REASONS.get(reason, reason)
        return "length"
    return _FINISH_REASONS.get(status) if isinstance(status, str) else None


def _answering(items: list[Json]) -> list[Json]:
    messages = [item for item in items if item.get("type") == "message"]
    return [item for item in messages if item.get("phase") != "commentary"] or messages


def _reasoning(item: Json) -> str | None:
    text = _joined(part.get("text") for part in _objects(item.get("content")))
    return text if text is not None else _joined(part.get("text") for part in _objects(item.get("summary")))


def _call(item: Json) -> Json:
    return {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": item.get("name"), "arguments": item.get("arguments")},
    }


def _joined(texts: Iterator[object]) -> str | None:
    found = [text for text in texts if isinstance(text, str)]
    return "".join(found) if found else None


def _objects(value: object) -> list[Json]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
