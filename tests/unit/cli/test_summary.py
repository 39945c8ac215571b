"""A record as one line for people."""

from __future__ import annotations

import json

import pytest

from dspark_json.cli.records import StoredRecord
from dspark_json.cli.summary import local_time, summary


def shown(record: object) -> str:
    line = record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n"
    text = summary(StoredRecord(1_795_970_578_123_456, "0000", 12, line))
    assert text.isprintable()
    return text


def answer(**changes: object) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", "content": '{"a": 1}'}, "finish_reason": "stop"}
    return {
        "_dspark": {"seq": 12, "lane": "0000", "status": 200, "completed": True},
        "model": "tiny",
        "choices": [choice],
        "usage": {"total_tokens": 60},
        **changes,
    }


def test_it_has_time_place_status_model_reason_tokens_and_content() -> None:
    time, rest = shown(answer()).split(" ", 1)
    assert len(time) == len("12:34:56.789")
    assert rest == '0000:12 200 tiny stop 60 tokens {"a": 1}'


def test_long_content_is_cut_and_several_choices_stand_side_by_side() -> None:
    choices = [{"message": {"content": "x" * 200}, "finish_reason": "length"}, {"text": "y", "finish_reason": None}]
    assert shown(answer(choices=choices)).endswith(f" length,- 60 tokens {'x' * 79}… | y")


def test_nothing_a_server_says_is_shown_at_any_length() -> None:
    long = "y" * 100_000
    choices = [{"message": {"content": long}, "finish_reason": long}]
    assert len(shown(answer(model=long, choices=choices, usage={"total_tokens": long}))) < 1000
    assert len(shown({"error": {"message": long}})) < 400


def test_a_time_that_no_calendar_has_shows_as_a_question_mark() -> None:
    assert summary(StoredRecord(2**63, "0000", 12, b"{}\n")).startswith("?.")
    assert local_time(-(10**40), "%Y") == "?"


def test_json_that_holds_half_a_character_is_shown_with_its_escape() -> None:
    line = json.dumps(answer()).replace("tiny", r"ti\ud800ny").replace("stop", r"\udc00").encode()
    assert shown(line).endswith(r'200 ti\ud800ny \udc00 60 tokens {"a": 1}')


def test_tool_calls_show_as_calls() -> None:
    call = {"function": {"name": "create_order", "arguments": '{"id":1}'}}
    choices = [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]
    assert shown(answer(choices=choices)).endswith('create_order({"id":1})')


def test_errors_and_answers_cut_short_say_so() -> None:
    failed = {"_dspark": {"status": 400, "completed": False}, "error": {"message": "too long"}}
    assert shown(failed).endswith(" 0000:12 400 - error: too long")
    assert len(shown({**failed, "error": {"message": "x" * 10_000}})) < 400
    cut = {"seq": 12, "lane": "0000", "status": 200, "completed": False}
    assert " 200 unfinished tiny stop 60 tokens " in shown(answer(_dspark=cut))
    assert "unfinished" in shown({"_dspark": cut})


def test_what_came_from_outside_can_not_command_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\n\u202e\x9b31m"
    text = shown(answer(model=evil, choices=[{"message": {"content": evil}, "finish_reason": evil}]))
    assert "\\x1b]0;owned\\x07\\n" in text


@pytest.mark.parametrize(
    "line",
    [b"not json\n", b"[]\n", b'{"choices":7,"usage":[],"_dspark":0}\n', b'{"choices":[{"message":[]}]}\n', b"\xff\n"],
)
def test_no_line_is_too_odd_to_be_shown(line: bytes) -> None:
    assert " 0000:12 " in shown(line)
