"""Which schemas a request names, and that no shape of a request raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.schema.requested import MAX_NAME, MAX_TOOLS, RequestedSchema, requested_schemas

RECORDED = Path(__file__).parents[2] / "fixtures/vllm/asgi-exchanges.jsonl"
ORDER = {"type": "object", "properties": {"id": {"type": "string"}}}
TITLED = {"title": "Order", **ORDER}


def json_schema(name: object, schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def content_of(**request: object) -> tuple[str | None, object] | None:
    found = requested_schemas(request).content
    return None if found is None else (found.name, found.schema)


def recorded_requests() -> dict[str, dict[str, Any]]:
    lines = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return {line["name"]: line["request"] for line in lines}


def test_each_recorded_request_names_the_schema_that_it_asked_for() -> None:
    content = {}
    tools = {}
    without = set()
    for name, request in recorded_requests().items():
        found = requested_schemas(request)
        if found.content is not None:
            assert isinstance(found.content.schema, dict)
            content[name] = found.content.name
        if found.tools:
            tools[name] = [tool.name for tool in found.tools]
        if found.json_object_without_schema:
            without.add(name)
    assert content == {
        "chat_order": "order",
        "chat_order_length": "order",
        "chat_risk": "risk",
        "chat_n3": "risk",
        "chat_bad_schema": "bad",
        "chat_guided_json": None,
        "completions_json": "risk",
        "responses_json": "risk",
        "stream_order_usage": "order",
        "stream_order_continuous_usage": "order",
        "stream_n2": "risk",
        "stream_length": "order",
        "stream_responses": "risk",
    }
    asked_strictly = {
        name
        for name, request in recorded_requests().items()
        if any(tool["function"].get("strict") is True for tool in request.get("tools", ()))
    }
    assert set(tools) == asked_strictly
    assert without == {"chat_json_object", "chat_json_object_truncated"}


def test_response_format_has_the_name_and_schema_in_json_schema() -> None:
    assert content_of(response_format=json_schema("order", ORDER)) == ("order", ORDER)


def test_text_format_of_the_responses_api_has_them_beside_its_type() -> None:
    assert content_of(text={"format": {"type": "json_schema", "name": "order", "schema": ORDER}}) == ("order", ORDER)


@pytest.mark.parametrize("given", [TITLED, json.dumps(TITLED)], ids=["object", "text"])
def test_structured_outputs_and_guided_json_may_be_an_object_or_its_text_and_are_named_by_their_title(
    given: object,
) -> None:
    assert content_of(structured_outputs={"json": given}) == ("Order", TITLED)
    assert content_of(guided_json=given) == ("Order", TITLED)


def test_a_schema_without_a_usable_name_has_none() -> None:
    assert content_of(guided_json=ORDER) == (None, ORDER)
    assert content_of(guided_json={"title": 7}) == (None, {"title": 7})
    assert content_of(response_format=json_schema(None, ORDER)) == (None, ORDER)
    assert content_of(response_format=json_schema("x" * MAX_NAME, ORDER)) == ("x" * MAX_NAME, ORDER)
    assert content_of(response_format=json_schema("x" * (MAX_NAME + 1), ORDER)) == (None, ORDER)


def test_a_lone_surrogate_in_a_name_is_replaced_and_a_pair_is_joined() -> None:
    assert content_of(response_format=json_schema("a\ud800b", ORDER)) == ("a\ufffdb", ORDER)
    assert content_of(response_format=json_schema("\ud83d\ude00é", ORDER)) == ("😀é", ORDER)


def test_of_several_schemas_for_the_content_the_one_that_vllm_takes_counts() -> None:
    first, second, third = {"title": "a"}, {"title": "b"}, {"title": "c"}
    everything = {"structured_outputs": {"json": second}, "guided_json": third}
    assert content_of(response_format=json_schema("a", first), **everything) == ("a", first)
    assert content_of(**everything) == ("b", second)
    assert content_of(response_format={"type": "text"}, guided_json=third) == ("c", third)


def test_true_and_false_are_schemas_and_other_values_are_none() -> None:
    assert content_of(guided_json=True) == (None, True)
    assert content_of(guided_json="false") == (None, False)
    others: list[object] = [None, 1, 1.5, [], "", "{", "[]", "NaN", '{"a": NaN}', "[" * 100_000]
    for value in others:
        assert content_of(guided_json=value) is None, value


def test_a_schema_counts_only_under_its_type() -> None:
    assert content_of(response_format={"type": "text", "json_schema": {"schema": ORDER}}) is None
    assert content_of(response_format={"json_schema": {"schema": ORDER}}) is None
    assert content_of(text={"format": {"schema": ORDER}}) is None


def test_the_schemas_of_strict_tools_are_their_parameters() -> None:
    def tool(name: str, **more: object) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": {"title": name}, **more}}

    tools = [tool("a", strict=True), tool("b"), tool("c", strict=False), tool("d", strict="true"), {"type": "web"}]
    flat = {"type": "function", "name": "e", "parameters": '{"title": "e"}', "strict": True}
    assert requested_schemas({"tools": [*tools, flat]}).tools == (
        RequestedSchema("tool", "a", {"title": "a"}),
        RequestedSchema("tool", "e", {"title": "e"}),
    )
    many = requested_schemas({"tools": [tool(f"t{i}", strict=True) for i in range(MAX_TOOLS + 50)]}).tools
    assert [found.name for found in many] == [f"t{i}" for i in range(MAX_TOOLS)]


@pytest.mark.parametrize(
    "asked",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
        {"text": {"format": {"type": "json_object"}}},
    ],
)
def test_json_without_a_schema_is_told_unless_another_member_has_one(asked: dict[str, Any]) -> None:
    assert requested_schemas(asked).json_object_without_schema
    assert not requested_schemas({**asked, "guided_json": ORDER}).json_object_without_schema
    assert not requested_schemas({}).json_object_without_schema


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(ORDER),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("type", "json_schema", "schema", "name", "json", "format", "function", "strict", "parameters", "title")
            ),
            inner | st.sampled_from(("json_schema", "json_object", "function")),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(("response_format", "structured_outputs", "guided_json", "text", "tools", "model")), ANY_JSON
    )
)
def test_no_shape_of_a_request_raises(request: dict[str, Any]) -> None:
    found = requested_schemas(request)
    for one in (*([found.content] if found.content else ()), *found.tools):
        assert isinstance(one.schema, (dict, bool))
        assert one.name is None or len(one.name) <= MAX_NAME
