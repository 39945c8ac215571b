"""Taking out of an answer what it echoes of the request (DESIGN §2 rule 8): values become null, the rest stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.pacing import Pacer

ECHOED: Final = frozenset(
    {
        "instructions",
        "input_messages",
        "prompt",
        "prompt_text",
        "prompt_token_ids",
        "prompt_logprobs",
        "tools",
    }
)
_ECHOED_PER_CHOICE: Final = frozenset({"prompt_logprobs", "prompt_token_ids"})

_NONNULL_KEY: Final = re.compile(
    b'"(?:' + b"|".join(key.encode() for key in sorted(ECHOED | {"schema"})) + rb')"\s*:(?!\s*null\b)'
)
_SEARCH_BYTES: Final = 64 << 10
_SEARCH_OVERLAP: Final = 64
# Strings and brackets; what stands between them (numbers, commas, blanks) is not looked at.
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_AFTER_KEY: Final = re.compile(rb"\s*:\s*")
_SCALAR: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,{}\[\]"]+', re.DOTALL)
_TOKENS_A_TICK: Final = 256


def redact_object(answer: dict[str, Any]) -> None:
    """Set what ``answer`` (parsed, changed in place) echoes to None."""
    for key in ECHOED & answer.keys():
        answer[key] = None
    text_format = _format_of(answer)
    if text_format is not None and "schema" in text_format:
        text_format["schema"] = None
    for choice in _choices_of(answer):
        for key in _ECHOED_PER_CHOICE & choice.keys():
            choice[key] = None


def echoes(answer: dict[str, Any]) -> bool:
    """Whether a parsed answer holds anything to take out."""
    if any(answer[key] is not None for key in ECHOED & answer.keys()):
        return True
    text_format = _format_of(answer)
    if text_format is not None and text_format.get("schema") is not None:
        return True
    return any(choice[key] is not None for choice in _choices_of(answer) for key in _ECHOED_PER_CHOICE & choice.keys())


def may_echo(text: bytes, pacer: Pacer) -> bool:
    """Whether such a key with a value may stand in a JSON text (a search, not a parse: True may be wrong)."""
    for start in range(0, len(text), _SEARCH_BYTES):
        if _NONNULL_KEY.search(text, start, start + _SEARCH_BYTES + _SEARCH_OVERLAP) is not None:
            return True
        pacer.tick()
    return False


def redact_text(text: bytes, pacer: Pacer) -> bytes:
    """The JSON object ``text`` with the echoed values replaced by ``null`` and all else as it was."""
    kept: list[bytes] = []
    position = 0
    for start, end in _echoed_spans(text, pacer):
        kept += (text[position:start], b"null")
        position = end
    if not kept:
        return text
    kept.append(text[position:])
    return b"".join(kept)


def _format_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    """``text.format`` of a responses answer."""
    text = answer.get("text")
    text_format = text.get("format") if isinstance(text, dict) else None
    return text_format if isinstance(text_format, dict) else None


def _choices_of(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choices = answer.get("choices")
    if isinstance(choices, list):
        yield from (choice for choice in choices if isinstance(choice, dict))


def _is_echoed(path: tuple[str | None, ...], key: str) -> bool:
    if len(path) == 0:
        return key in ECHOED
    if path == ("choices", None):
        return key in _ECHOED_PER_CHOICE
    return path == ("text", "format") and key == "schema"


_LONGEST_PATH: Final = 2


def _echoed_spans(text: bytes, pacer: Pacer) -> Iterator[tuple[int, int]]:
    """Where the echoed values stand, in order.

    ``path`` holds the key (None: an array's item) that led to each open container but the root; below the depth at
    which an echoed key can stand only brackets are counted.
    """
    path: list[str | None] = []
    last_key: str | None = None
    arrays: list[bool] = []
    depth = 0
    position = 0
    count = 0
    while (token := _TOKEN.search(text, position)) is not None:
        position = token.end()
        count += 1
        if count % _TOKENS_A_TICK == 0:
            pacer.tick()
        first = text[token.start()]
        if first in b"{[":
            depth += 1
            if depth - 1 <= _LONGEST_PATH:
                if depth > 1:
                    path.append(None if arrays[-1] else last_key)
                arrays.append(first == 0x5B)
        elif first in b"}]":
            if depth - 1 <= _LONGEST_PATH and arrays:
                arrays.pop()
                if path:
                    path.pop()
            depth -= 1
        elif depth - 1 <= _LONGEST_PATH and arrays and not arrays[-1]:
            colon = _AFTER_KEY.match(text, position)
            if colon is None:
                continue  # a string value
            position = colon.end()
            last_key = _key(token.group())
            if last_key is not None and _is_echoed(tuple(path), last_key):
                end = _value_end(text, position, pacer)
                yield position, end
                position = end
            elif text[position : position + 1] == b'"':
                # A string value: skipped here, so that it is not taken for a key.
                value = _SCALAR.match(text, position)
                position = value.end() if value is not None else position


def _key(raw: bytes) -> str | None:
    if b"\\" not in raw:
        return raw[1:-1].decode("utf-8", "replace")
    try:
        key = loads(raw)
    except ValueError:
        return None
    return key if isinstance(key, str) else None


def _value_end(text: bytes, start: int, pacer: Pacer) -> int:
    """Where the value that begins at ``start`` ends."""
    if text[start : start + 1] not in (b"{", b"["):
        scalar = _SCALAR.match(text, start)
        return scalar.end() if scalar is not None else start
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text, start)):
        if count % _TOKENS_A_TICK == 0:
            pacer.tick()
        first = text[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(text)
