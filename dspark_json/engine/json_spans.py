"""A strict JSON parser that knows where each value stands in the text (RFC 8259, DESIGN §6).

Values must be kept exactly as written (a big integer, ``2.50``, an object as STRING), so nothing is converted here:
the parser checks the grammar and notes spans, and a ``Value`` is a view of one of them. Beyond the grammar it holds to
these rules:

- The root container has depth 1; 128 is the deepest that passes.
- Duplicate names: the last one wins, at its place.
- Lone surrogates and invalid UTF-8 become U+FFFD when a string is decoded.
- A number or literal at the root ends where no letter, digit or sign is glued to it: ``007`` does not begin with a
  value.

Time and memory grow linearly with the text, whatever it holds: about 30 bytes a value, no recursion.
"""

from __future__ import annotations

import json
import re
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_DEPTH", "Document", "JsonSyntaxError", "Kind", "Value", "parse", "parse_prefix", "skip_space"]

MAX_DEPTH: Final = 128


class Kind(IntEnum):
    """What a value is."""

    OBJECT = 0
    ARRAY = 1
    STRING = 2
    NUMBER = 3
    TRUE = 4
    FALSE = 5
    NULL = 6


_KINDS: Final = tuple(Kind)


class JsonSyntaxError(ValueError):
    """The text is not JSON.

    ``position`` is the byte where that shows. ``cut`` says that the text just ends there: it is a proper prefix of some
    valid JSON.
    """

    def __init__(self, position: int, *, cut: bool) -> None:
        super().__init__(f"JSON {'ends too early' if cut else 'is broken'} at byte {position}")
        self.position = position
        self.cut = cut


_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_ESCAPE: Final = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
# What is repeated possessively is atomic itself: Python before 3.11.5 repeats wrongly what can go back (issue 106052).
_CHARACTERS: Final = re.compile(rb'(?>[^"\\\x00-\x1f]++|' + _ESCAPE + rb")*+")
_CHARACTERS_AND_CONTROLS: Final = re.compile(rb'(?>[^"\\]++|' + _ESCAPE + rb")*+")
_CUT_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?")
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_DIGITS: Final = rb"-?(?:0|[1-9][0-9]*+)"
_NUMBER: Final = re.compile(_DIGITS + rb"(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_CUT_NUMBER: Final = re.compile(rb"-|" + _DIGITS + rb"(?:\.|(?:\.[0-9]++)?[eE][+-]?)")
# More numbers of an array at once; what ends otherwise than an item must is left to the slow way.
_MORE_NUMBERS: Final = re.compile(
    rb"(?>[ \t\n\r]*+,[ \t\n\r]*+" + _DIGITS + rb"(?>(?:\.[0-9]++)?)(?>(?:[eE][+-]?[0-9]++)?)(?=[ \t\n\r,\]])){1,4096}+"
)
_GLUED_TO_NUMBER: Final = re.compile(rb"[0-9A-Za-z_.+-]")
_GLUED_TO_LITERAL: Final = re.compile(rb"[0-9A-Za-z_]")
_LITERALS: Final = {
    ord("t"): (b"true", Kind.TRUE),
    ord("f"): (b"false", Kind.FALSE),
    ord("n"): (b"null", Kind.NULL),
}
_NUMBER_STARTS: Final = frozenset(b"-0123456789")
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_OPENERS: Final = {ord("{"): (Kind.OBJECT, ord("}")), ord("["): (Kind.ARRAY, ord("]"))}


@dataclass(slots=True)
class Document:
    """One JSON value of a text and everything inside it, in the order of the text.

    Value ``i`` is ``data[starts[i]:ends[i]]`` and is of kind ``kinds[i]``; ``nexts[i]`` is the value after it and all
    that it holds. An object's children are its names and values in turn. ``end`` is where the root value ends;
    ``has_controls`` says that raw control characters stand inside strings.
    """

    data: bytes
    kinds: bytearray = field(default_factory=bytearray)
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    nexts: array[int] = field(default_factory=lambda: array("q"))
    has_controls: bool = False

    @property
    def root(self) -> Value:
        return Value(self, 0)

    @property
    def end(self) -> int:
        return self.ends[0]


class Value(NamedTuple):
    """A value where it stands: a view of one entry of a ``Document``."""

    document: Document
    node: int

    @property
    def kind(self) -> Kind:
        return _KINDS[self.document.kinds[self.node]]

    @property
    def is_null(self) -> bool:
        return self.document.kinds[self.node] == Kind.NULL

    @property
    def start(self) -> int:
        return self.document.starts[self.node]

    @property
    def end(self) -> int:
        return self.document.ends[self.node]

    def items(self) -> Iterator[Value]:
        """The values of an array, in order."""
        document = self.document
        node, stop = self.node + 1, document.nexts[self.node]
        while node < stop:
            yield Value(document, node)
            node = document.nexts[node]

    def occurrences(self) -> Iterator[tuple[str, Value]]:
        """The members of an object as they stand, duplicates included."""
        document = self.document
        node, stop = self.node + 1, document.nexts[self.node]
        while node < stop:
            yield Value(document, node).string(), Value(document, node + 1)
            node = document.nexts[node + 1]

    def members(self, first_wins: frozenset[str] = frozenset()) -> dict[str, Value]:
        """The members of an object that count, in the order of the text: of duplicate names the last one.

        For the names in ``first_wins`` it is the first one.
        """
        found: dict[str, Value] = {}
        for name, value in self.occurrences():
            if name in found:
                if name in first_wins:
                    continue
                del found[name]
            found[name] = value
        return found

    def string(self) -> str:
        """What a string says: escapes resolved, lone surrogates and invalid UTF-8 as U+FFFD."""
        text = self.document.data[self.start : self.end].decode("utf-8", "replace")
        if "\\" not in text:
            return text[1:-1]
        decoded: str = json.loads(text, strict=False)
        return _LONE_SURROGATE.sub("\ufffd", decoded)

    def raw(self) -> str:
        """The value's JSON text as written; raw control characters inside its strings escaped, in the shortest form."""
        document, node = self
        text = document.data[document.starts[node] : document.ends[node]].decode("utf-8", "replace")
        if not document.has_controls:
            return text
        return _STRING_TOKEN.sub(lambda token: token[0].translate(_SHORTEST_ESCAPES), text)


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STRING_TOKEN: Final = re.compile(r'"(?>[^"\\]++|\\.)*+"', re.DOTALL)
_SHORTEST_ESCAPES: Final = {code: json.dumps(chr(code))[1:-1] for code in range(0x20)}


def parse(data: bytes) -> Document:
    """The one JSON value that the whole text is, white space around it allowed; raises ``JsonSyntaxError``."""
    document = parse_prefix(data)
    rest = skip_space(data, document.end)
    if rest < len(data):
        raise JsonSyntaxError(rest, cut=False)
    return document


def parse_prefix(data: bytes, start: int = 0, *, allow_controls: bool = False) -> Document:
    """The JSON value that the text begins with at ``start`` (white space before it allowed), whatever follows.

    ``allow_controls`` takes raw control characters inside strings. Raises ``JsonSyntaxError``.
    """
    return _Parser(data, allow_controls).run(start)


def skip_space(data: bytes, position: int) -> int:
    """The first position from here on that is not JSON's white space."""
    match = _SPACE.match(data, position)
    assert match is not None
    return match.end()


class _Parser:
    """The state of one parse: the document made so far and the containers still open."""

    __slots__ = ("_allow_controls", "_characters", "_data", "_document", "_open")

    def __init__(self, data: bytes, allow_controls: bool) -> None:
        self._data = data
        self._allow_controls = allow_controls
        self._characters = _CHARACTERS_AND_CONTROLS if allow_controls else _CHARACTERS
        self._document = Document(data)
        self._open: list[tuple[int, int]] = []  # (node, closing bracket)

    def run(self, start: int) -> Document:
        position = self._value(skip_space(self._data, start))
        while self._open:
            position = self._after_value(position)
        return self._document

    def _byte(self, position: int) -> int:
        if position >= len(self._data):
            raise JsonSyntaxError(position, cut=True)
        return self._data[position]

    def _note(self, kind: Kind, start: int, end: int) -> int:
        """Adds a value without children; returns its number."""
        document = self._document
        node = len(document.kinds)
        document.kinds.append(kind)
        document.starts.append(start)
        document.ends.append(end)
        document.nexts.append(node + 1)
        return node

    def _value(self, position: int) -> int:
        """Reads a scalar, an empty container, or the opening of containers up to a scalar; returns where that ends."""
        while True:
            byte = self._byte(position)
            opener = _OPENERS.get(byte)
            if opener is None:
                return self._scalar(byte, position)
            kind, closer = opener
            if len(self._open) == MAX_DEPTH:
                raise JsonSyntaxError(position, cut=False)
            node = self._note(kind, position, position)
            self._open.append((node, closer))
            position = skip_space(self._data, position + 1)
            if self._byte(position) == closer:
                return self._close(position)
            if kind == Kind.OBJECT:
                position = self._name(position)

    def _after_value(self, position: int) -> int:
        """Reads what follows a value inside a container: a closing bracket, or a comma and the next value."""
        node, closer = self._open[-1]
        if self._document.kinds[-1] == Kind.NUMBER and self._document.kinds[node] == Kind.ARRAY:
            position = self._more_numbers(position)
        position = skip_space(self._data, position)
        byte = self._byte(position)
        if byte == closer:
            return self._close(position)
        if byte != _COMMA:
            raise JsonSyntaxError(position, cut=False)
        position = skip_space(self._data, position + 1)
        if self._document.kinds[node] == Kind.OBJECT:
            position = self._name(position)
        return self._value(position)

    def _close(self, position: int) -> int:
        node, _ = self._open.pop()
        self._document.ends[node] = position + 1
        self._document.nexts[node] = len(self._document.kinds)
        return position + 1

    def _name(self, position: int) -> int:
        """Reads a member's name and its colon; returns where the value begins."""
        if self._byte(position) != _QUOTE:
            raise JsonSyntaxError(position, cut=False)
        end = self._string(position)
        self._note(Kind.STRING, position, end)
        colon = skip_space(self._data, end)
        if self._byte(colon) != _COLON:
            raise JsonSyntaxError(colon, cut=False)
        return skip_space(self._data, colon + 1)

    def _scalar(self, byte: int, position: int) -> int:
        if byte == _QUOTE:
            end = self._string(position)
            self._note(Kind.STRING, position, end)
            return end
        if byte in _NUMBER_STARTS:
            end, kind, glue = self._number(position), Kind.NUMBER, _GLUED_TO_NUMBER
        elif byte in _LITERALS:
            word, kind = _LITERALS[byte]
            end, glue = self._literal(position, word), _GLUED_TO_LITERAL
        else:
            raise JsonSyntaxError(position, cut=False)
        if not self._open and glue.match(self._data, end):
            raise JsonSyntaxError(end, cut=False)
        self._note(kind, position, end)
        return end

    def _string(self, position: int) -> int:
        match = self._characters.match(self._data, position + 1)
        assert match is not None
        end = match.end()
        byte = self._byte(end)
        if byte != _QUOTE:
            cut = byte == _BACKSLASH and _CUT_ESCAPE.fullmatch(self._data, end) is not None
            raise JsonSyntaxError(end, cut=cut)
        if self._allow_controls and _CONTROL.search(self._data, position, end):
            self._document.has_controls = True
        return end + 1

    def _number(self, position: int) -> int:
        if _CUT_NUMBER.fullmatch(self._data, position):
            raise JsonSyntaxError(len(self._data), cut=True)
        match = _NUMBER.match(self._data, position)
        if match is None:
            raise JsonSyntaxError(position, cut=False)
        return match.end()

    def _more_numbers(self, position: int) -> int:
        """Reads the commas and numbers that follow an array's item, some thousands at most; returns where they end."""
        run = _MORE_NUMBERS.match(self._data, position)
        if run is None:
            return position
        document = self._document
        for number in _NUMBER.finditer(self._data, position, run.end()):
            document.starts.append(number.start())
            document.ends.append(number.end())
        before, now = len(document.kinds), len(document.starts)
        document.kinds.extend(bytes([Kind.NUMBER]) * (now - before))
        document.nexts.extend(range(before + 1, now + 1))
        return run.end()

    def _literal(self, position: int, word: bytes) -> int:
        if self._data.startswith(word, position):
            return position + len(word)
        raise JsonSyntaxError(position, cut=word.startswith(self._data[position : position + len(word)]))
