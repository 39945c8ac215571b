"""Which parts of a text are of others: long runs, whole short ones, cut ones; at a bounded cost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_json.capture.pacing import Pacer
from dspark_json.capture.text_runs import LEAST_RUN, Runs

ALPHABET = "ab"


def covered(texts: list[str], text: str) -> set[int]:
    parts = Runs(texts, Pacer()).parts_in(text, Pacer())
    assert parts == sorted(parts)
    return {i for start, end in parts for i in range(start, end)}


@given(
    st.lists(st.text(ALPHABET, max_size=60), max_size=6),
    st.text(ALPHABET, max_size=80),
)
def test_all_that_is_in_a_long_run_is_found(texts: list[str], text: str) -> None:
    in_runs = {
        i
        for start in range(len(text) - LEAST_RUN + 1)
        if any(text[start : start + LEAST_RUN] in one for one in texts)
        for i in range(start, start + LEAST_RUN)
    }
    assert in_runs <= covered(texts, text)


@given(st.text(max_size=200), st.lists(st.text(max_size=60), max_size=4))
def test_any_texts_can_be_compared(text: str, texts: list[str]) -> None:
    for i in covered([*texts, text], text):
        assert i < len(text)


def test_a_run_that_is_everywhere_does_not_hide_another() -> None:
    texts = ["=" * 2_000 + "qqsecret======hunter", "x"]
    text = "value secret======hunter is"
    assert text[min(covered(texts, text)) :].startswith("secret======hunter")


def test_a_part_of_two_texts_is_found_as_far_as_either_goes() -> None:
    texts = ["zzzz: my pin 4711:ABCDEFGH", "qq:ABCDEFGH and more and more"]
    text = "value pin 4711:ABCDEFGH and more is"
    found = covered(texts, text)
    assert {text.index("ABCDEFGH"), text.index("more")} <= found


@pytest.mark.parametrize(
    "texts",
    [
        ["x" * 2_000],
        ["ab" * 9_000],
        ["".join(random.Random(i).choices("xy", k=30)) + "x" * 970 for i in range(250)],
        [f"{i:011}" for i in range(17_000)],
    ],
    ids=["one letter", "periodic", "blocks", "many"],
)
@pytest.mark.parametrize("piece", ["x", "ab", "xxxxxxxxxxxxxxxy", "'", "...", "0000001"])
def test_a_comparison_has_a_bounded_number_of_steps(texts: list[str], piece: str) -> None:
    text = piece * (60_000 // len(piece))
    runs = Runs(texts, Pacer())
    runs.parts_in(text, Pacer())
    assert runs.steps > -(1 << 17)
