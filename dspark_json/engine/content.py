"""The answer's text as a value: the strict parse, the repairs after it, the status of the outcome (DESIGN §6).

Thinking before the value ends at the first ``</think>``. Where the text, behind a byte order mark and white space,
begins with ``<think>``, that is all. Where it does not, the opening tag may have stood in the prompt, or the closing
one is a word of the answer. No value may be made of the inside of an answer, so that tag ends thinking only if

1. a text that begins like an answer (with ``{``, ``[``, ``"`` or three backticks) has had a whole value before it, and
2. the double quotes before it pair up (a backslash takes the character after it along), or what follows it is one
   object or array, perhaps fenced, and nothing else.

Else the text has no thinking and is judged as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from dspark_json.engine.json_spans import Document, JsonSyntaxError, Kind, parse, parse_prefix, skip_space
from dspark_json.engine.values import Shape, read

if TYPE_CHECKING:
    from dspark_json.engine.rescue import Path, Rescue

__all__ = ["ContentReader", "ParseStatus"]


class ParseStatus(IntEnum):
    """How the parse of a content went, in the order of DESIGN §6's table: where several apply the last one counts."""

    OK = 0
    LEADING_TEXT = 1
    FENCED = 2
    CONTROL_CHARS = 3
    TRAILING_TEXT = 4
    MISMATCH = 5
    TRUNCATED = 6
    EMPTY = 7
    MISSING = 8
    INVALID = 9

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What a way of looking at a text gave: the value in it, or why there is none.

    ``status`` is what had to be repaired so far. ``cut`` says that the text just ends too early.
    """

    document: Document | None
    status: ParseStatus
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ContentReader:
    """Reads contents as values of one type.

    ``shape`` is the content type, ``None`` where there is none: a content is its JSON text then. ``strict`` refuses
    every repair (``contentRepair=strict``).
    """

    shape: Shape | None
    strict: bool = False

    def read(
        self, text: str | None, *, cut_short: bool, path: Path | None, rescue: Rescue
    ) -> tuple[object, ParseStatus]:
        """The value of a content and how the parse went.

        ``text`` is the content (``None``: null on the wire), ``cut_short`` whether the server stopped writing it
        before its end (``finish_reason`` ``length``, or not ``completed``), ``path`` where the value stands in the
        row.
        """
        if text is None:
            return None, ParseStatus.MISSING
        data = text.encode()
        if skip_space(data, 0) == len(data):
            return None, ParseStatus.EMPTY
        attempt = self._attempt(data)
        if attempt.document is None:
            return None, ParseStatus.TRUNCATED if attempt.cut and cut_short else ParseStatus.INVALID
        root = attempt.document.root
        if self.shape is None:
            return None if root.is_null else root.raw(), attempt.status
        value = read(root, self.shape, path, rescue)
        rescue.bound_content(path, root)
        return value, max(attempt.status, ParseStatus.MISMATCH) if rescue.mismatches else attempt.status

    def _attempt(self, data: bytes) -> _Attempt:
        try:
            return _Attempt(parse(data), ParseStatus.OK)
        except JsonSyntaxError as error:
            return _Attempt(None, ParseStatus.INVALID, cut=error.cut) if self.strict else _repaired(data)


_BYTE_ORDER_MARK: Final = "\ufeff".encode()
_THINK: Final = b"<think>"
_END_OF_THINK: Final = b"</think>"
_FENCE: Final = b"```"
_BEGINNINGS: Final = (b"{", b"[", b'"', _FENCE)
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_FENCE_LINE: Final = re.compile(rb"```(?:json(?![0-9A-Za-z_+.-]))?")
_CUT_FENCE_LINE: Final = re.compile(rb"```(?:j|js|jso)")
_SPACE: Final = b" \t\n\r"


def _repaired(data: bytes) -> _Attempt:
    """Looks for the value behind a byte order mark and thinking, at most one of each."""
    start, status = 0, ParseStatus.OK
    if data.startswith(_BYTE_ORDER_MARK):
        start, status = len(_BYTE_ORDER_MARK), ParseStatus.LEADING_TEXT
    start = skip_space(data, start)
    tag = data.find(_END_OF_THINK, start)
    opened = data.startswith(_THINK, start)
    if opened and tag < 0:
        return _Attempt(None, ParseStatus.LEADING_TEXT, cut=True)
    whole = _fenced_or_bare(data, start, status)
    if tag < 0 or (not opened and _is_inside(data, start, tag, whole.document)):
        return whole
    after = _fenced_or_bare(data, tag + len(_END_OF_THINK), ParseStatus.LEADING_TEXT)
    return after if opened or _quotes_pair_up(data[start:tag]) or _is_container_alone(after) else whole


def _is_inside(data: bytes, start: int, tag: int, first: Document | None) -> bool:
    """Whether a text that begins like an answer has had no whole value before the tag; ``first`` is its value."""
    return data.startswith(_BEGINNINGS, start) if first is None else tag < first.end


def _quotes_pair_up(text: bytes) -> bool:
    return _ESCAPE.sub(b"", text).count(b'"') % 2 == 0


def _is_container_alone(attempt: _Attempt) -> bool:
    document = attempt.document
    return (
        document is not None
        and document.root.kind in {Kind.OBJECT, Kind.ARRAY}
        and attempt.status < ParseStatus.TRAILING_TEXT
    )


def _fenced_or_bare(data: bytes, start: int, status: ParseStatus) -> _Attempt:
    begin = skip_space(data, start)
    if data.startswith(_FENCE, begin):
        return _fenced(data.rstrip(_SPACE), begin, max(status, ParseStatus.FENCED))
    return _bare(data, begin, status)


def _bare(data: bytes, start: int, status: ParseStatus) -> _Attempt:
    """The value that the text begins with, raw control characters in its strings and text after it allowed."""
    try:
        document = parse_prefix(data, start, allow_controls=True)
    except JsonSyntaxError as error:
        return _Attempt(None, status, cut=error.cut)
    if document.has_controls:
        status = max(status, ParseStatus.CONTROL_CHARS)
    if skip_space(data, document.end) < len(data):
        status = max(status, ParseStatus.TRAILING_TEXT)
    return _Attempt(document, status)


def _fenced(data: bytes, start: int, status: ParseStatus) -> _Attempt:
    """The value inside the one fence that the trimmed text is; ``cut`` where the fence is still open."""
    if _CUT_FENCE_LINE.fullmatch(data, start):
        return _Attempt(None, status, cut=True)
    line = _FENCE_LINE.match(data, start)
    assert line is not None
    inside = line.end()
    if data.endswith(_FENCE) and len(data) - len(_FENCE) >= inside:
        closed = _bare(data[: -len(_FENCE)], inside, status)
        if closed.document is not None:
            one_fence = _FENCE not in closed.document.data[closed.document.end :]
            return closed if one_fence else _Attempt(None, status)
    still_open = _bare(data, inside, status)
    if still_open.document is None:
        return still_open
    # A complete value, and no more of the closing line than its beginning.
    rest = data[still_open.document.end :].strip(_SPACE)
    return _Attempt(None, status, cut=rest in {b"", b"`", b"``"})
