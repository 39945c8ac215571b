"""Contents: each status of the table, repairs that combine, and the strict mode (cases beside the corpus)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.engine.content import ContentReader, ParseStatus
from dspark_json.engine.rescue import Rescue
from dspark_json.engine.values import shape_of
from dspark_json.schema.ddl import from_ddl

READER = ContentReader(shape_of(from_ddl("a BIGINT, b STRING")))
STRICT = ContentReader(READER.shape, strict=True)
TEXT = ContentReader(None)


def status(text: str | None, *, cut_short: bool = False, reader: ContentReader = READER) -> str:
    return str(reader.read(text, cut_short=cut_short, path=None, rescue=Rescue())[1])


def value(text: str, reader: ContentReader = READER) -> object:
    return reader.read(text, cut_short=False, path=None, rescue=Rescue())[0]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a":1}', "ok"),
        ('\ufeff <think>x</think>{"a":1}', "leading_text"),
        ('<think>x</think>\n```json\n{"b":"1\n2"}\n```', "control_chars"),
        ('```json\n{"a":1} ok\n```', "trailing_text"),
        ('```{"a":1}```', "fenced"),
        ('<think>x</think>{"a":"x"} ok', "mismatch"),
        ('\ufeff{"a":1}{', "trailing_text"),
        ('{"a":1}\x00', "trailing_text"),
        ("3 apples", "mismatch"),
        ("\ufeff", "invalid"),
        ("</think>", "invalid"),
        ('```json5\n{"a":1}\n```', "invalid"),
        ('```json\n{"a":1}', "invalid"),
        ('```json\n{"a":1}\n```\n```json\n{"a":2}\n```', "invalid"),
        ('```json\n{"a":1}\n```\nDone', "invalid"),
        ('{"a":1}</think>', "invalid"),
        ('{"a":1} hm</think>{"a":2}', "leading_text"),
        ('{"b":"a </think> b"} ok', "trailing_text"),
        ('["a</think>", "', "invalid"),
        ('\ufeff ["a</think>", "', "invalid"),
        ("[first</think>[1]", "invalid"),
        ('Here: {"b":"</think>", "a":1}', "invalid"),
        ('Here: {"b":"</think>{}', "leading_text"),
        ('Here: {"b":"</think>{}"', "invalid"),
        ('Here: {"b":"</think>5', "invalid"),
        ('Here: {"b":"</think>{"a":1} ok', "invalid"),
        ('a 5" or \\" hm</think>{"a":1} ok', "invalid"),
        ('a 5" or \\\\" hm</think>{"a":1} ok', "trailing_text"),
        ('a 5" hm</think>```\n{"b":"\n"}\n```', "control_chars"),
        ('<think>a "</think>{"a":1} ok', "trailing_text"),
        ('<think>["</think>[1]', "mismatch"),
        ('3 "</think>4', "mismatch"),
        ("hm\\</think>{}", "leading_text"),
        ('```json\n{"b":"a </think> ```b"}\n```', "fenced"),
        ("1. First", "invalid"),
        ("007", "invalid"),
        (" \r\n\t", "empty"),
    ],
)
def test_a_status_names_what_was_found(text: str, named: str) -> None:
    assert status(text) == named


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"b":"x',
        '{"b":"x\ny',
        '{"b":"<think>x</think>y',
        "<think>so",
        " <think>",
        "<think>x</think>",
        '<think>x</think>{"a"',
        "```",
        "```js",
        "```json",
        '```json\n{"a":1}',
        '```json\n{"a":1}\n``',
        '```json\n{"b":"x```',
        '\ufeff{"a"',
        "-",
        "tru",
        "1.",
    ],
)
def test_what_is_cut_short_is_truncated_where_the_server_says_so_and_else_invalid(text: str) -> None:
    assert status(text, cut_short=True) == "truncated"
    assert status(text) == "invalid"


@pytest.mark.parametrize(
    "text", ["hello", '{"a":1,,', "[" * 129, '```json\n{"a":1}\nDone', "```bash\nls", "<think>x</think><think>y"]
)
def test_what_was_broken_before_it_was_cut_is_invalid(text: str) -> None:
    assert status(text, cut_short=True) == "invalid"


@pytest.mark.parametrize("text", ['{"a":1}', "1.5", '{"a":1} ok', '```\n{"a":1}\n```'])
def test_a_complete_value_is_never_truncated(text: str) -> None:
    assert status(text, cut_short=True) == status(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a":1}', "ok"),
        ('{"a":"x"}', "mismatch"),
        ('\ufeff{"a":1}', "invalid"),
        ('<think></think>{"a":1}', "invalid"),
        ('```\n{"a":1}\n```', "invalid"),
        ('```\n{"a":"x"}\n```', "invalid"),
        ('{"b":"\n"}', "invalid"),
        ('{"a":1} ok', "invalid"),
        ("", "empty"),
        (None, "missing"),
    ],
)
def test_strict_takes_no_repair(text: str | None, named: str) -> None:
    assert status(text, reader=STRICT) == named


def test_strict_knows_what_is_truncated_without_repair() -> None:
    assert status('{"a":', cut_short=True, reader=STRICT) == "truncated"
    assert status('```\n{"a":', cut_short=True, reader=STRICT) == "invalid"
    assert status("<think>", cut_short=True, reader=STRICT) == "invalid"


def test_without_a_type_the_value_is_its_json_text() -> None:
    assert value(' {"a": 1.50} ', TEXT) == '{"a": 1.50}'
    assert value('"x"', TEXT) == '"x"'
    assert value('{"b":"\n\\n"}', TEXT) == '{"b":"\\n\\n"}'
    assert value("null", TEXT) is None
    assert value("hello", TEXT) is None


def test_text_kept_of_raw_control_characters_is_valid_json() -> None:
    rescue = Rescue()
    READER.read('{"a":"x\ty","c":["\x01"]}', cut_short=False, path=None, rescue=rescue)
    assert rescue.text() == '{"a": "x\\ty", "c": ["\\u0001"]}'
    assert value('{"b":{"k":"\n"}}') == {"a": None, "b": '{"k":"\\n"}'}


@given(st.text(max_size=12), st.text(alphabet='"{}[]:,</think> ab1\\', max_size=24), st.booleans())
@settings(max_examples=300, deadline=None)
def test_no_value_is_made_of_the_inside_of_a_string(before: str, after: str, prose: bool) -> None:
    """A string that holds the tag, in JSON that breaks behind it: what is taken is an object or array alone, if any."""
    start = ("Here: " if prose else "") + '{"b":' + json.dumps(before)[:-1]
    found, named = TEXT.read(f"{start}</think>{after}", cut_short=False, path=None, rescue=Rescue())
    if named == ParseStatus.LEADING_TEXT:
        assert prose
        assert isinstance(json.loads(str(found)), dict | list)
        assert found == after.strip()
    else:
        assert named == ParseStatus.CONTROL_CHARS or found is None or not prose


@given(st.text(alphabet='{}[]":,`<think>/ab\\\n\x00\ufeff😀 1-.etrujson', max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_status_and_a_value_only_with_a_good_one(text: str, cut_short: bool) -> None:
    for reader in (READER, STRICT, TEXT):
        found, named = reader.read(text, cut_short=cut_short, path=None, rescue=Rescue())
        assert found is None or named <= ParseStatus.MISMATCH
