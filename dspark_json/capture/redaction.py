"""Taking out of an answer what it echoes of the request (DESIGN §2 rule 8): values become null, the rest stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import dumps, loads
from dspark_json.capture.quoting import QUOTED, without_quotes
from dspark_json.capture.scanner import value_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.scanner import Path

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
# In a choice and its message; a delta's fields are its message's.
ECHOED_INSIDE: Final = frozenset({"prompt", "prompt_text", "prompt_token_ids", "prompt_logprobs"})
_INSIDE: Final = frozenset({("choices", None), ("choices", None, "message"), ("choices", None, "delta")})

_SEARCH_BYTES: Final = 64 << 10
_SEARCH_OVERLAP: Final = 64  # more than the longest name


def _any_of(names: frozenset[str]) -> bytes:
    return b"(?:" + b"|".join(name.encode() for name in sorted(names)) + b")"


# A key and a value that is not null. Where the searched piece ends too early to tell, it counts as one.
_ECHO: Final = re.compile(b'"' + _any_of(ECHOED | {"schema"}) + rb'"\s*(?::(?!\s*null\b)|\Z)')
# Letters and underscores, of which the names consist, are never escaped, except by somebody who hides one.
_ESCAPED_LETTER: Final = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")
# A key in a text that is no JSON: in quotes of any kind, themselves escaped or not.
_ECHO_IN_TEXT: Final = re.compile(rb"[\"']" + _any_of(ECHOED | {"schema"}) + rb"\\*[\"'](?!\s*:\s*null\b)")
_QUOTE_IN_TEXT: Final = re.compile(rb"[\"']" + _any_of(QUOTED) + rb"\\*[\"']|\binput_value=")


def redact_object(answer: dict[str, Any]) -> None:
    """Set what ``answer`` (parsed, changed in place) echoes to None."""
    for key in ECHOED & answer.keys():
        answer[key] = None
    text = answer.get("text")
    text_format = text.get("format") if isinstance(text, dict) else None
    if isinstance(text_format, dict) and "schema" in text_format:
        text_format["schema"] = None
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            for fields in (choice, choice.get("message"), choice.get("delta")):
                if isinstance(fields, dict):
                    for key in ECHOED_INSIDE & fields.keys():
                        fields[key] = None


def may_echo(text: bytes, pacer: Pacer) -> bool:
    """Whether a key with an echoed value may stand in a JSON text (a search, not a parse: True may be wrong)."""
    return _is_found(_ECHO, text, pacer)


def may_quote(text: bytes, pacer: Pacer, *, of_error: bool) -> bool:
    """Whether a text that can't be read as JSON may hold something of the request (True may be wrong).

    ``of_error``: it may also quote the request in other words than an answer's.
    """
    return _is_found(_ECHO_IN_TEXT, text, pacer) or (of_error and _is_found(_QUOTE_IN_TEXT, text, pacer))


def redact_text(text: bytes, pacer: Pacer) -> bytes:
    """The JSON text with the echoed values replaced by ``null`` and all else as it was.

    Every occurrence of a key counts. ``ValueError`` if the text is no JSON.
    """
    return _replaced(text, ((start, end, b"null") for start, end, _ in value_spans(text, _is_echoed, pacer)))


def redact_error(text: bytes, pacer: Pacer) -> bytes:
    """The JSON text of an error without what it quotes of the request, at any depth; ``ValueError`` if it is no JSON.

    Values of keys such as ``input`` become null; in strings they are blanked out (``without_quotes``).
    """
    return _replaced(text, _quotes(text, pacer))


def redact_error_member(text: bytes, pacer: Pacer) -> bytes:
    """The JSON object with its ``error`` made as by ``redact_error``; ``ValueError`` if it is no JSON."""
    spans = value_spans(text, lambda path, key: path == () and key == "error", pacer)
    return _replaced(text, ((start, end, redact_error(text[start:end], pacer)) for start, end, _ in spans))


def _is_found(pattern: re.Pattern[bytes], text: bytes, pacer: Pacer) -> bool:
    for start in range(0, len(text), _SEARCH_BYTES):
        end = start + _SEARCH_BYTES + _SEARCH_OVERLAP
        if pattern.search(text, start, end) is not None or _ESCAPED_LETTER.search(text, start, end) is not None:
            return True
        pacer.tick()
    return False


def _is_echoed(path: Path, key: str) -> bool:
    if path == ():
        return key in ECHOED
    if path in _INSIDE:
        return key in ECHOED_INSIDE
    return path == ("text", "format") and key == "schema"


def _quotes(text: bytes, pacer: Pacer) -> Iterator[tuple[int, int, bytes]]:
    for start, end, is_value in value_spans(text, lambda _, key: key in QUOTED, pacer, strings=True):
        if is_value:
            yield start, end, b"null"
        else:
            string = loads(text[start:end])
            kept = without_quotes(string)
            if kept != string:
                yield start, end, dumps(kept)


def _replaced(text: bytes, replacements: Iterator[tuple[int, int, bytes]]) -> bytes:
    kept: list[bytes] = []
    position = 0
    for start, end, replacement in replacements:
        kept += (text[position:start], replacement)
        position = end
    if not kept:
        return text
    kept.append(text[position:])
    return b"".join(kept)
