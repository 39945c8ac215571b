"""The span-keeping parser takes exactly RFC 8259 (to a depth of 128), and knows where each value stands."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.engine.json_spans import MAX_DEPTH, JsonSyntaxError, Kind, Value, parse, parse_prefix

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def loaded(value: Value) -> Any:
    """The value as ``json.loads`` would give it, numbers as text."""
    match value.kind:
        case Kind.OBJECT:
            return {name: loaded(member) for name, member in value.members().items()}
        case Kind.ARRAY:
            return [loaded(item) for item in value.items()]
        case Kind.STRING:
            return value.string()
        case Kind.NUMBER:
            return ("number", value.raw())
        case kind:
            return {Kind.TRUE: True, Kind.FALSE: False, Kind.NULL: None}[kind]


def by_the_library(text: str) -> Any:
    """What Python's json makes of a text, strictly: no NaN, numbers as text, lone surrogates as U+FFFD."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    def number(digits: str) -> Any:
        return ("number", digits)

    def mended(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub("[\ud800-\udfff]", "\ufffd", value)
        if isinstance(value, list):
            return [mended(item) for item in value]
        if isinstance(value, dict):
            return {mended(name): mended(member) for name, member in value.items()}
        return value

    return mended(json.loads(text, parse_constant=refuse, parse_int=number, parse_float=number))


@given(JSON, st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_valid_json_is_read_as_the_library_reads_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    assert loaded(parse(data).root) == by_the_library(data.decode("utf-8", "replace"))


@given(JSON, st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_bytes_are_taken_and_refused_as_by_the_library(value: Any, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 2))
        text[place : place + cut] = data.draw(
            st.sampled_from([*b'{}[]:,"\\0123456789.eE+-tfn \t\n\x00\xff/u'])
        ).to_bytes(1, "big")
    mutated = bytes(text)
    try:
        expected = by_the_library(mutated.decode("utf-8", "replace"))
    except ValueError:
        with pytest.raises(JsonSyntaxError):
            parse(mutated)
    else:
        assert loaded(parse(mutated).root) == expected


@given(JSON, st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_cut_off_anywhere_is_known_as_a_prefix(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value]).encode()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(JsonSyntaxError) as caught:
        parse(text[:end])
    assert caught.value.cut


@pytest.mark.parametrize(
    "text", ["-", "1.", "1e", "1e+", "-0.", "t", "nul", '"', '"a\\', '"\\u12', '{"a"', '{"a":', '{"a":1,', "[1,", "[-"]
)
def test_a_cut_token_is_a_prefix(text: str) -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        parse(text.encode())
    assert caught.value.cut


@pytest.mark.parametrize(
    "text",
    [
        "01",
        "+1",
        ".5",
        "1.e5",
        "-x",
        "truX",
        '"\\d',
        '"\\u12g',
        "[1,]",
        "[,",
        '{"a":1,}',
        "{1",
        '{"a",',
        "]",
        "'",
        "[1 2",
    ],
)
def test_what_no_end_could_mend_is_broken_not_cut(text: str) -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        parse(text.encode())
    assert not caught.value.cut


def test_depth_128_passes_and_129_is_broken_not_cut() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).root.kind == Kind.ARRAY
    for text in (b"[" * 129 + b"]" * 129, b"[" * 129, b'{"a":' * 129):
        with pytest.raises(JsonSyntaxError) as caught:
            parse(text)
        assert not caught.value.cut


def test_a_value_is_kept_as_written_at_its_span() -> None:
    data = b' {"a": [1, 2.50 ,{"k":\t1E3}], "b":"\\u00e9"} '
    members = parse(data).root.members()
    assert members["a"].raw() == '[1, 2.50 ,{"k":\t1E3}]'
    assert data[members["b"].start : members["b"].end] == b'"\\u00e9"'
    assert members["b"].string() == "é"


def test_of_duplicate_names_the_last_wins_at_its_place_and_the_first_where_asked() -> None:
    root = parse(b'{"a":1,"b":2,"\\u0061":3,"b":4}').root
    assert {name: value.raw() for name, value in root.members().items()} == {"a": "3", "b": "4"}
    assert list(root.members()) == ["a", "b"]
    assert root.members(frozenset({"a"}))["a"].raw() == "1"


@pytest.mark.parametrize("space", ["", " ", " \n\t"])
@pytest.mark.parametrize("count", [1, 2, 4096, 4097, 4098, 9000])
def test_many_numbers_of_an_array_are_each_where_they_stand(count: int, space: str) -> None:
    numbers = [("1", "-0", "2.5e+3", "0.25", "1E9")[i % 5] for i in range(count)]
    text = f"[{space}" + f"{space},{space}".join(numbers) + f"{space}]"
    whole = parse(f'{{"a":{text},"b":[{text},"x",7]}}'.encode()).root.members()
    for array in (whole["a"], next(whole["b"].items())):
        assert [item.raw() for item in array.items()] == numbers
        assert all(item.kind == Kind.NUMBER for item in array.items())
    assert [item.raw() for item in whole["b"].items()] == [text, '"x"', "7"]


@pytest.mark.parametrize("bad", ["01", "1.", "-", "1e", "+1", ".5", "1x", "1 2", "1,,2", "", "0x1", "1.5.2"])
@pytest.mark.parametrize("count", [1, 5000])
def test_what_is_no_number_is_found_behind_many(count: int, bad: str) -> None:
    head = "[" + "1," * count
    with pytest.raises(JsonSyntaxError) as alone:
        parse(f"[1,{bad}]".encode())
    with pytest.raises(JsonSyntaxError) as behind:
        parse(f"{head}{bad}]".encode())
    assert (behind.value.position - len(head), behind.value.cut) == (alone.value.position - 3, alone.value.cut)


def test_every_beginning_of_an_array_of_numbers_is_cut() -> None:
    text = b"[0, -1.5e-3 ,12\n,7,[8,9],10]"
    for end in range(1, len(text)):
        with pytest.raises(JsonSyntaxError) as caught:
            parse(text[:end])
        assert caught.value.cut, text[:end]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (rb'"\ud83d\ude00"', "😀"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\ud83dx\ude00"', "\ufffdx\ufffd"),
        (b'"\xff\xe2\x82"', "\ufffd\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
        (b'"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\/\b\f\n\r\t'),
    ],
)
def test_surrogates_escapes_and_invalid_utf8(text: bytes, meant: str) -> None:
    assert parse(text).root.string() == meant


def test_raw_control_characters_are_taken_where_allowed_and_escaped_in_the_shortest_form() -> None:
    data = b'{\n"a\tb": ["\n\x01\\n", "x"]}'
    with pytest.raises(JsonSyntaxError):
        parse_prefix(data)
    document = parse_prefix(data, allow_controls=True)
    assert document.has_controls
    assert document.root.raw() == '{\n"a\\tb": ["\\n\\u0001\\n", "x"]}'
    assert next(iter(document.root.members())) == "a\tb"


@pytest.mark.parametrize("text", [b"007", b"1.5.2", b"2024-01-01", b"1. First", b"nullable", b"12kg"])
def test_a_number_or_word_with_something_glued_to_it_is_no_value(text: bytes) -> None:
    with pytest.raises(JsonSyntaxError):
        parse_prefix(text)


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b"x" * (20 << 20) + b'"',
        b'"' + b"\\n" * (10 << 20) + b'"',
        b'"' + b"\xff" * (20 << 20) + b'"',
        b'"' + b"\n" * (20 << 20) + b'"',
        b" " * (20 << 20) + b"1" * 1000,
        b"[" * (20 << 20),
        b"1" * (20 << 20) + b".",
        b'"' + b"\\u0000" * (3 << 20),
    ],
    ids=["plain", "escapes", "invalid-utf8", "controls", "space", "deep", "digits", "unclosed"],
)
def test_time_is_linear_in_twenty_mebibytes(data: bytes) -> None:
    started = time.process_time()
    try:
        root = parse_prefix(data, allow_controls=True).root
        root.raw()
        if root.kind == Kind.STRING:
            root.string()
    except JsonSyntaxError:
        pass
    assert time.process_time() - started < 10
