"""Which parts of a text stand in other texts, however they are written there."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.capture.pacing import Pacer

__all__ = ["LEAST_RUN", "LEAST_SIGNS", "Runs"]

# In signs, which are the characters but for blanks. Shorter runs are in any two texts of a language.
LEAST_RUN: Final = 16
LEAST_SIGNS: Final = 4
_LEAST_OPEN_CUT: Final = 8  # of what is cut off without quotes
_GRAM: Final = 8
_STRIDE: Final = LEAST_RUN - _GRAM + 1  # of every run one gram begins at a multiple of this
_MOST_PLACES: Final = 16
_MOST_STEPS: Final = 1 << 18  # in a comparison; what is left then is taken to be of the texts
_STEPS_OF_SEARCH: Final = 512
_A_TICK: Final = 256
_LONGEST_MERE_WORD: Final = 7

_HEX: Final = "[0-9a-fA-F]"
_ESCAPES: Final = (
    rf"\\+u[dD][89abAB]{_HEX}{{2}}\\+u[dD][c-fC-F]{_HEX}{{2}}"
    rf"|(?:\\+x[c-fC-F]{_HEX}|%[c-fC-F]{_HEX})(?:(?:\\+x|%)[89abAB]{_HEX}){{1,3}}"
    rf"|\\+(?:u{_HEX}{{4}}|u\{{{_HEX}{{1,6}}\}}|U00{_HEX}{{6}}|x{_HEX}{{2}}|[abfnrtv])?"
    rf"|%{_HEX}{{2}}"
    rf"|&(?:quot|apos|amp|lt|gt|#[0-9]{{1,7}}|#[xX]{_HEX}{{1,6}});"
)
_ESCAPE: Final = re.compile(_ESCAPES)
_UNIT: Final = re.compile(_ESCAPES + r"|\S", re.DOTALL)
_CODES: Final = re.compile(rf"{_HEX}+")
# Where a quotation begins or ends: quotes of any kind, and the dots where one is cut.
_MARK: Final = re.compile(r"[\"'`´“”„‘’‚«»‹›…]|\.\.\.")
_CUT: Final = re.compile(r"…|\.\.\.|\Z")
_FIRST_IDEOGRAPH: Final = "\u2e80"  # from there on words have no blanks between them


class _Sign(NamedTuple):
    """A sign of a text, and where it stands there."""

    start: int
    end: int
    sign: str


class Runs:
    """Texts, to find what others have of them.

    Of them is, in any text, what has ``LEAST_RUN`` signs in a row in common with one; a whole one of ``LEAST_SIGNS`` or
    more between other signs than letters and digits (a mere word of up to seven letters only between quotes); and,
    between quotes or dots, the beginning or the end of one. ``known`` may be in any text. ``steps`` are
    those left in the last comparison for finding runs; below 0 it ended early.
    """

    __slots__ = ("_all", "_beginnings", "_ends", "_known", "_lengths", "_places", "_short", "steps")

    def __init__(self, texts: Iterable[str], pacer: Pacer, *, known: str = "") -> None:
        self._known = _bare(known)
        self._short: set[str] = set()
        self._beginnings: set[str] = set()
        self._ends: set[str] = set()
        self.steps = 0
        whole: set[str] = set()
        for text in texts:
            pacer.tick()
            bare = _bare(text)
            if len(bare) < LEAST_SIGNS or bare in whole:
                continue
            whole.add(bare)
            if len(bare) < LEAST_RUN and not (
                len(bare) <= _LONGEST_MERE_WORD and len(bare) == len(text) and text.isascii() and text.isalpha()
            ):
                self._short.add(bare)
            for length in range(LEAST_SIGNS, min(len(bare), LEAST_RUN - 1) + 1):
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
    def are_none(self) -> bool:
        """Whether there is nothing to find."""
        return not self._beginnings

    def parts_in(self, text: str, pacer: Pacer) -> list[tuple[int, int]]:
        """The ranges of ``text`` that are of these texts, in order and apart."""
        signs = [
            sign for unit in _UNIT.finditer(text) if (sign := _Sign(unit.start(), unit.end(), _sign(unit[0]))).sign
        ]
        bare = "".join(sign.sign for sign in signs)
        is_edge = _edges(signs)
        found = [
            *self._runs(bare, pacer),
            *self._whole_ones(bare, is_edge, pacer),
            *self._cut_ones(bare, is_edge, pacer),
        ]
        spared = list(_occurrences(self._known, bare)) if len(self._known) >= LEAST_SIGNS else []
        ranges = [
            (signs[start].start, signs[end - 1].end)
            for start, end in found
            if not any(first <= start and end <= last for first, last in spared)
        ]
        return _merged(ranges, text)

    def _runs(self, bare: str, pacer: Pacer) -> Iterator[tuple[int, int]]:
        """What is in a text in one piece, as far as it goes on."""
        over = 0
        over_along: dict[int, int] = {}  # by how far the places are apart
        self.steps = _MOST_STEPS
        for start in range(len(bare) - _GRAM + 1):
            if start % _A_TICK == 0:
                pacer.tick()
            places = self._places.get(bare[start : start + _GRAM])
            if places is None:
                continue
            pacer.tick()
            if self.steps < 0:
                yield start, len(bare)
                return
            if len(places) > _MOST_PLACES:
                if start + _GRAM <= over:
                    continue
                runs = [self._from(bare, first) for first in range(max(start - _STRIDE + 1, 0), start + 1)]
                over = max(last for _, last in runs)
            else:
                runs = []
                for place in places:
                    if over_along.get(start - place, 0) <= start:
                        runs.append(self._around(bare, start, place))
                        over_along[start - place] = runs[-1][1]
            yield from (run for run in runs if run[1] - run[0] >= LEAST_RUN)

    def _around(self, bare: str, start: int, place: int) -> tuple[int, int]:
        """The run that has the gram at ``start`` of ``bare`` at ``place`` of the texts."""
        texts = self._all
        end, behind = start + _GRAM, place + _GRAM
        while end < len(bare) and bare[end] == texts[behind]:
            end, behind = end + 1, behind + 1
        while start and bare[start - 1] == texts[place - 1]:
            start, place = start - 1, place - 1
        self.steps -= end - start
        return start, end

    def _from(self, bare: str, start: int) -> tuple[int, int]:
        """The longest run that begins at ``start`` of ``bare``."""
        least, most = 0, LEAST_RUN
        while start + most <= len(bare) and self._has(bare[start : start + most]):
            least, most = most, most * 2
        most = min(most, len(bare) - start + 1)
        while least and least + 1 < most:
            middle = (least + most) // 2
            if self._has(bare[start : start + middle]):
                least = middle
            else:
                most = middle
        return start, start + least

    def _has(self, part: str) -> bool:
        self.steps -= _STEPS_OF_SEARCH
        return part in self._all

    def _whole_ones(self, bare: str, is_edge: list[bool], pacer: Pacer) -> Iterator[tuple[int, int]]:
        """Short texts between other signs than letters and digits."""
        for start in range(len(bare) if self._lengths else 0):
            if start % _A_TICK == 0:
                pacer.tick()
            if is_edge[start]:
                for length in self._lengths:
                    end = start + length
                    if end <= len(bare) and is_edge[end] and bare[start:end] in self._short:
                        yield start, end
                        break

    def _cut_ones(self, bare: str, is_edge: list[bool], pacer: Pacer) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of texts between the marks of a quotation, and beginnings that are cut off."""
        marks = [(mark.start(), mark.end()) for mark in _MARK.finditer(bare)]
        openings = {0, *(end for _, end in marks)}
        closings = {len(bare), *(start for start, _ in marks)}
        for start in openings:
            pacer.tick()
            for length in range(LEAST_SIGNS, LEAST_RUN):
                end = start + length
                part = bare[start:end]
                if end in closings and (part in self._beginnings or part in self._ends):
                    yield start, end
        for end in {cut.start() for cut in _CUT.finditer(bare)}:
            pacer.tick()
            for length in range(_LEAST_OPEN_CUT, min(LEAST_RUN - 1, end) + 1):
                if is_edge[end - length] and bare[end - length : end] in self._beginnings:
                    yield end - length, end


def _edges(signs: list[_Sign]) -> list[bool]:
    """Before which signs, and whether behind the last, a word may begin or end."""
    is_edge = [True] * (len(signs) + 1)
    for i in range(1, len(signs)):
        before, after = signs[i - 1], signs[i]
        is_joined = before.end == after.start and before.sign.isalnum() and after.sign.isalnum()
        is_edge[i] = not is_joined or before.sign >= _FIRST_IDEOGRAPH or after.sign >= _FIRST_IDEOGRAPH
    return is_edge


def _bare(text: str) -> str:
    """The signs of a text."""
    if "\\" in text or "&" in text or "%" in text:
        text = _ESCAPE.sub(lambda escape: _sign(escape[0]), text)
    return _lower("".join(text.replace("\0", "").split()))


def _sign(unit: str) -> str:
    """The character in lower case that a unit of text stands for; empty for none, a blank or NUL."""
    if len(unit) > 1:
        unit = html.unescape(unit) if unit[0] == "&" else _unescaped(unit)
    return "" if unit in ("\0", "\\") or unit.isspace() else _lower(unit[:1])


def _unescaped(unit: str) -> str:
    marks = unit.lstrip("\\")
    if marks in ("", *"abfnrtv"):  # backslashes, or one before a letter that stands for a blank or a bell
        return ""
    codes = [int(code, 16) for code in _CODES.findall(unit)]
    if len(codes) == 1:
        return chr(min(codes[0], 0x10FFFF))
    if marks[0] in "x%":
        return bytes(codes).decode("utf-8", "replace")
    return chr(0x10000 + ((codes[0] - 0xD800) << 10) + (codes[1] - 0xDC00))


def _lower(text: str) -> str:
    lower = text.replace("Σ", "σ").lower()  # which would depend on what stands behind it
    return lower if len(lower) == len(text) else "".join(one if len(one := c.lower()) == 1 else c for c in text)


def _occurrences(part: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(part)
    while start >= 0:
        yield start, start + len(part)
        start = text.find(part, start + 1)


def _merged(parts: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """The ranges in order; those that only blanks divide are one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if merged and (start <= merged[-1][1] or text[merged[-1][1] : start].isspace()):
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
