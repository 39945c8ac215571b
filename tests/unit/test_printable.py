"""Text from outside on its way to a terminal."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from dspark_json.printable import printable


@given(st.text(st.characters(codec=None)))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()


def test_what_is_printable_stays_as_it_is() -> None:
    text = "Ünïcode, 日本語, emoji 😀 and \\x1b as text"
    assert printable(text) == text


def test_control_characters_show_as_escapes() -> None:
    assert printable("\x1b]0;x\x07\n\x9b\u202e\ud800") == "\\x1b]0;x\\x07\\n\\x9b\\u202e\\ud800"


def test_a_long_text_is_cut_to_the_length_given() -> None:
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 11, 10) == "x" * 9 + "…"
    assert len(printable("\x00" * sys.maxunicode, 10)) == 9 * 4 + 1
