"""A response in the chat form: what its one choice says, and when it counts as whole (DESIGN §2 rules 3 and 4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import rows_of_both_engines
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.capture.driving import RESPONSES, answer_messages, capture, lines

from dspark_json.capture.jsontext import dumps
from dspark_json.capture.responses import chat_choices, choices_member, is_finished
from dspark_json.engine import build_plan
from dspark_json.schema.ddl import from_ddl

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]


def text(*parts: str, **fields: Any) -> Json:
    return {"type": "message", "content": [{"type": "output_text", "text": part} for part in parts], **fields}


def message(*output: Json, status: str = "completed") -> Json:
    (choice,) = chat_choices({"status": status, "output": list(output)})
    found: Json = choice["message"]
    return found


def test_content_is_all_text_of_the_answer() -> None:
    assert message(text("a", "b"), text("c")) == {"role": "assistant", "content": "abc"}
    assert message()["content"] is None
    assert message(text(""))["content"] == ""


def test_commentary_is_content_only_where_there_is_nothing_else() -> None:
    commentary = text("let me see", phase="commentary")
    assert message(commentary, text("{}", phase="final_answer"))["content"] == "{}"
    assert message(commentary, text("{}"))["content"] == "{}"
    assert message(commentary)["content"] == "let me see"


def test_a_refusal_is_told_as_one() -> None:
    refused = {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}
    assert message(refused) == {"role": "assistant", "content": None, "refusal": "no"}


def test_reasoning_is_its_text_else_its_summary() -> None:
    items = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}], "summary": [{"text": "not this"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]},
        {"type": "reasoning", "summary": [], "content": None},
    ]
    assert message(*items, text("x"))["reasoning"] == "a\nb"
    assert "reasoning" not in message(items[2], text("x"))


def test_calls_of_functions_are_tool_calls_and_those_of_the_servers_own_tools_are_not() -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    own = {"type": "web_search_call", "id": "w", "status": "completed"}
    assert message(call, own) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_logprobs_of_the_text_are_the_choices() -> None:
    item = text("a", "b")
    for number, part in enumerate(item["content"]):
        part["logprobs"] = [{"token": str(number), "logprob": -0.5}]
    (choice,) = chat_choices({"status": "completed", "output": [item]})
    assert choice["logprobs"] == {"content": [{"token": "0", "logprob": -0.5}, {"token": "1", "logprob": -0.5}]}
    (choice,) = chat_choices({"status": "completed", "output": [text("a")]})
    assert choice["logprobs"] is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": [1]}}, "length"),
        ({"status": "failed"}, "error"),
        ({"status": "cancelled"}, "abort"),
        ({"status": "in_progress"}, None),
        ({"status": ["completed"]}, None),
        ({}, None),
    ],
)
def test_the_finish_reason_follows_the_status(state: Json, reason: str | None) -> None:
    (choice,) = chat_choices({**state, "output": [text("x")]})
    assert choice["finish_reason"] == reason


@pytest.mark.parametrize("status", ["queued", "in_progress", "failed", None])
def test_a_response_that_said_nothing_has_no_choice(status: str | None) -> None:
    assert chat_choices({"status": status, "output": []}) == []
    assert chat_choices({"status": status}) == []


@pytest.mark.parametrize("output", [None, 1, "x", [1, None, "x"], [{"type": "message", "content": 5}], [{"type": 1}],
                                    [{"type": "message", "content": [1, {"text": 5, "logprobs": 3}]}]])  # fmt: skip
def test_an_output_of_another_form_costs_nothing(output: object) -> None:
    assert all(
        choice["message"]["content"] is None for choice in chat_choices({"status": "completed", "output": output})
    )


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "content", "text", "summary", "phase", "logprobs", "reason"]), inner)
    ),
    max_leaves=10,
)
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call"])},
    optional=dict.fromkeys(("content", "summary", "phase", "call_id", "name", "arguments"), ANYTHING),
)
RESPONSES_OF_ANY_FORM = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "incomplete", "failed"]) | ANYTHING,
        "output": st.lists(ITEMS | ANYTHING, max_size=3) | ANYTHING,
        "incomplete_details": ANYTHING,
        "choices": ANYTHING,
    },
)


@settings(max_examples=300, deadline=None)
@given(RESPONSES_OF_ANY_FORM)
def test_a_response_of_any_form_has_at_most_one_choice(response: Json) -> None:
    choices = chat_choices(response)
    assert len(choices) <= 1
    assert choices_member(response) in (b"", b'"choices":' + dumps(choices))
    assert not (is_finished(response) and not choices)


def record_of(body: Json | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, status: int = 200) -> Json:
    sent = body if isinstance(body, str) else json.dumps(body)
    return capture(answer_messages([sent.encode()], status=status), tmp_path, monkeypatch, path=RESPONSES)


@pytest.mark.parametrize(
    ("state", "completed"),
    [
        ({"status": "completed"}, True),
        ({"status": "incomplete"}, True),
        ({"status": "completed", "error": {"message": "x"}}, False),
        ({"status": "failed"}, False),
        ({"status": "cancelled"}, False),
        ({"status": "queued"}, False),
        ({"status": 200}, False),
        ({"status": ["completed"]}, False),
        ({"status": {}, "output": []}, False),
        ({}, False),
    ],
)
def test_a_response_is_complete_by_its_status(
    state: Json, completed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of({"id": "r", "output": [text("x")], **state}, tmp_path, monkeypatch)
    assert record["_dspark"]["completed"] is completed


@pytest.mark.parametrize(
    "body",
    [
        '{"output":[{"type":"message","content":[{"text":"real"}]}],"status":"completed","choices":[{"text":"forged"}]}',
        '{"choices":[{"text":"forged"}],"status":"failed"}',
        '{"choices":[{"text":"forged"}]}',
        '{"cho\\u0069ces":[{"text":"forged"}]}',
    ],
)
def test_a_body_cannot_make_its_own_choices(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_of(body, tmp_path, monkeypatch)
    (row,) = rows_of_both_engines(lines(tmp_path))
    assert [choice["message"]["content"] for choice in row["choices"]] == (["real"] if "real" in body else [])


def test_an_error_answer_has_no_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of({"error": {"message": "bad", "type": "T", "code": 400}}, tmp_path, monkeypatch, status=400)
    assert list(record) == ["_dspark", "error"]


@pytest.mark.parametrize("size", [1_000, 400_000])
def test_a_response_of_any_size_is_typed_and_known_to_be_whole(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps({"a": 7, "pad": "x" * size})
    body = {"id": "r", "object": "response", "created_at": 5, "status": "completed", "output": [text(content)],
            "tools": [{"type": "function", "name": "SECRET"}], "instructions": "SECRET", "n": 1}  # fmt: skip
    record = record_of(body, tmp_path, monkeypatch)
    assert record["_dspark"]["completed"] is True
    assert (record["tools"], record["instructions"]) == (None, None)
    plan = build_plan(content_type=from_ddl("a BIGINT"))
    (row,) = rows_of_both_engines(lines(tmp_path), plan)
    (choice,) = row["choices"]
    assert (choice["parsed"], choice["parse_status"], choice["finish_reason"]) == ({"a": 7}, "ok", "stop")
    assert row["created"].timestamp() == 5
    assert row["output"][0]["content"][0]["text"] == content
