"""What the clients ask a real vLLM: every kind of answer it gives, streamed and not.

A question is what ``official_client.py`` reads: ``{"number", "call", "arguments", …}``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Question = dict[str, Any]

RISK: Final = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1000},
        "level": {"enum": ["low", "mid", "high"]},
        "reasons": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
    },
    "required": ["score", "level", "reasons"],
    "additionalProperties": False,
}
BOOK: Final = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "book a room",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 9}, "nights": {"type": "integer", "maximum": 30}},
            "required": ["city", "nights"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
# What a trained model writes by itself for the hermes parser to find.
HERMES: Final = r'<tool_call>\n\{"name": "book", "arguments": \{"city": "[a-z]{3,8}", "nights": [1-9]\}\}\n</tool_call>'

END_OF_THINKING: Final = "341"  # the number of </think> in the tokenizer of scripts/make_tiny_models.py

_MESSAGES: Final = {"model": "tiny", "messages": [{"role": "user", "content": "one order, in JSON"}]}
_PROMPT: Final = {"model": "tiny", "prompt": "order: "}
_INPUT: Final = {"model": "tiny", "input": "one order, in JSON"}
_USAGE: Final = {"stream_options": {"include_usage": True}}
_AS_RISK: Final = {"response_format": {"type": "json_schema", "json_schema": {"name": "risk", "schema": RISK}}}
_CUT: Final = {**_MESSAGES, **_AS_RISK, "max_tokens": 9}

# name: (call, arguments, how many of 500)
CHAT: Final[dict[str, tuple[str, dict[str, Any], int]]] = {
    "plain": ("chat", {**_MESSAGES, "max_tokens": 24}, 40),
    "plain streamed": ("chat.chunks", {**_MESSAGES, "max_tokens": 24}, 40),
    "schema": ("chat", {**_MESSAGES, **_AS_RISK, "max_tokens": 200}, 60),
    "schema streamed": ("chat.chunks", {**_MESSAGES, **_AS_RISK, **_USAGE, "max_tokens": 200}, 60),
    "parse helper": ("chat.parse", {**_MESSAGES, "max_tokens": 200}, 60),
    "stream helper": ("chat.stream", {**_MESSAGES, **_USAGE, **_AS_RISK, "max_tokens": 200}, 30),
    "typed stream helper": ("chat.stream_parse", {**_MESSAGES, **_USAGE, "max_tokens": 200}, 20),
    "cut off": ("chat", _CUT, 10),
    "cut off streamed": ("chat.chunks", {**_CUT, **_USAGE}, 10),
    "n=3": ("chat", {**_MESSAGES, **_AS_RISK, "n": 3, "max_tokens": 200}, 10),
    "n=3 streamed": ("chat.chunks", {**_MESSAGES, **_AS_RISK, **_USAGE, "n": 3, "max_tokens": 200}, 10),
    "any object": ("chat", {**_MESSAGES, "response_format": {"type": "json_object"}, "max_tokens": 60}, 10),
    "log probabilities": ("chat", {**_MESSAGES, "logprobs": True, "top_logprobs": 2, "max_tokens": 8}, 10),
    "log probabilities streamed": (
        "chat.chunks",
        {**_MESSAGES, **_USAGE, "logprobs": True, "top_logprobs": 2, "max_tokens": 8},
        10,
    ),
    "echo of the prompt": (
        "chat",
        {**_MESSAGES, "max_tokens": 4, "extra_body": {"prompt_logprobs": 1, "return_token_ids": True}},
        5,
    ),
    "echo of the prompt streamed": (
        "chat.chunks",
        {**_MESSAGES, **_USAGE, "max_tokens": 4, "extra_body": {"return_token_ids": True}},
        5,
    ),
    "running usage": (
        "chat.chunks",
        {**_MESSAGES, "stream_options": {"include_usage": True, "continuous_usage_stats": True}, "max_tokens": 12},
        10,
    ),
    "stop word": ("chat", {**_MESSAGES, "stop": ["e", "o"], "max_tokens": 60}, 10),
    "stop word streamed": ("chat.chunks", {**_MESSAGES, **_USAGE, "stop": ["e", "o"], "max_tokens": 60}, 10),
    "tool required": ("chat", {**_MESSAGES, "tools": [BOOK], "tool_choice": "required", "max_tokens": 200}, 15),
    "tool required streamed": (
        "chat.chunks",
        {**_MESSAGES, **_USAGE, "tools": [BOOK], "tool_choice": "required", "max_tokens": 200},
        15,
    ),
    "tool named": (
        "chat",
        {
            **_MESSAGES,
            "tools": [BOOK],
            "tool_choice": {"type": "function", "function": {"name": "book"}},
            "max_tokens": 200,
        },
        10,
    ),
    "tool named streamed": (
        "chat.chunks",
        {
            **_MESSAGES,
            **_USAGE,
            "tools": [BOOK],
            "tool_choice": {"type": "function", "function": {"name": "book"}},
            "max_tokens": 200,
        },
        10,
    ),
    "tool found": (
        "chat",
        {**_MESSAGES, "tools": [BOOK], "max_tokens": 200, "extra_body": {"structured_outputs": {"regex": HERMES}}},
        15,
    ),
    "tool found streamed": (
        "chat.stream",
        {
            **_MESSAGES,
            **_USAGE,
            "tools": [BOOK],
            "max_tokens": 200,
            "extra_body": {"structured_outputs": {"regex": HERMES}},
        },
        15,
    ),
    "unknown model": ("chat", {**_MESSAGES, "model": "nope"}, 5),
    "unknown model streamed": ("chat.chunks", {**_MESSAGES, "model": "nope"}, 5),
    "bad schema": (
        "chat",
        {
            **_MESSAGES,
            "response_format": {"type": "json_schema", "json_schema": {"name": "bad", "schema": {"type": "nonsense"}}},
        },
        5,
    ),
    "too long": ("chat", {**_MESSAGES, "max_tokens": 100_000}, 5),
}
COMPLETIONS: Final[dict[str, tuple[str, dict[str, Any], int]]] = {
    "completion": ("completions", {**_PROMPT, "max_tokens": 12}, 5),
    "completion streamed": ("completions.chunks", {**_PROMPT, **_USAGE, "max_tokens": 12}, 5),
    "two prompts": (
        "completions",
        {**_PROMPT, "prompt": ["a", "b"], "n": 2, "logprobs": 1, "max_tokens": 6},
        5,
    ),
    "two prompts streamed": (
        "completions.chunks",
        {**_PROMPT, **_USAGE, "prompt": ["a", "b"], "n": 2, "logprobs": 1, "max_tokens": 6},
        5,
    ),
    "completion by schema": (
        "completions",
        {**_PROMPT, "max_tokens": 200, "extra_body": _AS_RISK},
        5,
    ),
    "completion by schema streamed": (
        "completions.chunks",
        {**_PROMPT, **_USAGE, "max_tokens": 200, "extra_body": _AS_RISK},
        5,
    ),
}
_RISK_TEXT: Final = {"text": {"format": {"type": "json_schema", "name": "risk", "schema": RISK, "strict": True}}}
RESPONSES: Final[dict[str, tuple[str, dict[str, Any], int]]] = {
    "response": ("responses", {**_INPUT, "max_output_tokens": 12}, 6),
    "response streamed": ("responses.chunks", {**_INPUT, "max_output_tokens": 12}, 6),
    "response by schema": ("responses", {**_INPUT, **_RISK_TEXT, "max_output_tokens": 200}, 6),
    "response by schema streamed": ("responses.stream", {**_INPUT, **_RISK_TEXT, "max_output_tokens": 200}, 6),
    "response parse helper": ("responses.parse", {**_INPUT, "max_output_tokens": 200}, 6),
}


# For a server with a reasoning parser: the model is helped to end its thinking, after which the schema holds.
_THINKING: Final = {**_MESSAGES, **_AS_RISK, "max_tokens": 250, "logit_bias": {END_OF_THINKING: 4}}
THINKING: Final[dict[str, tuple[str, dict[str, Any], int]]] = {
    "thinking": ("chat", _THINKING, 40),
    "thinking streamed": ("chat.chunks", {**_THINKING, **_USAGE}, 40),
}


def questions(*tables: dict[str, tuple[str, dict[str, Any], int]]) -> list[Question]:
    """Questions of every kind, mixed, as many as the tables say; numbers are ``<kind>-<n>`` with dashes for blanks."""
    kinds = [(name, *row) for table in tables for name, row in table.items()]
    rounds = (
        [question(f"{name}-{number}", call, arguments) for name, call, arguments, count in kinds if number < count]
        for number in range(max(count for *_, count in kinds))
    )
    return list(itertools.chain.from_iterable(rounds))


def question(number: str, call: str, arguments: dict[str, Any], **more: object) -> Question:
    return {"number": number.replace(" ", "-").replace("=", ""), "call": call, "arguments": arguments, **more}


def kind(number: str) -> str:
    """The kind of the question with this number."""
    return number.rsplit("-", 1)[0]


def both_ways() -> dict[str, list[Question]]:
    """Questions to compare a kind's streamed record with the other one: the same seeds both ways, usage in both."""
    found = {}
    for table in (CHAT, COMPLETIONS, RESPONSES):
        for name in table:
            if f"{name} streamed" in table:
                found[name] = [
                    question(f"both {form}-{seed}", call, _comparable(call, arguments, seed))
                    for seed in (1, 2)
                    for form in (name, f"{name} streamed")
                    for call, arguments, _ in (table[form],)
                ]
    return found


def _comparable(call: str, arguments: dict[str, Any], seed: int) -> dict[str, Any]:
    if call.startswith("responses"):  # its client has no seed
        return {**arguments, "extra_body": {**arguments.get("extra_body", {}), "seed": seed}}
    has_usage = call.endswith((".chunks", ".stream"))
    return {**arguments, "seed": seed, **(_USAGE if has_usage else {})}


def leaving() -> Iterator[Question]:
    """Clients that leave: after some chunks of a long stream, and while they wait for an answer that is no stream."""
    long = {**_MESSAGES, "max_tokens": 1500, "extra_body": {"ignore_eos": True}}
    for number in range(6):
        yield question(f"left-stream-{number}", "chat.chunks", {**long, **_USAGE}, chunks=4 + number)
        yield question(f"left-wait-{number}", "chat", long, seconds=0.5)
