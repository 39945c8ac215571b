"""Chunks of a streamed chat or text completion → the object that the same call gives without streaming.

Field order and null fields follow vLLM's ``ChatCompletionResponse`` and ``CompletionResponse``
(vllm/entrypoints/openai/chat_completion/protocol.py, .../completion/protocol.py).
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

TOP_ORDER: Final = (
    "id",
    "object",
    "created",
    "model",
    "choices",
    "service_tier",
    "system_fingerprint",
    "usage",
    "prompt_logprobs",
    "prompt_token_ids",
    "prompt_text",
    "kv_transfer_params",
    "ec_transfer_params",
    "metrics",
)
MESSAGE_ORDER: Final = (
    "role",
    "content",
    "refusal",
    "annotations",
    "audio",
    "function_call",
    "tool_calls",
    "reasoning",
    "reasoning_content",
)
TEXT_CHOICE_ORDER: Final = (
    "index",
    "text",
    "logprobs",
    "finish_reason",
    "stop_reason",
    "token_ids",
    "prompt_logprobs",
    "prompt_token_ids",
    "routed_experts",
)
_LAST_WINS: Final = frozenset({"usage", "metrics"})
_REASONS: Final = frozenset({"finish_reason", "stop_reason"})
# Choices and tool calls of one answer together: twice what vLLM lets a request ask for. Each costs a kilobyte.
_MOST_PARTS: Final = 32_768
# Never final in the first chunk: these are looked at in every chunk.
_NEVER_SETTLED: Final = _LAST_WINS | {"error"}


class Assembly:
    """The answer of a stream so far.

    ``feed`` takes the stream's chunks in order; ``answer`` makes the object. ``error`` is the first error event's
    value (any JSON value that is not null), else None.
    """

    __slots__ = ("_choices", "_parts", "_settled", "_top", "error", "fed")

    def __init__(self) -> None:
        self.error: Any = None
        self.fed = 0
        self._top: Json = {}
        self._settled: set[str] = {"choices"}
        self._choices: dict[int, _Choice | _TextChoice] = {}
        self._parts = _Parts()

    def feed(self, chunk: Json) -> None:
        """Add a chunk; ``ValueError`` if it does not have the shape of one."""
        try:
            if not self._settled.issuperset(chunk):
                self._feed_top(chunk)
            for choice in chunk.get("choices") or ():
                index = choice.get("index", 0)
                state = self._choices.get(index)
                if state is None:
                    state = self._choices[index] = _new_choice(choice, self._parts)
                state.feed(choice)
        except (AttributeError, TypeError) as problem:
            raise ValueError("its choices are not those of a completion's chunk") from problem
        self.fed += 1

    def _feed_top(self, chunk: Json) -> None:
        top, settled = self._top, self._settled
        for key, value in chunk.items():
            if key in settled:
                continue
            if value is None:
                top.setdefault(key, None)
            elif key == "error":
                if self.error is None:
                    self.error = value
            else:
                top[key] = value
                if key not in _NEVER_SETTLED:
                    settled.add(key)

    def answer(self) -> Json:
        """The whole object; ``choices`` by index, None where the stream had no value."""
        top = dict(self._top)
        top.pop("error", None)
        top.setdefault("usage", None)
        kind = top.get("object")
        if isinstance(kind, str):
            top["object"] = kind.removesuffix(".chunk")
        top["choices"] = [self._choices[index].answer(index) for index in sorted(self._choices, key=_by_number)]
        return _in_order(top, TOP_ORDER)


def _by_number(index: object) -> tuple[bool, Any]:
    return (True, 0) if not isinstance(index, int) else (False, index)


def _in_order(fields: Json, order: tuple[str, ...]) -> Json:
    ordered = {key: fields[key] for key in order if key in fields}
    ordered.update(fields)  # keys that are there already keep their place
    return ordered


def _new_choice(first: Json, parts: _Parts) -> _Choice | _TextChoice:
    """The state for a choice whose first piece is ``first``: completions have ``text`` where chat has ``delta``."""
    parts.one_more()
    return _TextChoice() if "text" in first and "delta" not in first else _Choice(parts)


class _Parts:
    """Counts the choices and tool calls of an answer; ``ValueError`` for more than anybody asks for."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_PARTS

    def one_more(self) -> None:
        if not self._left:
            raise ValueError("too many choices and tool calls")
        self._left -= 1


class _Choice:
    """One choice of a streamed chat completion."""

    __slots__ = ("_call", "_fields", "_last_tool", "_logprobs", "_message", "_parts", "_text", "_tools")

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._text: dict[str, list[str]] = {}
        self._message: Json = {"role": None, "content": None}
        self._fields: Json = {"logprobs": None, "finish_reason": None, "stop_reason": None}
        self._call: _FunctionCall | None = None
        self._tools: dict[int, _Tool] = {}
        self._last_tool = -1
        self._logprobs: dict[str, Any] = {}

    def feed(self, choice: Json) -> None:
        fields = self._fields
        for key, value in choice.items():
            if value is None:
                if key not in fields:
                    fields[key] = None
            elif key == "delta":
                text = self._text
                for name, part in value.items():
                    if name in text and part.__class__ is str:
                        text[name].append(part)
                    else:
                        self._feed_delta(name, part)
            elif key != "index":
                self._feed_field(key, value)

    def _feed_delta(self, name: str, part: Any) -> None:
        message = self._message
        if part is None:
            message.setdefault(name, None)
        elif name == "tool_calls":
            message.setdefault(name, None)
            for call in part:
                self._tool(call).feed(call)
        elif name == "role":
            if message["role"] is None:
                message["role"] = part
        elif isinstance(part, str):
            message.setdefault(name, None)
            self._text.setdefault(name, []).append(part)
        elif name == "function_call":
            call = self._call or _FunctionCall()
            call.feed(part)
            self._call = call
            message.setdefault(name, None)
        else:
            _feed_value(message, name, part)

    def _tool(self, call: Json) -> _Tool:
        """The tool call that a delta goes on with; without an ``index``, a new ``id`` begins a new one."""
        tools = self._tools
        index = call.get("index")
        if not isinstance(index, int):
            index = self._last_tool
            if index < 0 or call.get("id") not in (None, tools[index].fields["id"]):
                index += 1
        tool = tools.get(index)
        if tool is None:
            self._parts.one_more()
            tool = tools[index] = _Tool()
            self._last_tool = max(self._last_tool, index)
        return tool

    def _feed_field(self, key: str, value: Any) -> None:
        if key == "logprobs" and isinstance(value, dict):
            _extend_logprobs(self._logprobs, value)
        else:
            _feed_value(self._fields, key, value)

    def answer(self, index: int) -> Json:
        message = dict(self._message)
        if self._call is not None:
            message["function_call"] = self._call.answer()
        for name, parts in self._text.items():
            message[name] = "".join(parts)
        if self._tools:
            message["tool_calls"] = [self._tools[index].answer() for index in sorted(self._tools)]
        fields = dict(self._fields)
        if self._logprobs:
            fields["logprobs"] = self._logprobs
        return {"index": index, "message": _in_order(message, MESSAGE_ORDER), **fields}


class _TextChoice:
    """One choice of a streamed text completion: what has no meaning of its own and is a string grows like the text."""

    __slots__ = ("_fields", "_logprobs", "_text")

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"text": []}
        self._fields: Json = {"logprobs": None, "finish_reason": None, "stop_reason": None}
        self._logprobs: dict[str, Any] = {}

    def feed(self, choice: Json) -> None:
        text, fields = self._text, self._fields
        for key, value in choice.items():
            if key in text and value.__class__ is str:
                text[key].append(value)
            elif value is None:
                if key not in fields:
                    fields[key] = None
            elif key == "logprobs" and isinstance(value, dict):
                _extend_logprobs(self._logprobs, value)
            elif isinstance(value, str) and key not in _REASONS:
                text[key] = [value]
            elif key != "index":
                _feed_value(fields, key, value)

    def answer(self, index: int) -> Json:
        fields = {"index": index, **self._fields, **{name: "".join(parts) for name, parts in self._text.items()}}
        if self._logprobs:
            fields["logprobs"] = self._logprobs
        return _in_order(fields, TEXT_CHOICE_ORDER)


def _extend_logprobs(known: dict[str, Any], more: Json) -> None:
    """Go on with the lists of logprobs, whatever they are called."""
    for name, items in more.items():
        list_so_far = known.get(name)
        if isinstance(list_so_far, list) and isinstance(items, list):
            list_so_far.extend(items)
        elif items is not None or name not in known:
            known[name] = list(items) if isinstance(items, list) else items


def _feed_value(fields: Json, key: str, value: Any) -> None:
    """Lists grow; of other values the last one counts."""
    if isinstance(value, list):
        known = fields.get(key)
        if isinstance(known, list):
            known.extend(value)
        else:
            fields[key] = list(value)
    else:
        fields[key] = value


class _FunctionCall:
    """The one call of a streamed choice in the form before tool calls."""

    __slots__ = ("_arguments", "_name")

    def __init__(self) -> None:
        self._name: Any = None
        self._arguments: list[str] = []

    def feed(self, call: Json) -> None:
        arguments = call.get("arguments") or ""
        if not isinstance(arguments, str):
            raise TypeError("arguments are no string")
        self._name = self._name or call.get("name")
        self._arguments.append(arguments)

    def answer(self) -> Json:
        return {"name": self._name, "arguments": "".join(self._arguments)}


class _Tool:
    """One tool call of a streamed choice."""

    __slots__ = ("_arguments", "_function", "fields")

    def __init__(self) -> None:
        self.fields: Json = {"id": None, "type": None}
        self._function: Json = {"name": None}
        self._arguments: list[str] = []

    def feed(self, call: Json) -> None:
        fields = self.fields
        for key, value in call.items():
            if key == "function":
                for name, part in (value or {}).items():
                    if name == "arguments":
                        if isinstance(part, str):
                            self._arguments.append(part)
                    elif self._function.get(name) is None:
                        self._function[name] = part
            elif key != "index" and fields.get(key) is None:
                fields[key] = value

    def answer(self) -> Json:
        function = {"name": self._function["name"], "arguments": "".join(self._arguments), **self._function}
        return {**self.fields, "function": function}
