"""What an error quotes of the request does not get into the spool (DESIGN §2 rule 8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from unit.capture.driving import all_lines, answer_messages, capture

from dspark_json.capture.captured import Captured
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.quoting import without_quotes
from dspark_json.capture.redaction import redact_error
from dspark_json.capture.request_texts import RequestTexts

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "text/event-stream"
NO_TEXTS = RequestTexts(Captured(None, (), 0), "settings")
QUOTING = (
    "1 validation error:\n  {'type': 'list_type', 'loc': ('body', 'messages'), 'msg': 'Input should be a valid list', "
    "'input': %s, 'url': 'u'}\n  {'type': 'missing', 'loc': 'body.input', 'input': %s}"
)
INPUTS = [
    "'SECRET PROMPT'",
    '"it\'s, SECRET PROMPT"',
    "'SECRET \\\\\\'PROMPT, \\\\n'",
    "{'role': 'user', 'content': [{'text': 'SECRET PROMPT'}]}",
    "('SECRET PROMPT', 5)",
    "ValueError('SECRET, PROMPT')",
    "5",
]


@pytest.mark.parametrize("value", INPUTS)
def test_an_error_is_kept_without_the_input_that_it_quotes(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {
        "error": {"message": QUOTING % (value, value), "type": "Bad Request", "param": "body.messages", "code": 400}
    }
    text = json.dumps(body)
    messages = answer_messages([text.encode()], status=400)
    record = capture(messages, tmp_path / "s", monkeypatch)
    expected = QUOTING % ("<not kept>", "<not kept>")
    assert record["_dspark"]["error"] == {"message": expected, "type": "Bad Request", "code": "400"}
    assert record["error"] == {**body["error"], "message": expected}
    assert capture(messages, tmp_path / "f", monkeypatch, CAPTURE_REQUESTS="full")["error"] == body["error"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"detail":[{"msg":"m","input":{"a":"s"},"n":1.50}]}', '{"detail":[{"msg":"m","input":null,"n":1.50}]}'),
        ('{"message":"{\\"input\\": [\\"s\\"], \\"a\\": 1}"}', '{"message":"{\\"input\\": <not kept>, \\"a\\": 1}"}'),
        (
            '{"m":"[type=x, input_value=\'s]...\', input_type=str]"}',
            '{"m":"[type=x, input_value=<not kept>, input_type=str]"}',
        ),
        ('{"m":"\'input\': \'never ended, s"}', '{"m":"\'input\': <not kept>"}'),
        ('{"m":"\\\\\\"messages\\\\\\": s, s"}', '{"m":"\\\\\\"messages\\\\\\": <not kept>"}'),
        ('{"m":"loc: (\'body\', \'input\'), input: no", "\'input\': 1":"x"}', None),
        ("\"plain 'prompt':s\"", "\"plain 'prompt':<not kept>\""),
        ('{"error":null}', None),
    ],
)
def test_only_what_is_quoted_is_taken_out_of_an_error(text: str, expected: str | None) -> None:
    assert redact_error(text.encode(), NO_TEXTS, Pacer()).decode() == (text if expected is None else expected)


def test_an_error_that_comes_with_status_200_quotes_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = json.dumps(
        {"error": {"message": QUOTING % ("'SECRET'", "'SECRET'")}, "x": "'input': 'kept'", "choices": [{}]}
    ).encode()
    record = capture(answer_messages([error]), tmp_path / "a", monkeypatch)
    assert record["x"] == "'input': 'kept'"
    bodies = [b"data: " + error + b"\n\n", b"data: [DONE]\n\n"]
    capture(answer_messages(bodies, content_type=STREAM), tmp_path / "b", monkeypatch)
    for folder in ("a", "b"):
        assert b"SECRET" not in all_lines(tmp_path / folder)
        assert b"<not kept>" in all_lines(tmp_path / folder)


def test_an_answer_may_say_what_an_error_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"choices":[{"message":{"content":"{\\"input\\": \'prompt\': 5}","tools":[1]}}],"metadata":{"input":"5"}}'
    capture(answer_messages([body]), tmp_path, monkeypatch)
    assert all_lines(tmp_path).endswith(body[1:] + b"\n")


@pytest.mark.parametrize("body", [b"oops 'input': 'SECRET'", b'{"error":{"message":"[input_value=SECRET'])
def test_an_errors_text_that_may_quote_is_withheld(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = capture(answer_messages([body], status=400), tmp_path, monkeypatch)["_dspark"]
    assert (meta["status"], meta["body"], meta["error"]["code"]) == (400, None, "body_withheld")
    assert b"SECRET" not in all_lines(tmp_path)


def test_a_large_error_is_kept_without_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"error": {"message": QUOTING % (repr("SECRET" * 60_000), "5")}}).encode()
    record = capture(answer_messages([body], status=400), tmp_path, monkeypatch)
    assert record["error"]["message"] == QUOTING % ("<not kept>", "<not kept>")


@pytest.mark.parametrize("piece", ["\\", "'", "'input':", "'input': ["])
def test_the_length_of_an_error_costs_no_more_than_its_length(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    assert len(without_quotes(text)) <= 3 * len(text)  # a quadratic search would take minutes
