"""The events of a streamed response → the response so far, for a stream that ends without its last event.

Events as OpenAI's ``ResponseStreamEvent`` and vLLM's ``StreamingResponsesResponse`` have them
(vllm/entrypoints/openai/responses/protocol.py): an item is announced, grows by deltas, and comes whole when it is done.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

Json = dict[str, Any]

# The response in one of these is the whole answer; a client waits for nothing more.
LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Growing(NamedTuple):
    """Where the text of an event's deltas goes: the list of parts (None: the item itself), the member, and the types
    of a part and of an item that were not announced."""

    parts: str | None
    member: str
    part_type: str
    item_type: str


_GROWING: Final = {
    "response.output_text": _Growing("content", "text", "output_text", "message"),
    "response.refusal": _Growing("content", "refusal", "refusal", "message"),
    "response.reasoning_text": _Growing("content", "text", "reasoning_text", "reasoning"),
    "response.reasoning_summary_text": _Growing("summary", "text", "summary_text", "reasoning"),
    "response.function_call_arguments": _Growing(None, "arguments", "", "function_call"),
    "response.mcp_call_arguments": _Growing(None, "arguments", "", "mcp_call"),
    "response.custom_tool_call_input": _Growing(None, "input", "", "custom_tool_call"),
    "response.code_interpreter_call_code": _Growing(None, "code", "", "code_interpreter_call"),
}
_PARTS: Final = {
    "response.content_part": "content",
    "response.reasoning_part": "content",
    "response.reasoning_summary_part": "summary",
}
_STATES: Final = {
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "image_generation_call": ("in_progress", "generating", "partial_image", "completed"),
    "mcp_call": ("in_progress", "completed", "failed"),
    "mcp_list_tools": ("in_progress", "completed", "failed"),
    "web_search_call": ("in_progress", "searching", "completed"),
}
# What says nothing that the whole response would not say as well.
KNOWN_EVENTS: Final = frozenset(
    {
        *LAST_EVENTS,
        "error",
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.annotation.added",
        *(f"{name}.{end}" for name in _GROWING for end in ("delta", "done")),
        *(f"{name}.{end}" for name in _PARTS for end in ("added", "done")),
        *(f"response.{call}.{state}" for call, states in _STATES.items() for state in states),
    }
)
# An event of these kinds may be passed over where the whole response comes later.
PASSED_EVENTS: Final = KNOWN_EVENTS - LAST_EVENTS - {"error"}

# Items and their parts in one response together; each costs a kilobyte.
_MOST_PARTS: Final = 32_768


class ResponseAssembly:
    """The response of a stream so far.

    ``feed`` takes the stream's events in order; ``answer`` makes the object. ``error`` is the first error event's
    value, else None; ``is_last`` tells that the whole response came; ``unknown`` are the events of types that this
    version does not know, as they were.
    """

    __slots__ = ("_budget", "_items", "_last_item", "_response", "error", "fed", "is_last", "unknown")

    def __init__(self) -> None:
        self.error: Any = None
        self.fed = 0
        self.is_last = False
        self.unknown: list[Json] = []
        self._response: Json = {}
        self._items: dict[int, _Item] = {}
        self._last_item = 0
        self._budget = _Budget()

    def feed(self, event: Json) -> None:
        """Add an event; ``ValueError`` if it does not have the shape of one."""
        kind = event.get("type")
        if not isinstance(kind, str):
            self._feed_untyped(event)
        elif kind == "error":
            self._feed_error(event)
        else:
            try:
                self._feed_typed(kind, event)
            except (AttributeError, KeyError, TypeError, ValueError) as problem:
                raise ValueError(f"it is no event of the type {kind}") from problem
        self.fed += 1

    def _feed_untyped(self, event: Json) -> None:
        if event.get("error") is None:
            raise ValueError("it has no type")
        if self.error is None:  # as vLLM tells errors in the middle of other streams
            self.error = event["error"]

    def _feed_error(self, event: Json) -> None:
        if self.error is None:
            inner = event.get("error")
            fields = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
            self.error = inner if inner is not None else fields

    def _feed_typed(self, kind: str, event: Json) -> None:
        name, _, end = kind.rpartition(".")
        growing = _GROWING.get(name)
        if kind not in KNOWN_EVENTS:
            self._feed_unknown(event)
        elif growing is not None and end == "delta":
            self._item(event, growing).grow(event, growing)
        elif growing is not None:
            self._item(event, growing).settle(event, growing)
        elif name in _PARTS:
            self._item(event, None).take_part(event, _PARTS[name])
        elif name == "response.output_item":
            self._items[self._index(event)] = _Item(dict(event["item"]), self._budget)
        elif kind == "response.output_text.annotation.added":
            self._item(event, _GROWING["response.output_text"]).annotate(event)
        elif name == "response":
            self._feed_response(dict(event["response"]), is_last=kind in LAST_EVENTS)

    def _feed_response(self, response: Json, *, is_last: bool) -> None:
        if not self.is_last:
            self._response, self.is_last = response, is_last

    def _feed_unknown(self, event: Json) -> None:
        """Keep an event of a type that is new, and look at the response that may be in it."""
        self.unknown.append(event)
        if isinstance(event.get("response"), dict):
            self._feed_response(event["response"], is_last=False)

    def _index(self, event: Json) -> int:
        index = event.get("output_index")
        if isinstance(index, int):
            self._last_item = index
        return self._last_item

    def _item(self, event: Json, growing: _Growing | None) -> _Item:
        """The item that an event is about; one that was not announced begins with it."""
        index = self._index(event)
        item = self._items.get(index)
        if item is None:
            kind = "message" if growing is None else growing.item_type
            fields: Json = {"id": event.get("item_id"), "type": kind}
            if kind == "message":
                fields["role"] = "assistant"
            item = self._items[index] = _Item(fields, self._budget)
        return item

    def answer(self) -> Json:
        """The response as it was last sent, with the items that came since."""
        if self.is_last or not self._items:
            return self._response
        return {**self._response, "output": [self._items[index].answer() for index in sorted(self._items)]}


class _Budget:
    """Counts the items and parts of an answer; ``ValueError`` for more than any has."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_PARTS

    def one_more(self) -> None:
        if not self._left:
            raise ValueError("too many items and parts")
        self._left -= 1


class _Item:
    """One item of the output while it grows; texts are lists of pieces until they are asked for."""

    __slots__ = ("_budget", "_fields", "_parts", "_texts")

    def __init__(self, fields: Json, budget: _Budget) -> None:
        budget.one_more()
        self._budget = budget
        self._fields = fields
        self._texts: dict[tuple[str | None, int, str], list[str]] = {}
        self._parts: dict[str, dict[int, Json]] = {}
        for name in ("content", "summary"):
            parts = fields.get(name)
            if isinstance(parts, list):
                self._parts[name] = {i: dict(part) for i, part in enumerate(parts) if isinstance(part, dict)}

    def grow(self, event: Json, growing: _Growing) -> None:
        index = self._part_of(event, growing)
        delta = event.get("delta")
        if isinstance(delta, str):
            self._texts.setdefault((growing.parts, index, growing.member), []).append(delta)
        logprobs = event.get("logprobs")
        if isinstance(logprobs, list) and logprobs and growing.parts is not None:
            part = self._parts[growing.parts][index]
            part["logprobs"] = known = part.get("logprobs") or []
            known.extend(logprobs)

    def settle(self, event: Json, growing: _Growing) -> None:
        index = self._part_of(event, growing)
        text = event.get(growing.member)
        if isinstance(text, str):
            self._texts[(growing.parts, index, growing.member)] = [text]

    def take_part(self, event: Json, name: str) -> None:
        part = dict(event["part"])
        index = self._place(name, _part_index(event))
        self._parts[name][index] = part
        for member in ("text", "refusal"):
            if part.get(member):  # an announced part has an empty text
                self._texts.pop((name, index, member), None)

    def annotate(self, event: Json) -> None:
        part = self._parts["content"][self._part_of(event, _GROWING["response.output_text"])]
        part["annotations"] = known = part.get("annotations") or []
        known.append(event.get("annotation"))

    def _part_of(self, event: Json, growing: _Growing) -> int:
        if growing.parts is None:
            return 0
        index = self._place(growing.parts, _part_index(event))
        self._parts[growing.parts][index].setdefault("type", growing.part_type)
        return index

    def _place(self, name: str, index: int) -> int:
        """Make room for a part, if it is a new one."""
        parts = self._parts.setdefault(name, {})
        if index not in parts:
            self._budget.one_more()
            parts[index] = {}
        return index

    def answer(self) -> Json:
        fields = dict(self._fields)
        for (name, index, member), pieces in self._texts.items():
            (fields if name is None else self._parts[name][index])[member] = "".join(pieces)
        for name, parts in self._parts.items():
            fields[name] = [parts[index] for index in sorted(parts)]
        return fields


def _part_index(event: Json) -> int:
    index = event.get("content_index", event.get("summary_index"))
    return index if isinstance(index, int) else 0
