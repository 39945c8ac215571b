"""Arguments reach the server's command line through GPUStack's splitting as they were meant."""

from __future__ import annotations

import json

import pytest
from gpustack import argv
from hypothesis import given
from hypothesis import strategies as st

from dspark_json.deploy.arguments import backend_parameters
from dspark_json.errors import InvalidOptionError


def told(value: object) -> list[str]:
    """The command line's words for one argument ``k``, ``--k=v`` taken apart."""
    words = argv(backend_parameters({"k": value}))
    if len(words) == 1 and words[0].startswith("--k="):
        return ["--k", words[0].removeprefix("--k=")]
    return words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--k"]),
        (False, []),
        (8192, ["--k", "8192"]),
        (-1, ["--k", "-1"]),
        (0.9, ["--k", "0.9"]),
        ("auto", ["--k", "auto"]),
        ("two words", ["--k", "two words"]),
        ('it\'s "quoted"', ["--k", 'it\'s "quoted"']),
        ("", ["--k", ""]),
        ("-x y", ["--k", "-x y"]),
        ("a={b c}", ["--k", "a={b c}"]),
        ("a\\b", ["--k", "a\\b"]),
        ({"a": "b c"}, ["--k", '{"a":"b c"}']),
        (["a", "b c", {"d": "'"}], ["--k", "a", "b c", '{"d":"\'"}']),
    ],
)
def test_a_value_arrives_as_it_was_given(value: object, words: list[str]) -> None:
    assert told(value) == words


@given(st.text(max_size=30))
def test_any_text_arrives_or_is_refused(text: str) -> None:
    try:
        words = told(text)
    except InvalidOptionError:
        assert any(mark in text for mark in ("={", "=[", "\\", "\n", "\r", "\x1f"))
    else:
        assert words == ["--k", text]


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=4))
def test_any_json_arrives(value: dict[str, str]) -> None:
    name, text = told(value)
    assert (name, json.loads(text)) == ("--k", value)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_several_values_arrive_or_are_refused(values: list[str]) -> None:
    try:
        words = told(values)
    except InvalidOptionError:
        assert any(not value or value != value.strip() or value.startswith("-") for value in values)
    else:
        assert words == ["--k", *values]


@pytest.mark.parametrize("name", ["port", "api-key", "api_key", "served-model-name", "host"])
def test_what_gpustack_sets_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="GPUStack sets it"):
        backend_parameters({name: "x"})


@pytest.mark.parametrize("name", ["--k", "", "a b", "k=v"])
def test_a_name_is_a_name(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="not the name of an argument"):
        backend_parameters({name: "x"})


def test_the_other_form_of_json_arrives_too() -> None:
    assert argv(['--speculative-config={"method": "dspark", "x": "it\'s {"} --flag']) == [
        '--speculative-config={"method": "dspark", "x": "it\'s {"}',
        "--flag",
    ]
