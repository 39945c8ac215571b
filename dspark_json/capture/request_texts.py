"""The texts of a request, and where the text of an error repeats them (DESIGN §2 rule 8).

Servers quote what they refuse in many ways: whole or cut, with or without quotes, as Python's repr, as JSON inside
JSON, as HTML, in a URL. So texts are compared without their blanks, in lower case and with escapes undone, and by what
they share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.quoting import NOT_KEPT, QUOTED
from dspark_json.capture.request import SAMPLING_SETTINGS
from dspark_json.capture.request_body import Members, read_pairs, request_text
from dspark_json.capture.text_runs import LEAST_RUN, LEAST_SIGNS, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.captured import Captured
    from dspark_json.capture.echo import Echo
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.settings import RequestCapture

__all__ = ["Private", "RequestTexts"]

_MOST_LOOKED_AT: Final = 64 << 10  # characters of one answer; no error says more
_LEAST_TOKENS: Final = 4
_LEAST_NUMBER: Final = 10**7  # shorter ones are counts, sizes, seeds
# Names are the server's words, though a request may have them too: of errors, and of what requests consist of.
_ERROR_NAME: Final = re.compile(r"[A-Za-z_]{0,60}(?:[Ee]rror|Exception|_exceeded|_not_found)")
_MEMBERS: Final = frozenset({*SAMPLING_SETTINGS, *QUOTED, "model", "stream", "body"})
_PHRASES: Final = frozenset(status.phrase for status in HTTPStatus)
_KEY: Final = re.compile(r"[A-Za-z0-9_.\[\]$-]{1,40}")
# Words of the protocol and of JSON Schema, which say nothing about a request.
_WORDS: Final = frozenset(
    {
        "array",
        "assistant",
        "auto",
        "boolean",
        "content",
        "custom",
        "developer",
        "function",
        "image_url",
        "input_audio",
        "input_image",
        "input_text",
        "integer",
        "json_object",
        "json_schema",
        "message",
        "name",
        "none",
        "null",
        "number",
        "object",
        "output_text",
        "reasoning",
        "refusal",
        "required",
        "string",
        "strict",
        "structural_tag",
        "system",
        "text",
        "tool",
        "tool_call",
        "tool_calls",
        "type",
        "user",
    }
)
_WORD_LISTS: Final = frozenset({"required", "type"})


class RequestTexts:
    """The texts of one request that its record does not hold, looked up where an error may repeat them.

    Those are all strings of the request, the names of members that are no identifiers, and lists of token ids, but for
    the words of the protocol, the model's name and, where settings are kept, for these. Of a request that can't be
    looked at (over 256 KiB, or encoded in an unknown way) nothing is known, so of the errors about it only names are
    kept.
    """

    __slots__ = ("_captured", "_known", "_left", "_mode")

    def __init__(self, captured: Captured, mode: RequestCapture) -> None:
        """Nothing is looked at before the first question."""
        self._captured = captured
        self._mode = mode
        self._known: Runs | None = None
        self._left = _MOST_LOOKED_AT

    def blanked(self, text: str, pacer: Pacer) -> str:
        """The text with ``<not kept>`` for each part of it that is of the request (``Runs`` says which)."""
        if len(text) < LEAST_SIGNS or is_name(text):
            return text
        known = self._runs(pacer)
        if known is None:
            return NOT_KEPT
        kept: list[str] = []
        position = 0
        for start, end in self._parts(known, text, pacer):
            kept += (text[position:start], NOT_KEPT)
            position = end
        kept.append(text[position:])
        return "".join(kept)

    def are_in(self, text: str, pacer: Pacer) -> bool:
        """Whether any part of the text is of the request; True where that can't be known."""
        if len(text) < LEAST_SIGNS or is_name(text):
            return False
        known = self._runs(pacer)
        return known is None or bool(self._parts(known, text, pacer))

    def are_in_key(self, key: str, pacer: Pacer) -> bool:
        """The same for the name of a member, where what could be an identifier is one, if it is short or not known."""
        if _KEY.fullmatch(key) is not None and (len(key) < LEAST_RUN or self._runs(pacer) is None):
            return False
        return self.are_in(key, pacer)

    def _parts(self, known: Runs, text: str, pacer: Pacer) -> list[tuple[int, int]]:
        if known.are_none:
            return []
        self._left -= len(text)
        return known.parts_in(text, pacer) if self._left >= 0 else [(0, len(text))]

    def _runs(self, pacer: Pacer) -> Runs | None:
        """The request's texts; None where it can't be looked at."""
        if self._known is None:
            text = request_text(self._captured)
            if text is None:
                return None
            request = read_pairs(text)
            if isinstance(request, Members):
                model = dict(request).get("model")
                known = model if isinstance(model, str) else ""
                self._known = Runs((one for one in _texts_of(request, self._mode) if one != known), pacer, known=known)
            else:
                self._known = Runs((text,), pacer)
        return self._known


@dataclass(frozen=True, slots=True)
class Private:
    """What is to stay out of a record: texts of the request, and the prompt that the answer begins with (``echo``)."""

    mode: RequestCapture
    texts: RequestTexts
    echo: Echo | None = None


def is_name(text: str) -> bool:
    """Whether a text is a name of the server's: of a kind of error, of a member of requests, of a status."""
    return text in _MEMBERS or text in _PHRASES or _ERROR_NAME.fullmatch(text) is not None


def _texts_of(request: Members, mode: RequestCapture) -> Iterator[str]:
    """The texts of a request, each as often as it is there, but for what the record holds anyway."""
    left = list(_values_not_kept(request, mode))
    yield from (key for key, _ in request if _KEY.fullmatch(key) is None)
    while left:
        value = left.pop()
        if isinstance(value, str):
            if value.startswith(("{", "[")) and isinstance(inner := read_pairs(value), list):
                left.append(inner)  # such as a call's arguments
            if value not in _WORDS:
                yield value
        elif value.__class__ is int and abs(value) >= _LEAST_NUMBER:
            yield str(value)
        elif isinstance(value, Members):
            yield from (name for name, _ in value if _KEY.fullmatch(name) is None)
            left += (member for name, member in value if not (name in _WORD_LISTS and _are_identifiers(member)))
        elif isinstance(value, list):
            if len(value) >= _LEAST_TOKENS and all(item.__class__ is int for item in value):
                yield ",".join(map(str, value))
            else:
                left += value


def _values_not_kept(request: Members, mode: RequestCapture) -> Iterator[Any]:
    if mode != "settings":
        yield from (value for key, value in request if key != "model")
        return
    is_format_kept = all(key != "response_format" for key, _ in request)
    for key, value in request:
        if key == "text" and is_format_kept and isinstance(value, Members):
            yield from (member for name, member in value if not (name == "format" and _is_kept_format(member)))
        elif key != "model" and key not in SAMPLING_SETTINGS:
            yield value


def _is_kept_format(member: object) -> bool:
    """Whether the record has this format of a response as its ``response_format``."""
    return isinstance(member, Members) and dict(member).get("type") == "json_schema"


def _are_identifiers(value: object) -> bool:
    """Whether it is a list of property names or types, as JSON Schemas have it."""
    return isinstance(value, list) and all(isinstance(item, str) and item.isidentifier() for item in value)
