"""Recorded exchanges: what they asked for, what the server answered, and how fast."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import orjson

from dspark_json.capture.endpoints import CHAT, COMPLETIONS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# One recording holds the first request of a cold server (22 s); nobody wants to wait for that again.
MAX_FIRST_TOKEN_SEC: Final = 0.1
_DEFAULT_FIRST_TOKEN_SEC: Final = 0.010
_DEFAULT_TOKEN_SEC: Final = 0.005  # for the recordings without figures of their own: what the others show

# The member that every request to a route has, and how the ids of the route's answers begin.
ROUTES: Final = {CHAT: "messages", COMPLETIONS: "prompt", RESPONSES: "input"}
ID_PREFIXES: Final = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-", RESPONSES: "resp_"}

# Of tool calls and of the items of responses.
_INNER_ID: Final = re.compile(rb"(chatcmpl-tool-|msg_|fc_|rs_)[0-9a-f]{16}")
_CREATED: Final = re.compile(rb'("created(?:_at)?":)\d+')


@dataclass(frozen=True, slots=True)
class Traits:
    """What decides which recording fits a request."""

    path: str
    stream: bool
    kind: str  # "json_schema", "json_object", "structured", "tools" or "text"
    name: str  # of the JSON Schema, or the tool choice
    choices: int
    logprobs: bool
    usage: bool

    @classmethod
    def of(cls, path: str, request: Mapping[str, Any]) -> Traits:
        """Read the traits off a request to a route."""
        kind, name = "text", ""
        response_format = request.get("response_format")
        if path == RESPONSES:
            text = request.get("text")
            response_format = text.get("format") if isinstance(text, dict) else None
        if isinstance(response_format, dict) and response_format.get("type") in {"json_schema", "json_object"}:
            kind = response_format["type"]
            json_schema = response_format if path == RESPONSES else response_format.get("json_schema")
            name = str(json_schema.get("name", "")) if isinstance(json_schema, dict) else ""
        elif request.get("structured_outputs"):
            kind = "structured"
        elif request.get("tools"):
            kind = "tools"
            choice = request.get("tool_choice", "auto")
            name = choice if isinstance(choice, str) else "named"
        options = request.get("stream_options")
        return cls(
            path=path,
            stream=request.get("stream") is True,
            kind=kind,
            name=name,
            choices=(request["n"] if isinstance(request.get("n"), int) else 1) * _prompts(path, request),
            logprobs=bool(request.get("logprobs")),
            usage=isinstance(options, dict) and options.get("include_usage") is True,
        )

    def likeness(self, other: Traits) -> int:
        """How well a recording with ``other`` traits stands in for a request with these; -1 for not at all."""
        if (self.path, self.stream) != (other.path, other.stream):
            return -1
        same_kind = self.kind == other.kind
        return (
            16 * same_kind
            + 8 * (same_kind and self.name == other.name)
            + 4 * (self.choices == other.choices)
            + 2 * (self.logprobs == other.logprobs)
            + (self.usage == other.usage)
        )


def _prompts(path: str, request: Mapping[str, Any]) -> int:
    """How many prompts a request has: a list of texts, or of lists of tokens, are several."""
    prompt = request.get("prompt")
    if path != COMPLETIONS or not isinstance(prompt, list) or all(isinstance(item, int) for item in prompt):
        return 1
    return len(prompt)


@dataclass(frozen=True, slots=True)
class Pacing:
    """Seconds until the first token, and between two tokens (or server-sent events)."""

    first: float
    step: float

    @classmethod
    def recorded(cls, metrics: Mapping[str, Any] | None) -> Pacing:
        """Take the pace from a response's ``metrics`` object (milliseconds)."""
        figures = metrics or {}
        first, step = figures.get("time_to_first_token_ms"), figures.get("mean_itl_ms")
        return cls(
            min(first / 1000, MAX_FIRST_TOKEN_SEC) if first else _DEFAULT_FIRST_TOKEN_SEC,
            step / 1000 if step else _DEFAULT_TOKEN_SEC,
        )


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded answer: its body, or its server-sent events in order.

    Where the route closes its streams with ``data: [DONE]``, that is not among them.
    """

    name: str
    traits: Traits
    pacing: Pacing
    answer_id: bytes
    tokens: int
    parts: tuple[bytes, ...]

    def render(self, answer_id: str, created: int) -> list[bytes]:
        """The parts with another id (in all of them the same), another time, and other ids of what is inside."""
        new_id, new_created = answer_id.encode(), rb"\g<1>%d" % created
        inner_ids: dict[bytes, bytes] = {}

        def renamed(match: re.Match[bytes]) -> bytes:
            return inner_ids.setdefault(match[0], match[1] + secrets.token_hex(8).encode())

        return [
            _INNER_ID.sub(renamed, _CREATED.sub(new_created, part.replace(self.answer_id, new_id, 1), count=1))
            for part in self.parts
        ]


def packaged_recordings() -> list[Recording]:
    """All recordings that come with the package."""
    recordings = []
    for line in _lines("exchanges.jsonl"):
        texts = line["events"] if "events" in line else [line["body"]]
        request = line["request"]
        path = next(path for path, member in ROUTES.items() if member in request)
        recordings.append(_recording(line["name"], Traits.of(path, request), texts))
    for number, line in enumerate(_lines("answers.jsonl")):
        traits = Traits(CHAT, False, "json_schema", line["schema"], choices=1, logprobs=False, usage=False)
        recordings.append(_recording(f"answer_{number:03}", traits, [line["body"]]))
    return recordings


def packaged_request(name: str) -> dict[str, Any]:
    """The request that the recording called ``name`` answered."""
    for line in _lines("exchanges.jsonl"):
        if line["name"] == name:
            request: dict[str, Any] = line["request"]
            return request
    raise KeyError(name)


def _recording(name: str, traits: Traits, texts: list[str]) -> Recording:
    datas = [orjson.loads(text[text.find("{") :]) for text in texts]
    objects = [data.get("response", data) for data in datas]
    metrics = next((o["metrics"] for o in objects if o.get("metrics")), None)
    usage: dict[str, Any] = next((o["usage"] for o in reversed(objects) if o.get("usage")), {})
    return Recording(
        name=name,
        traits=traits,
        pacing=Pacing.recorded(metrics),
        answer_id=objects[0]["id"].encode(),
        tokens=usage.get("completion_tokens", usage.get("output_tokens", len(texts))),
        parts=tuple(text.encode() for text in texts),
    )


def _lines(name: str) -> Iterator[dict[str, Any]]:
    text = resources.files("dspark_json.replay").joinpath("recordings", name).read_bytes()
    for line in text.splitlines():
        yield orjson.loads(line)
