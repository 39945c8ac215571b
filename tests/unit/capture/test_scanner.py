"""A text is walked over as every JSON parser would read it, however much of it is passed over in one step."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.capture.pacing import Pacer
from dspark_json.capture.scanner import value_spans

SMALL = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**9), st.floats(-1e9, 1e9), st.sampled_from(["", "a", 'q"\\\n', "é,]}"])
)
VALUES = st.recursive(
    SMALL,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.sampled_from(["tools", "a", "é", '"']), inner, max_size=4)
    ),
    max_leaves=40,
)


def found(text: bytes) -> list[Any]:
    spans = value_spans(text, lambda path, key: path == () and key == "tools", Pacer())
    return [orjson.loads(text[start:end]) for start, end, _ in spans]


@given(VALUES, st.sampled_from([None, 0, 1]))
@settings(max_examples=300, deadline=None)
def test_a_wanted_value_is_found_whole(value: Any, indent: int | None) -> None:
    text = json.dumps({"a": value, "tools": value, "b": 1}, indent=indent, ensure_ascii=False).encode()
    assert found(text) == [value]


@given(VALUES, st.data())
@settings(max_examples=300, deadline=None)
def test_a_text_that_lost_or_doubled_a_byte_is_refused_as_a_parser_refuses_it(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"tools": [value, 1, [2, 3], {"a": 4}, value]}).encode()
    at = data.draw(st.integers(0, len(text) - 1))
    broken = text[:at] + text[at + 1 :] if data.draw(st.booleans()) else text[:at] + text[at : at + 1] + text[at:]
    try:
        orjson.loads(broken)
    except orjson.JSONDecodeError:
        with pytest.raises(ValueError, match=r"."):
            found(broken)
    else:
        found(broken)


@pytest.mark.parametrize("item", ["[]", "{}", '{"a":1}', "[[]]", '{"a":{}}'])
@pytest.mark.parametrize("depth", [1_020, 1_021, 1_022, 1_023])
def test_what_is_nested_deeper_than_a_parser_goes_is_refused_wherever_it_stands(item: str, depth: int) -> None:
    text = f'{{"tools":{"[" * depth}1,{item},2{"]" * depth}}}'.encode()
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        with pytest.raises(ValueError, match="deep"):
            found(text)
    else:
        assert len(found(text)) == 1
