"""Taking out of an answer what it echoes of the request (DESIGN §2 rule 8): values become null, the rest stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.echo import cut_from_text
from dspark_json.capture.jsontext import dumps, loads
from dspark_json.capture.quoting import NOT_KEPT, QUOTED, REQUEST_MEMBERS, without_quotes
from dspark_json.capture.request_texts import RequestTexts, is_name
from dspark_json.capture.scanner import value_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.echo import Echo
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.scanner import Path

ECHOED: Final = REQUEST_MEMBERS
# In a choice and its message; a delta's fields are its message's.
ECHOED_INSIDE: Final = frozenset({"prompt", "prompt_text", "prompt_token_ids", "prompt_logprobs"})
_INSIDE: Final = frozenset({("choices", None), ("choices", None, "message"), ("choices", None, "delta")})
# In an item of a response: a server without a store lets the client carry the conversation in it.
ECHOED_IN_OUTPUT: Final = frozenset({"encrypted_content"})
_OF_THE_SERVER: Final = _INSIDE | {(), ("output", None)}
# Tools hold JSON Schemas, whose members may have any name.
_LARGEST_FIRST: Final = ("tools", *sorted(ECHOED - {"tools"}))

_SEARCH_BYTES: Final = 64 << 10
_SEARCH_OVERLAP: Final = 64  # more than the longest name


def _any_of(names: frozenset[str]) -> bytes:
    return b"(?:" + b"|".join(name.encode() for name in sorted(names)) + b")"


_ECHOED_ANYWHERE: Final = ECHOED | ECHOED_IN_OUTPUT | {"schema"}
# A key and a value that is not null. Where the searched piece ends too early to tell, it counts as one.
_ECHO: Final = re.compile(b'"' + _any_of(_ECHOED_ANYWHERE) + rb'"\s*(?::(?!\s*null\b)|\Z)')
# Letters and underscores, of which the names consist, are never escaped, except by somebody who hides one.
_ESCAPED_LETTER: Final = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")
# A key in a text that is no JSON: in quotes of any kind, themselves escaped or not.
_ECHO_IN_TEXT: Final = re.compile(rb"[\"']" + _any_of(_ECHOED_ANYWHERE) + rb"\\*[\"'](?!\s*:\s*null\b)")
# Members that tell an error, beside those that have the word in their names; ``message`` only of the answer itself.
ERROR_MEMBERS: Final = frozenset({"detail", "details", "incomplete_details", "status_details", "warning", "warnings"})
_ERROR_KEY: Final = re.compile(r"error", re.IGNORECASE)
_ERROR_IN_TEXT: Final = re.compile(
    rb"(?i)error[^\"\\]*\"\s*:(?!\s*null\b)|\""
    + _any_of(ERROR_MEMBERS)
    + rb"\"\s*:(?!\s*null\b)|\"message\"\s*:\s*[\"\[]"
)
_ERROR_TYPE: Final = re.compile(rb'(?i)"(?:type|object)"\s*:\s*"[^"]*(?:error|bad|fail|invalid|warn)')
_ANSWER_IN_TEXT: Final = re.compile(rb'"(?:choices|output)"\s*:\s*\[')
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
    output = answer.get("output")
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict):
            for key in ECHOED_IN_OUTPUT & item.keys():
                item[key] = None


def may_echo(text: bytes, pacer: Pacer) -> bool:
    """Whether a key with an echoed value may stand in a JSON text (a search, not a parse: True may be wrong)."""
    return _is_found(_ECHO, text, pacer)


def may_quote(text: bytes, pacer: Pacer, *, of_error: RequestTexts | None) -> bool:
    """Whether a text that can't be read as JSON may hold something of the request (True may be wrong).

    ``of_error``: the text is an error's, which may also quote the request in other words than an answer's; those texts.
    """
    if _is_found(_ECHO_IN_TEXT, text, pacer):
        return True
    if of_error is None:
        return False
    return _is_found(_QUOTE_IN_TEXT, text, pacer) or of_error.are_in(text.decode("utf-8", "replace"), pacer)


def redact_text(text: bytes, pacer: Pacer) -> bytes:
    """The JSON text with the echoed values replaced by ``null`` and all else as it was.

    Every occurrence of a key counts. ``ValueError`` if the text is no JSON.
    """
    return _replaced(text, ((start, end, b"null") for start, end, _ in value_spans(text, _is_echoed, pacer)))


def redact_parsed(text: bytes, answer: dict[str, Any], pacer: Pacer) -> bytes:
    """Like ``redact_text`` for a text whose value is ``answer``, which is changed in place as by ``redact_object``.

    The text is gone through token by token only where an echoed value can't be found by what it is: with its key once
    in the text, and written without blanks, as servers do.
    """
    if not _is_found(_ESCAPED_LETTER, text, pacer):
        for key, value in _echoed_values(answer):
            text = _without_value(text, key, value)
    redact_object(answer)
    return redact_text(text, pacer) if may_echo(text, pacer) else text


def _echoed_values(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The echoed values of a response, those first that may hold the keys of others."""
    text = answer.get("text")
    text_format = text.get("format") if isinstance(text, dict) else None
    if isinstance(text_format, dict) and text_format.get("schema") is not None:
        yield "schema", text_format["schema"]
    for key in _LARGEST_FIRST:
        if answer.get(key) is not None:
            yield key, answer[key]


def _without_value(text: bytes, key: str, value: Any) -> bytes:
    """The text with null for the value of the one member of this name; as it is where that can't be told at once."""
    name = b'"' + key.encode() + b'"'
    start = text.find(name)
    if start < 0 or text.find(name, start + 1) >= 0:  # inside a string its quotes would be escaped
        return text
    start += len(name)
    try:
        member = b":" + dumps(value)
    except RecursionError:
        return text
    end = start + len(member)
    if not text.startswith(member, start) or text[end : end + 1] not in (b",", b"}"):
        return text
    return text[:start] + b":null" + text[end:]


def redact_prompt(text: bytes, echo: Echo, pacer: Pacer) -> bytes:
    """The JSON text of an answer without the prompt that its texts begin with; ``ValueError`` if it is no JSON."""
    return _replaced(text, cut_from_text(text, echo, pacer))


def may_tell_an_error(text: bytes, pacer: Pacer) -> bool:
    """Whether a text may have a member that tells an error (a search, not a parse: True may be wrong)."""
    return _is_found(_ERROR_IN_TEXT, text, pacer)


def is_answer(text: bytes, pacer: Pacer) -> bool:
    """Whether a text that is not parsed may be an answer, or part of one, rather than an error."""
    return _is_found(_ANSWER_IN_TEXT, text, pacer)


def redact_unknown(text: bytes, texts: RequestTexts, pacer: Pacer) -> bytes:
    """The JSON text of something that this version does not know, without what may be of the request, at any depth.

    What has a member or a type that tells an error is one; in the rest the answer may repeat the request.
    """
    if _is_found(_ERROR_IN_TEXT, text, pacer) or _is_found(_ERROR_TYPE, text, pacer):
        text = redact_error(text, texts, pacer)
    elif not (_is_found(_ECHO_IN_TEXT, text, pacer) or _is_found(_QUOTE_IN_TEXT, text, pacer)):
        return text
    else:
        text = _replaced(text, _quotes(text, None, pacer))
    spans = value_spans(text, lambda _, key: key in _ECHOED_ANYWHERE, pacer)
    return _replaced(text, ((start, end, b"null") for start, end, _ in spans))


def redact_error(text: bytes, texts: RequestTexts, pacer: Pacer) -> bytes:
    """The JSON text of an error without what it quotes of the request, at any depth; ``ValueError`` if it is no JSON.

    Values of keys such as ``input`` become null; in strings they are blanked out (``without_quotes``), as are texts of
    the request (``RequestTexts.blanked``). Of an error that has one of these for a key, only names are kept.
    """
    try:
        return _replaced(text, _quotes(text, texts, pacer))
    except _QuotingKeyError:
        return _names_of_error(text)


def redact_errors_inside(text: bytes, texts: RequestTexts, pacer: Pacer) -> bytes:
    """The JSON text of an answer with those of its members that tell an error made as by ``redact_error``.

    They are the answer's own, and those of choices, their messages and the items of an output: what is deeper is the
    model's, such as a call's arguments. ``ValueError`` if the text is no JSON.
    """

    def tells_an_error(path: Path, key: str) -> bool:
        if path == () and key == "message":
            return True
        return path in _OF_THE_SERVER and (key in ERROR_MEMBERS or _ERROR_KEY.search(key) is not None)

    spans = value_spans(text, tells_an_error, pacer)
    return _replaced(text, ((start, end, redact_error(text[start:end], texts, pacer)) for start, end, _ in spans))


def _names_of_error(text: bytes) -> bytes:
    """An error with no more than its names: ``type`` and ``code``, where they are such."""
    value = loads(text)
    inner = value.get("error") if isinstance(value, dict) else None
    told = inner if isinstance(inner, dict) else value
    kept: dict[str, Any] = {"message": NOT_KEPT}
    for key in ("type", "code") if isinstance(told, dict) else ():
        if isinstance(told.get(key), int) or (isinstance(told.get(key), str) and is_name(told[key])):
            kept[key] = told[key]
    return dumps(kept if inner is None else {"error": kept})


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
    if path == ("output", None):
        return key in ECHOED_IN_OUTPUT
    return path == ("text", "format") and key == "schema"


class _QuotingKeyError(Exception):
    pass


def _quotes(text: bytes, texts: RequestTexts | None, pacer: Pacer) -> Iterator[tuple[int, int, bytes]]:
    def is_quoted(_: Path, key: str) -> bool:
        if texts is not None and texts.are_in_key(key, pacer):
            raise _QuotingKeyError
        return key in QUOTED

    for start, end, is_value in value_spans(text, is_quoted, pacer, strings=True):
        if is_value:
            yield start, end, b"null"
        else:
            string = loads(text[start:end])
            kept = without_quotes(string)
            if texts is not None:
                kept = texts.blanked(kept, pacer)
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
