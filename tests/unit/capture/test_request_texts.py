"""What an error repeats of the request, however it does, does not get into the spool (DESIGN §2 rule 8)."""

from __future__ import annotations

import gzip
import html
import json
import textwrap
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.capture.driving import (
    COMPLETIONS,
    RESPONSES,
    all_lines,
    answer_messages,
    capture,
    recorded_exchanges,
    recorded_messages,
    spec_decode_exchanges,
)

from dspark_json.capture.captured import Captured
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.redaction import redact_error
from dspark_json.capture.request_texts import RequestTexts
from dspark_json.capture.text_runs import LEAST_RUN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = 'Grüße: it\'s \\alpha & 4711,\n"whisper" it 😀 to the client of Mr. Müller'
MODES = ("none", "settings")

# Where texts of a request are, beside those that every mode keeps.
MEMBERS: dict[str, Any] = {
    "messages": lambda text: [{"role": "user", "content": text}],
    "messages, in parts": lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}],
    "messages, as a role": lambda text: [{"role": text, "content": "x"}],
    "prompt": lambda text: ["x", text],
    "input": lambda text: text,
    "instructions": lambda text: text,
    "suffix": lambda text: text,
    "documents": lambda text: [{"title": "x", "text": text}],
    "chat_template": lambda text: text,
    "chat_template_kwargs": lambda text: {"a": {"b": text}},
    "metadata": lambda text: {"tag": text},
    "tools": lambda text: [{"type": "function", "function": {"name": "f", "description": text}}],
    "guided_regex": lambda text: text,
    "user": lambda text: text,
    "a member that nobody knows yet": lambda text: {"deep": [[text]]},
}
SETTINGS: dict[str, Any] = {
    "stop": lambda text: [text],
    "response_format": lambda text: {"type": "json_schema", "json_schema": {"schema": {"description": text}}},
    "structured_outputs": lambda text: {"regex": text},
}
QUOTATIONS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "repr": repr,
    "ascii": ascii,
    "JSON": json.dumps,
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text))),
    "repr of JSON": lambda text: repr(json.dumps({"content": text})),
    "HTML": lambda text: html.escape(repr(text)),
    "wrapped": lambda text: "\n      ".join(textwrap.wrap(text, 24)),
    "cut, in quotes": lambda text: f"'{text[:20]}...'",
    "cut short": lambda text: f"“{text[:11]}…”",
    "cut off": lambda text: f"got {text[:24]}",
    "cut inside": lambda text: f"{text[:20]}...{text[-20:]}",
    "its end": lambda text: f"…{text[-11:]}'",
}
SHOWN_OF_ERROR = "Bad request: value %s is wrong"


def bare(text: str) -> str:
    return "".join(text.split())


def shows(text: str, secret: str) -> bool:
    """Whether a text has as many signs in a row of a secret as no error may keep."""
    found, secret = bare(text), bare(secret)
    return any(secret[i : i + LEAST_RUN] in found for i in range(len(secret) - LEAST_RUN + 1))


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def texts_of(request: object, mode: Any = "none") -> RequestTexts:
    body = json.dumps(request).encode()
    return RequestTexts(Captured("/v1/x", (), 0, request=[body], request_size=len(body)), mode)


def blanked(request: object, text: str, mode: Any = "none") -> str:
    return texts_of(request, mode).blanked(text, Pacer())


@pytest.mark.parametrize("quotation", QUOTATIONS)
@pytest.mark.parametrize("member", [*MEMBERS, *SETTINGS])
def test_no_text_of_a_request_stays_in_an_error_however_it_is_quoted(member: str, quotation: str) -> None:
    name = member.partition(",")[0]
    request = {"model": "m", name: (MEMBERS | SETTINGS)[member](SECRET)}
    quoted = QUOTATIONS[quotation](SECRET)
    found = blanked(request, SHOWN_OF_ERROR % quoted)
    assert "<not kept>" in found
    assert not shows(found, SECRET)
    assert "Müller" not in found
    assert found.startswith("Bad request: value ")
    if not quotation.startswith(("cut", "its")):
        assert found.endswith(" is wrong")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "where", ["message", "param", "code", "type", "detail", "a key", "text", "cut off", "event", "old", "old event"]
)
@pytest.mark.parametrize("path", [None, COMPLETIONS, RESPONSES])
def test_no_record_of_an_error_holds_a_text_of_its_request(
    path: str | None, where: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = "value 'Grüße: it\\'s \\\\alpha & 4711...' is wrong"
    error: dict[str, Any] = {"message": "m", "type": "t", "param": None, "code": 400}
    status, content_type = 400, "application/json"
    if where in error:
        error[where] = quoted
    elif where == "detail":
        error["detail"] = [{"loc": ["body", 0], "ctx": {"got": [quoted]}}]
    elif where == "a key":
        error[quoted] = "x"
    body = json.dumps({"error": error}).encode()
    if where == "text":
        body = f"<p>{html.escape(quoted)}</p>".encode()
    elif where == "cut off":
        body = json.dumps({"error": {"message": quoted}}).encode()[:-2]
    elif where.startswith("old"):  # as vLLM told errors before they had an object of their own
        status = 200
        body = json.dumps({"object": "error", "message": quoted, "type": "t", "code": 400}).encode()
        if where == "old event":
            content_type, body = "text/event-stream", b"data: " + body + b"\n\ndata: [DONE]\n\n"
    elif where == "event":
        error["message"] = quoted
        status, content_type = 200, "text/event-stream"
        body = b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n"
        if path == RESPONSES:
            body = b"event: error\ndata: " + json.dumps({**error, "type": "error"}).encode() + b"\n\n"
    request = json.dumps({"model": "m", "unheard_of": SECRET, "stream": "event" in where}).encode()
    record = capture(
        answer_messages([body], status=status, content_type=content_type),
        tmp_path,
        monkeypatch,
        request=request,
        CAPTURE_REQUESTS=mode,
        **({} if path is None else {"path": path}),
    )
    for text in strings(record):
        assert not shows(text.encode().decode("unicode_escape", "ignore"), SECRET)
        assert "4711" not in text
    assert record["_dspark"]["error"] is not None or record.get("unknown_events") or status == 400


@given(
    st.text(min_size=LEAST_RUN, max_size=80).filter(lambda text: len(bare(text)) >= LEAST_RUN),
    st.sampled_from(sorted(QUOTATIONS)),
    st.text(max_size=30),
    st.text(max_size=30),
)
def test_whatever_a_text_is_nothing_of_it_stays(secret: str, quotation: str, before: str, after: str) -> None:
    found = blanked({"prompt": secret}, f"{before} {QUOTATIONS['as it is'](secret)} {after}")
    assert not shows(found, secret) or shows(before + "<not kept>" + after, secret)
    blanked({"prompt": secret}, before + QUOTATIONS[quotation](secret) + after)  # takes any text


@pytest.mark.parametrize(
    ("prompt", "text", "expected"),
    [
        ("hunter2", "value hunter2 is wrong", "value <not kept> is wrong"),
        ("hunter2", "got 'hunter2', and hunter22", "got '<not kept>', and hunter22"),
        ("my cat", "no MY CAT, no my  cat.", "no <not kept>, no <not kept>."),
        ("我的密码是", "invalid: '我的密码是'", "invalid: '<not kept>'"),
        ("hunter2 is my password", "can't read 'hunter2 i'", "can't read '<not kept>'"),
        ("hunter2 is my password", "can't read 'hunter3 i'", "can't read 'hunter3 i'"),
        ("my password is hunter2", "can't read …hunter2'", "can't read …<not kept>'"),
        ("SuperSecretPassword", "SuperSecretPassword", "<not kept>"),
        ("tell me about BadRequestError now", "BadRequestError", "BadRequestError"),
        ([71, 4711, 815, 90210], "ids [71, 4711, 815, 90210, 5]", "ids [<not kept>, 5]"),
        ([[71, 4711, 815, 90210]], "ids (71, 4711, 815, 90210)", "ids (<not kept>)"),
        ("abc", "abc and 'abc'", "abc and 'abc'"),  # shorter than SHORTEST_TEXT
        ("How long is the longest text?", "The text is 7 long, use the longest", "The text is 7 long, use the longest"),
        ("", "nothing", "nothing"),
        (None, "nothing", "nothing"),
    ],
)
def test_what_is_of_the_request_is_blanked_and_the_rest_stays(prompt: object, text: str, expected: str) -> None:
    assert blanked({"model": "m", "prompt": prompt}, text) == expected


def test_an_error_may_name_the_model_and_the_settings_that_are_kept() -> None:
    request = {
        "model": "meta-llama/Llama-3.1-8B",
        "messages": [{"role": "assistant", "content": "meta-llama/Llama-3.1-8B"}],
        "stop": ["### the end of it"],
        "text": {"format": {"type": "json_schema", "name": "a_name_of_a_schema"}, "other": "another text of it"},
    }
    text = (
        "The model `meta-llama/Llama-3.1-8B` can't take the role assistant, '### the end of it', 'a_name_of_a_schema'"
        " or another text of it"
    )
    assert blanked(request, text, "settings") == text.replace("another text of it", "<not kept>")
    assert blanked(request, text, "none") == (
        "The model `meta-llama/Llama-3.1-8B` can't take the role assistant, '<not kept>', '<not kept>' or <not kept>"
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_errors_of_a_real_server_are_kept_as_they_are(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    for exchange in [*recorded_exchanges(), *spec_decode_exchanges()]:
        messages = recorded_messages(exchange)
        if messages[0]["status"] < 400:
            continue
        error = json.loads(b"".join(message.get("body", b"") for message in messages))["error"]
        if mode == "settings" or "nonsense" not in error["message"]:
            count += 1
            request = json.dumps(exchange["request"]).encode()
            record = capture(messages, tmp_path / str(count), monkeypatch, request=request, CAPTURE_REQUESTS=mode)
            expected = error["message"].replace("'<dict of 1 items>'", "<not kept>")
            assert record["error"] == {**error, "message": expected}
    assert count > 5


@pytest.mark.parametrize("mode", MODES)
def test_of_an_error_about_a_request_that_is_not_here_only_names_are_kept(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = json.dumps({"model": "m", "suffix": SECRET + "x" * 300_000}).encode()
    error = {"message": f"too long: {SECRET[:9]}", "type": "BadRequestError", "param": "suffix", "code": 400}
    messages = answer_messages([json.dumps({"error": error}).encode()], status=400)
    record = capture(messages, tmp_path / "a", monkeypatch, request=request, CAPTURE_REQUESTS=mode)
    assert record["error"] == {**error, "message": "<not kept>"}
    assert record["_dspark"]["error"] == {"message": "<not kept>", "type": "BadRequestError", "code": "400"}
    messages = answer_messages([b"Payload Too Large"], status=413)
    meta = capture(messages, tmp_path / "b", monkeypatch, request=request, CAPTURE_REQUESTS=mode)["_dspark"]
    assert (meta["body"], meta["error"]["code"]) == (None, "body_withheld")


def test_a_request_that_is_no_json_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = b'{"messages": [{"content": "the launch code is 0000"'
    error = {"error": {"message": 'line 1: expected "]" near "launch code is 0000'}}
    messages = answer_messages([json.dumps(error).encode()], status=400)
    record = capture(messages, tmp_path, monkeypatch, request=request)
    assert record["error"]["message"] == 'line 1: expected "]" near "<not kept>'


def test_with_full_capture_an_error_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"message": SHOWN_OF_ERROR % SECRET, "param": SECRET}
    messages = answer_messages([json.dumps({"error": error}).encode()], status=400)
    request = json.dumps({"suffix": SECRET}).encode()
    record = capture(messages, tmp_path, monkeypatch, request=request, CAPTURE_REQUESTS="full")
    assert record["error"] == error


def test_an_answer_may_repeat_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"choices": [{"message": {"content": SECRET}, "finish_reason": "stop"}]}).encode()
    request = json.dumps({"messages": [{"content": SECRET}]}).encode()
    record = capture(answer_messages([body]), tmp_path, monkeypatch, request=request)
    assert record["choices"][0]["message"]["content"] == SECRET


def test_what_is_told_of_an_errors_length_is_bounded() -> None:
    prompt = "x" * 200_000
    for piece in ("x", "xxxxxy", "'", "\\", "xxxx ", "'xxxxxx"):
        error = json.dumps({"error": {"message": piece * (400_000 // len(piece))}}).encode()
        found = json.loads(redact_error(error, texts_of({"prompt": prompt}), Pacer()))
        assert found == {"error": {"message": "<not kept>"}}
    many = json.dumps({"detail": [{"msg": f"an error numbered {i}"} for i in range(40_000)]}).encode()
    found = json.loads(redact_error(many, texts_of({"prompt": "a plain prompt"}), Pacer()))
    assert found["detail"][0]["msg"] == "an error numbered 0"
    assert found["detail"][-1]["msg"] == "<not kept>"


REQUEST = {"model": "m", "prompt": SECRET, "n": 1}
QUOTED_AT_200 = "value 'Grüße: it\\'s \\\\alpha & 4711...' is wrong"
CHOICES = [{"index": 0, "message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}]
PAD = "x" * 300_000


@pytest.mark.parametrize(
    ("write", "headers"),
    [
        (lambda text: text.encode("utf-16"), []),
        (lambda text: text.encode("utf-16-be"), []),
        (lambda text: text.encode("utf-32"), []),
        (lambda text: text.encode("utf-8-sig"), []),
        (lambda text: text.replace('"n": 1', '"n": NaN').encode(), []),
        (lambda text: text.replace('"n": 1', '"prompt": "x"').encode(), []),
        (lambda text: gzip.compress(text.encode()), [(b"content-encoding", b"gzip")]),
        (lambda text: zlib.compress(text.encode()), [(b"content-encoding", b" Deflate ")]),
        (lambda text: text.encode()[::-1], [(b"content-encoding", b"br")]),
        (lambda text: text.encode(), [(b"content-encoding", b"gzip")]),
    ],
)
def test_a_request_is_read_however_it_is_written(
    write: Callable[[str], bytes], headers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"error": {"message": QUOTED_AT_200, "type": "BadRequestError"}}).encode()
    request = write(json.dumps(REQUEST))
    messages = answer_messages([body], status=400)
    record = capture(messages, tmp_path, monkeypatch, request=request, headers=headers)
    assert "4711" not in record["error"]["message"]
    assert "<not kept>" in record["error"]["message"]
    assert record["_dspark"]["error"]["type"] == "BadRequestError"


AT_200: dict[str, Any] = {
    "an error": {"error": {"message": QUOTED_AT_200}, "choices": CHOICES},
    "twice, then null": '{"error":{"message":%s},"error":null,"choices":[]}',
    "of a choice": {"choices": [{"index": 0, "error": {"message": QUOTED_AT_200}}]},
    "of a message": {"choices": [{"index": 0, "message": {"content": "", "error_text": [QUOTED_AT_200]}}]},
    "beside choices": {"choices": CHOICES, "last_Error": {"why": QUOTED_AT_200}},
    "details": {"choices": CHOICES, "details": [QUOTED_AT_200]},
    "a message beside choices": {"choices": CHOICES, "message": QUOTED_AT_200},
    "no choices": {"success": False, "message": QUOTED_AT_200},
    "choices that are none": {"choices": None, "why": QUOTED_AT_200},
    "old": {"object": "error", "message": QUOTED_AT_200},
    "old, then not": '{"object":"error","message":%s,"object":"chat.completion","choices":[]}',
    "an error that is true": {"error": True, "what": QUOTED_AT_200},
    "errors": {"errors": [QUOTED_AT_200]},
    "large": {"error": {"message": QUOTED_AT_200}, "pad": PAD, "choices": []},
    "large, no choices": {"why": QUOTED_AT_200, "pad": PAD},
    "a list": [{"error": QUOTED_AT_200}],
    "a text": f"<p>{QUOTED_AT_200}</p>",
    "cut off": '{"error":{"message":%s',
    "an id": {"id": QUOTED_AT_200, "pad": PAD},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", AT_200)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_of_status_200_tells_no_error_with_a_text_of_the_request(
    name: str, mode: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = AT_200[name]
    text = given.replace("%s", json.dumps(QUOTED_AT_200)) if isinstance(given, str) else json.dumps(given)
    bodies = [text.encode()]
    if streamed:
        bodies = [b"data: " + text.encode() + b"\n\n", b"data: [DONE]\n\n"]
    messages = answer_messages(bodies, content_type="text/event-stream" if streamed else "application/json")
    request = json.dumps(REQUEST | {"stream": streamed}).encode()
    capture(messages, tmp_path, monkeypatch, request=request, CAPTURE_REQUESTS=mode)
    lines = all_lines(tmp_path).decode()
    assert "4711" not in lines
    assert '"choices"' not in text or '"choices"' in lines


RESPONSES_AT_200: dict[str, Any] = {
    "incomplete_details": {"status": "incomplete", "output": [], "incomplete_details": {"reason": QUOTED_AT_200}},
    "more details": {"status": "incomplete", "output": [], "incomplete_details": {"reason": "x", "y": QUOTED_AT_200}},
    "status_details": {"status": "failed", "output": [], "status_details": {"error": QUOTED_AT_200}},
    "of an item": {"status": "completed", "output": [{"type": "mcp_call", "error": QUOTED_AT_200}]},
    "no output": {"status": "failed", "why": QUOTED_AT_200},
    "input": {"status": "completed", "output": [], "input": [{"content": SECRET}]},
}


@pytest.mark.parametrize("name", RESPONSES_AT_200)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_tells_no_error_with_a_text_of_the_request(
    name: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = {"id": "r", "object": "response", "model": "m", **RESPONSES_AT_200[name]}
    bodies = [json.dumps(response).encode()]
    if streamed:
        kind = "response." + str(response["status"])
        bodies = [f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, "response": response}).encode()]
        bodies[0] += b"\n\n"
    messages = answer_messages(bodies, content_type="text/event-stream" if streamed else "application/json")
    record = capture(messages, tmp_path, monkeypatch, path=RESPONSES, request=json.dumps({"input": SECRET}).encode())
    assert "4711" not in all_lines(tmp_path).decode()
    assert record["status"] == response["status"]


@pytest.mark.parametrize(
    "event",
    [
        {"message": QUOTED_AT_200, "type": "BadRequestError", "code": 400},
        {"message": QUOTED_AT_200, "type": "bad_request"},
        {"type": "response.warning", "text": QUOTED_AT_200},
        {"type": "response.note", "last_error": {"why": QUOTED_AT_200}},
    ],
)
def test_an_unknown_event_that_tells_an_error_is_one(
    event: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [f"event: x\ndata: {json.dumps(event)}\n\n".encode()]
    messages = answer_messages(bodies, content_type="text/event-stream")
    capture(messages, tmp_path, monkeypatch, path=RESPONSES, request=json.dumps({"input": SECRET}).encode())
    assert "4711" not in all_lines(tmp_path).decode()


TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"title": {"type": ["string", "null"], "enum": ["message", "model", "valid"]}},
            "required": ["title", "body", "type", "messages", "name", "model", "content", "maximum"],
        },
    },
}
OF_VLLM = [
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages).",
    "Please reduce the length of the messages or completion.",
    "The model `m` does not exist.",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "[{'type': 'string_type', 'loc': ('body', 'messages', 0, 'content'), 'msg': 'Input should be a valid string'}]",
    "max_tokens=100000 cannot be greater than max_model_len=4096.",
]


@pytest.mark.parametrize("text", OF_VLLM)
def test_what_errors_say_of_themselves_is_kept(text: str) -> None:
    prompt = "Why does my file not exist, and what is the maximum length of a title in the body of an e-mail message?"
    request = {"model": "m", "messages": [{"role": "user", "content": prompt}], "tools": [TOOL], "tool_choice": "auto"}
    assert blanked(request, text) == text


def test_of_an_error_that_has_a_text_for_a_key_names_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"error": {SECRET: 1, "type": "BadRequestError", "code": 400, "message": "m"}}).encode()
    messages = answer_messages([body], status=400)
    record = capture(messages, tmp_path, monkeypatch, request=json.dumps(REQUEST).encode())
    assert record["error"] == {"message": "<not kept>", "type": "BadRequestError", "code": 400}


def test_a_prompt_about_errors_hides_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}).encode()
    request = json.dumps({"prompt": "error handling in Go: what is a BadRequestError?"}).encode()
    record = capture(answer_messages([body], status=400), tmp_path, monkeypatch, request=request)
    assert record["object"] == "error"
    assert record["_dspark"]["error"] == {"message": "m", "type": "BadRequestError", "code": "400"}
