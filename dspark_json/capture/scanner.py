"""A JSON text walked token by token: where some of its values stand, without making objects of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dspark_json.capture.jsontext import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dspark_json.capture.pacing import Pacer

    # The keys (None: an array's item) that lead to a container; None for one deeper than paths are kept.
    Path = tuple[str | None, ...] | None

LONGEST_PATH: Final = 3
_DEEPEST: Final = 1_024  # what orjson reads; readers refuse far less (DESIGN §6)
_TOKENS_A_TICK: Final = 256
_BLANKS: Final = rb"[ \t\r\n]*+"
_TEXT: Final = rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
_PLAIN: Final = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
_TOKEN: Final = re.compile(_BLANKS + rb"(?:([{}\[\],:])|(" + _TEXT + rb")|(" + _PLAIN + rb"))")
_PUNCTUATION, _STRING = 1, 2
# Many items or members in one step, each with the comma behind it, where none of them is looked at: values that hold
# no containers but flat ones. What is longer takes several steps, so that none is long.
# What is repeated possessively is atomic itself: Python before 3.11.5 repeats wrongly what can go back (issue 106052).
_SMALL: Final = rb"(?>%s|%s|\[%s\]|\{%s\})" % (_TEXT, _PLAIN, _BLANKS, _BLANKS)
_COMMA_BETWEEN: Final = _BLANKS + rb"," + _BLANKS
_SMALL_MEMBER: Final = rb"(?>%s)%s:%s%s" % (_TEXT, _BLANKS, _BLANKS, _SMALL)
_FLAT: Final = rb"(?>%s|\[%s\]|\{%s\})" % (
    _SMALL,
    _BLANKS + _SMALL + rb"(?>%s%s){0,31}+" % (_COMMA_BETWEEN, _SMALL) + _BLANKS,
    _BLANKS + _SMALL_MEMBER + rb"(?>%s%s){0,31}+" % (_COMMA_BETWEEN, _SMALL_MEMBER) + _BLANKS,
)
_RUN_OF_ITEMS: Final = re.compile(rb"(?>%s%s%s,){1,64}+" % (_BLANKS, _FLAT, _BLANKS))
_RUN_OF_MEMBERS: Final = re.compile(
    rb"(?>%s(?>%s)%s:%s%s%s,){1,64}+" % (_BLANKS, _TEXT, _BLANKS, _BLANKS, _FLAT, _BLANKS)
)
_DEPTH_OF_FLAT: Final = 2
_BLANKS_TO_END: Final = re.compile(rb"[ \t\r\n]*\Z")

_OBJECT, _ARRAY, _COMMA, _COLON = b"{[,:"
_CLOSING: Final = {_OBJECT: b"}"[0], _ARRAY: b"]"[0]}
_A_VALUE, _VALUE_OR_END, _A_KEY, _KEY_OR_END, _A_COLON, _COMMA_OR_END = range(6)
_NOTHING, _NAMED, _BEGUN, _SCALAR, _ENDED = range(5)


def value_spans(
    text: bytes, wanted: Callable[[Path, str], bool], pacer: Pacer, *, strings: bool = False
) -> Iterator[tuple[int, int, bool]]:
    """Where the values of the wanted members stand, in order: start, end, True.

    ``wanted`` gets the path of an object and one of its keys; every occurrence of a key counts. Inside of such a value
    nothing is looked at. With ``strings`` the string values outside of them are given too, with False. Raises
    ``ValueError`` where the text is not one JSON value (RFC 8259), or nested deeper than 1,024 levels; spans before
    that place were given by then.
    """
    state = _Grammar()
    position = count = level = 0
    start = -1  # of the wanted value that is open, with `level` containers around it
    is_next = False
    while not state.is_whole:
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"no JSON at byte {position}")
        position = token.end()
        count += 1
        if count % _TOKENS_A_TICK == 0:
            pacer.tick()
        kind = token.lastindex or 0
        begin = token.start(kind)
        level_before = state.depth
        sign = text[begin] if kind == _PUNCTUATION else -1
        event = state.take(sign, token)
        if sign == _COMMA and start >= 0:
            run = state.run_to_skip()
            while run is not None and (skipped := run.match(text, position)) is not None:
                position = skipped.end()
                pacer.tick()
        elif event == _NAMED:
            is_next = start < 0 and wanted(state.path, state.key)
        elif event != _NOTHING:
            if is_next:
                start, level, is_next = begin, level_before, False
            elif event == _SCALAR and kind == _STRING and strings and start < 0:
                yield begin, position, False
            if event != _BEGUN and start >= 0 and state.depth == level:
                yield start, position, True
                start = -1
    if _BLANKS_TO_END.match(text, position) is None:
        raise ValueError(f"more than one value: byte {position}")


class _Grammar:
    """What was read of a JSON text so far, and what may come next: ``take`` raises ``ValueError`` for another token.

    ``path`` leads to the innermost open container, ``key`` is the last one read.
    """

    __slots__ = ("_expected", "_kinds", "_paths", "is_whole", "key")

    def __init__(self) -> None:
        self.key = ""
        self.is_whole = False
        self._kinds = bytearray()
        self._paths: list[Path] = []
        self._expected = _A_VALUE

    @property
    def depth(self) -> int:
        return len(self._kinds)

    @property
    def path(self) -> Path:
        return self._paths[-1]

    def run_to_skip(self) -> re.Pattern[bytes] | None:
        """After a comma: what may be passed over in one step inside of a wanted value."""
        if self.depth + _DEPTH_OF_FLAT > _DEEPEST:
            return None
        return _RUN_OF_ITEMS if self._expected == _A_VALUE else _RUN_OF_MEMBERS

    def take(self, sign: int, token: re.Match[bytes]) -> int:
        """Take a token (``sign``: a punctuation mark's byte, else -1); what it is to the values around it."""
        expected = self._expected
        if expected == _COMMA_OR_END:
            if sign != _COMMA:
                return self._close(sign)
            self._expected = _A_KEY if self._kinds[-1] == _OBJECT else _A_VALUE
            return _NOTHING
        if expected == _A_COLON:
            if sign != _COLON:
                raise ValueError("no colon after a key")
            self._expected = _A_VALUE
            return _NAMED
        if expected in (_A_KEY, _KEY_OR_END):
            raw = token[_STRING]
            if raw is None:
                return self._close(sign if expected == _KEY_OR_END else -1)
            self.key = raw[1:-1].decode("utf-8", "replace") if b"\\" not in raw else str(loads(raw))
            self._expected = _A_COLON
            return _NOTHING
        if sign in _CLOSING:
            return self._open(sign)
        if sign >= 0:
            return self._close(sign if expected == _VALUE_OR_END else -1)
        self._end_value()
        return _SCALAR

    def _open(self, sign: int) -> int:
        kinds = self._kinds
        if len(kinds) == _DEEPEST:
            raise ValueError("nested too deeply")
        around: Path = self._paths[-1] if kinds else None
        if not kinds:
            path: Path = ()
        elif around is None or len(around) == LONGEST_PATH:
            path = None
        else:
            path = (*around, self.key if kinds[-1] == _OBJECT else None)
        self._paths.append(path)
        kinds.append(sign)
        self._expected = _KEY_OR_END if sign == _OBJECT else _VALUE_OR_END
        return _BEGUN

    def _close(self, sign: int) -> int:
        if not self._kinds or _CLOSING[self._kinds[-1]] != sign:
            raise ValueError("a token in the wrong place")
        self._kinds.pop()
        self._paths.pop()
        self._end_value()
        return _ENDED

    def _end_value(self) -> None:
        self._expected = _COMMA_OR_END
        self.is_whole = not self._kinds
