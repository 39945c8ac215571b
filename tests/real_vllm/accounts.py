"""An answer as a client received it and as its record keeps it, brought to one form, so that the two can be compared.

The form is ``{"id", "choices": {index: {"text", "reasoning", "calls", "logprobs", "finish_reason"}}, "usage"}``.
It is made here from the wire's own rules, with none of the product's code.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

Json = dict[str, Any]

# DESIGN §2 rule 8: what an answer echoes of its request.
ECHOES: Final = (
    "instructions",
    "input_messages",
    "prompt",
    "prompt_text",
    "prompt_token_ids",
    "prompt_logprobs",
    "tools",
)
_REASONS: Final = {"completed": "stop", "incomplete": "length"}


def received_answer(received: Json) -> Json:
    """What the client was told, from a body, from the chunks of a stream or from the events of the responses API."""
    if "body" in received:
        return _of_response(received["body"]) if _is_response(received["body"]) else _of_body(received["body"])
    chunks = received["chunks"]
    if "type" in chunks[0]:
        last = [event for event in chunks if event["type"] in {"response.completed", "response.incomplete"}]
        assert len(last) == 1, chunks[-1]
        return _of_response(last[0]["response"])
    return _of_chunks(chunks)


def recorded_answer(record: Json) -> Json:
    """What the record says, by its ``choices``, whatever the endpoint."""
    return _of_body(record)


def without_echo(body: Json) -> Json:
    """A body with what it echoes of its request taken out."""
    left = copy.deepcopy(body)
    for part in (left, *left.get("choices", ())):
        for name in ECHOES:
            if name in part:
                part[name] = None
    text = left.get("text")
    if isinstance(text, dict) and isinstance(text.get("format"), dict) and "schema" in text["format"]:
        text["format"]["schema"] = None
    return left


def comparable(record: Json) -> Json:
    """A record without what differs between two answers to one question.

    That is ids and times; nulls, which streams leave out; and beside calls of tools an empty content, which only
    streams have, and blanks in arguments, which only streams keep as the model wrote them.
    """
    left = {name: value for name, value in record.items() if name not in {"_dspark", "id", "created", "created_at"}}
    for choice in left.get("choices", ()):
        message = choice.get("message") or {}
        for call in message.get("tool_calls") or ():
            call["id"] = None
            call["function"]["arguments"] = json.loads(call["function"]["arguments"], strict=False)
            message["content"] = message["content"] or None
    for item in left.get("output", ()):
        item["id"] = None
    found: Json = _without_nulls(left)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _of_body(body: Json) -> Json:
    return {
        "id": body["id"],
        "choices": {choice["index"]: _of_choice(choice) for choice in body["choices"]},
        "usage": _usage(body.get("usage")),
    }


def _of_choice(choice: Json) -> Json:
    message = choice.get("message") or {"content": choice.get("text")}
    return {
        "text": message["content"] or None,
        "reasoning": message.get("reasoning") or None,
        "calls": [_call(call) for call in message.get("tool_calls") or ()],
        "logprobs": _tokens(choice.get("logprobs")),
        "finish_reason": choice["finish_reason"],
    }


def _of_chunks(chunks: list[Json]) -> Json:
    choices: dict[int, Json] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for part in chunk["choices"]:
            choice = choices.setdefault(
                part["index"], {"text": "", "reasoning": "", "calls": {}, "logprobs": [], "finish_reason": None}
            )
            delta = part.get("delta") or {"content": part.get("text")}
            choice["text"] += delta.get("content") or ""
            choice["reasoning"] += delta.get("reasoning") or ""
            choice["logprobs"] += _tokens(part.get("logprobs"))
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            for call in delta.get("tool_calls") or ():
                known = choice["calls"].setdefault(call["index"], ["", "", ""])
                for place, word in enumerate(_call(call)):
                    known[place] += word
    for choice in choices.values():
        choice["text"] = choice["text"] or None
        choice["reasoning"] = choice["reasoning"] or None
        choice["calls"] = [tuple(choice["calls"][index]) for index in sorted(choice["calls"])]
    return {"id": chunks[0]["id"], "choices": choices, "usage": _usage(usage)}


def _is_response(body: Json) -> bool:
    return body.get("object") == "response"


def _of_response(response: Json) -> Json:
    texts = [
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    ]
    choice = {
        "text": "".join(texts) or None,
        "reasoning": None,
        "calls": [],
        "logprobs": [],
        "finish_reason": _REASONS[response["status"]],
    }
    return {"id": response["id"], "choices": {0: choice}, "usage": _usage(response["usage"])}


def _call(call: Json) -> tuple[str, str, str]:
    function = call.get("function") or {}
    return call.get("id") or "", function.get("name") or "", function.get("arguments") or ""


def _tokens(logprobs: Json | None) -> list[tuple[str, float]]:
    """Tokens with their log probabilities, of chats (``content``) and of completions (``tokens``)."""
    if not logprobs:
        return []
    if "content" in logprobs:
        return [(token["token"], token["logprob"]) for token in logprobs["content"] or ()]
    return list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))


def _usage(usage: Json | None) -> dict[str, int] | None:
    if usage is None:
        return None
    return {name: value for name, value in usage.items() if isinstance(value, int)}
