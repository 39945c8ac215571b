"""The texts of a request, and where the text of an error repeats them (DESIGN §2 rule 8).

Servers quote what they refuse in many ways: whole or cut, with or without quotes, as Python's repr, as JSON inside
JSON, as HTML. So texts are compared without their blanks and with escapes undone, and by what they share.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import loads
from dspark_json.capture.quoting import NOT_KEPT
from dspark_json.capture.request import SAMPLING_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.capture.captured import Captured
    from dspark_json.capture.echo import Echo
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.settings import RequestCapture

__all__ = ["SHORTEST_RUN", "SHORTEST_TEXT", "Private", "RequestTexts"]

# In characters that are no blanks. Shorter runs are in any two texts of a language: errors would say nothing any more.
SHORTEST_RUN: Final = 12
SHORTEST_TEXT: Final = 4
_MOST_LOOKED_AT: Final = 64 << 10  # characters of one answer; no error says more
_GRAM: Final = 6
# Of every run one gram begins at a multiple of this.
_STRIDE: Final = SHORTEST_RUN - _GRAM + 1
_MOST_PLACES: Final = 256
_A_TICK: Final = 256

_HEX: Final = "[0-9a-fA-F]"
_ESCAPES: Final = (
    rf"\\+u[dD][89abAB]{_HEX}{{2}}\\+u[dD][c-fC-F]{_HEX}{{2}}"
    rf"|\\+(?:u{_HEX}{{4}}|U00{_HEX}{{6}}|x{_HEX}{{2}}|[abfnrtv])?"
    rf"|&(?:quot|apos|amp|lt|gt|#[0-9]{{1,7}}|#[xX]{_HEX}{{1,6}});"
)
_ESCAPE: Final = re.compile(_ESCAPES)
_UNIT: Final = re.compile(_ESCAPES + r"|\S", re.DOTALL)
# Where a quotation begins or ends: quotes of any kind, and the dots where one is cut.
_MARK: Final = re.compile(r"[\"'`´“”„‘’‚«»‹›…]|\.\.\.")
# What errors call themselves, or a parameter, is a word of the server's, though a request may have it too.
_NAME: Final = re.compile(r"[A-Za-z_]{1,40}")
# Members whose values are words of the protocol.
_WORDS: Final = frozenset({"role", "type"})
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_LEAST_TOKENS: Final = 4


class RequestTexts:
    """The texts of one request that its record does not hold, looked up where an error may repeat them.

    Those are all strings of the request, and its lists of token ids, but for the model's name and, where settings are
    kept, for these. Of a request that is not here any more (over 256 KiB) nothing is known, so of the errors about it
    only their names are kept.
    """

    __slots__ = ("_captured", "_known", "_left", "_mode")

    def __init__(self, captured: Captured, mode: RequestCapture) -> None:
        """Nothing is looked at before the first question."""
        self._captured = captured
        self._mode = mode
        self._known: _Index | None = None
        self._left = _MOST_LOOKED_AT

    @property
    def are_unknown(self) -> bool:
        """Whether there was a request that nobody can look at."""
        return self._captured.request is None and self._captured.request_size > 0

    def blanked(self, text: str, pacer: Pacer) -> str:
        """The text with ``<not kept>`` for each part of it that is of the request.

        Such a part has ``SHORTEST_RUN`` characters (blanks not counted) in common with a text of the request, or is a
        whole one of ``SHORTEST_TEXT`` or more, or between quotes the beginning or the end of one.
        """
        if self.are_unknown:
            return text if _NAME.fullmatch(text) else NOT_KEPT
        parts = self._parts_in(text, pacer)
        if not parts:
            return text
        kept: list[str] = []
        position = 0
        for start, end in parts:
            kept += (text[position:start], NOT_KEPT)
            position = end
        kept.append(text[position:])
        return "".join(kept)

    def are_in(self, text: str, pacer: Pacer) -> bool:
        """Whether any part of the text is of the request; True where that can't be known."""
        return self.are_unknown or bool(self._parts_in(text, pacer))

    def _parts_in(self, text: str, pacer: Pacer) -> list[tuple[int, int]]:
        if len(text) < SHORTEST_TEXT:
            return []
        if self._known is None:
            self._known = _Index(_texts_of(self._captured, self._mode), pacer)
        if self._known.is_empty:
            return []
        self._left -= len(text)
        return self._known.parts_in(text, pacer) if self._left >= 0 else [(0, len(text))]


def _texts_of(captured: Captured, mode: RequestCapture) -> Iterator[str]:
    whole = b"".join(captured.request or ())
    try:
        request = loads(whole)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        yield whole.decode("utf-8", "replace")
        return
    model = request.get("model")
    left: list[Any] = []
    for key, value in request.items():
        if key == "model" or (mode == "settings" and key in SAMPLING_SETTINGS):
            continue
        if mode == "settings" and key == "text" and isinstance(value, dict):
            left += (member for name, member in value.items() if name != "format")  # which is kept as response_format
        else:
            left.append(value)
    while left:
        value = left.pop()
        if isinstance(value, str):
            if value != model:
                yield value
        elif isinstance(value, dict):
            left += (
                member
                for name, member in value.items()
                if not (name in _WORDS and isinstance(member, str) and _WORD.fullmatch(member))
            )
        elif isinstance(value, list):
            if len(value) >= _LEAST_TOKENS and all(item.__class__ is int for item in value):
                yield ",".join(map(str, value))
            else:
                left += value


class _Index:
    """Texts, and where parts of them stand in others."""

    __slots__ = ("_all", "_beginnings", "_ends", "_lengths", "_places", "_short")

    def __init__(self, texts: Iterable[str], pacer: Pacer) -> None:
        self._short: set[str] = set()
        self._beginnings: set[str] = set()
        self._ends: set[str] = set()
        whole: set[str] = set()
        for text in texts:
            pacer.tick()
            bare = _bare(text)
            if len(bare) < SHORTEST_TEXT or bare in whole:
                continue
            whole.add(bare)
            if len(bare) < SHORTEST_RUN:
                self._short.add(bare)
            for length in range(SHORTEST_TEXT, min(len(bare), SHORTEST_RUN - 1) + 1):
                self._beginnings.add(bare[:length])
                self._ends.add(bare[-length:])
        self._lengths = sorted(set(map(len, self._short)), reverse=True)
        self._all = "\0".join(("", *whole, ""))
        self._places: dict[str, list[int]] = {}
        for count, start in enumerate(range(0, len(self._all) - _GRAM + 1, _STRIDE)):
            self._places.setdefault(self._all[start : start + _GRAM], []).append(start)
            if count % _A_TICK == 0:
                pacer.tick()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self._beginnings

    def parts_in(self, text: str, pacer: Pacer) -> list[tuple[int, int]]:
        """The ranges of a text that are of these texts, in order and apart."""
        if _NAME.fullmatch(text):
            if len(text) < SHORTEST_RUN:
                is_part = text in self._beginnings or text in self._ends
            else:
                is_part = f"\0{text}" in self._all or f"{text}\0" in self._all
            return [(0, len(text))] if is_part else []
        units = [(unit.start(), unit.end(), _char(unit[0])) for unit in _UNIT.finditer(text)]
        units = [unit for unit in units if unit[2]]
        bare = "".join(char for _, _, char in units)
        found = [*self._runs(bare, pacer), *self._whole_ones(bare, units, pacer), *self._cut_ones(bare, pacer)]
        return _merged([(units[start][0], units[end - 1][1]) for start, end in found], text)

    def _runs(self, bare: str, pacer: Pacer) -> Iterator[tuple[int, int]]:
        """What is in a text in one piece, as long as it gets."""
        end = 0
        for start in range(len(bare) - _GRAM + 1):
            if start % _A_TICK == 0:
                pacer.tick()
            places = self._places.get(bare[start : start + _GRAM]) if start + _GRAM > end else None
            if places is None:
                continue
            pacer.tick()
            if len(places) > _MOST_PLACES:
                run = start, start + _GRAM  # what is all over the request is taken for a part of it
            else:
                run = max((self._run_around(bare, start, place) for place in places), key=_length)
                if _length(run) < SHORTEST_RUN:
                    continue
            yield run
            end = run[1]

    def _run_around(self, bare: str, start: int, place: int) -> tuple[int, int]:
        texts = self._all
        end, behind = start + _GRAM, place + _GRAM
        while end < len(bare) and behind < len(texts) and bare[end] == texts[behind]:
            end, behind = end + 1, behind + 1
        while start and place and bare[start - 1] == texts[place - 1]:
            start, place = start - 1, place - 1
        return start, end

    def _whole_ones(self, bare: str, units: list[tuple[int, int, str]], pacer: Pacer) -> Iterator[tuple[int, int]]:
        """Short texts between other signs than letters and digits."""
        if not self._lengths:
            return
        is_edge = [True] * (len(bare) + 1)
        for i in range(1, len(bare)):
            is_joined = units[i - 1][1] == units[i][0] and bare[i - 1].isalnum() and bare[i].isalnum()
            is_edge[i] = not is_joined
        for start in range(len(bare)):
            if start % _A_TICK == 0:
                pacer.tick()
            if is_edge[start]:
                for length in self._lengths:
                    end = start + length
                    if end <= len(bare) and is_edge[end] and bare[start:end] in self._short:
                        yield start, end
                        break

    def _cut_ones(self, bare: str, pacer: Pacer) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of texts between marks of a quotation."""
        marks = [(mark.start(), mark.end()) for mark in _MARK.finditer(bare)]
        openings = {0, *(end for _, end in marks)}
        closings = {len(bare), *(start for start, _ in marks)}
        for start in openings:
            pacer.tick()
            for length in range(SHORTEST_TEXT, SHORTEST_RUN):
                end = start + length
                part = bare[start:end]
                if end in closings and (part in self._beginnings or part in self._ends):
                    yield start, end


def _bare(text: str) -> str:
    """The text without blanks, with escapes undone."""
    if "\\" in text or "&" in text:
        text = _ESCAPE.sub(lambda escape: _char(escape[0]), text)
    return "".join(text.split())


def _char(unit: str) -> str:
    """The character that a unit of text stands for; empty for none or a blank."""
    if len(unit) > 1:
        if unit[0] == "&":
            unit = html.unescape(unit)
        else:
            codes = [part[1:] for part in unit.split("\\") if len(part) > 1]
            if not codes:  # a backslash, or one before a letter that stands for a blank or a bell
                return ""
            unit = "".join(map(chr, _code_points([int(code, 16) for code in codes])))
    elif unit == "\\":
        return ""
    return "" if unit.isspace() else unit[:1]


def _code_points(codes: list[int]) -> list[int]:
    if len(codes) == 1:
        return [min(codes[0], 0x10FFFF)]
    high, low = codes
    return [0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)]


def _length(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _merged(parts: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """The ranges in order; those that only blanks divide are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if merged and (start <= merged[-1][1] or text[merged[-1][1] : start].isspace()):
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, slots=True)
class Private:
    """What is to stay out of a record: texts of the request, and the prompt that the answer begins with (``echo``)."""

    mode: RequestCapture
    texts: RequestTexts
    echo: Echo | None = None
