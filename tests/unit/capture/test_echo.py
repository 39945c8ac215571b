"""With ``echo`` an answer begins with the prompt, which is not kept (DESIGN §2 rule 8)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import (
    CHAT,
    COMPLETIONS,
    Client,
    ReplayApp,
    all_lines,
    answer_messages,
    ask,
    capture,
    closing,
    make_hook,
    records,
    scope_for,
)

from dspark_json.capture.echo import requested_echo

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
STREAM = "text/event-stream"


def completion(*texts: str | None) -> Json:
    choices = [
        {"index": i, "text": text, "logprobs": {"tokens": ["SECRET"], "n": 1.50}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    return {"id": "c", "object": "text_completion", "choices": choices}


def texts_of(record: Json) -> list[str | None]:
    return [choice["text"] for choice in record["choices"]]


@pytest.mark.parametrize("pad", ["", "x" * 400_000])
@pytest.mark.parametrize(
    ("prompt", "sent", "kept"),
    [
        ("SECRET ", ["SECRET {}"], ["{}"]),
        (["SECRET one", "SECRET one two"], ["SECRET one two.", "SECRET one."], [".", "."]),
        ([1, 2, 3], ["SECRET {}"], [None]),
        ("SECRET ", ["another SECRET"], [None]),
        ("SECRET", ["SECRET"], [""]),
    ],
)
def test_the_prompt_is_cut_from_the_text_of_a_completion(
    prompt: object, sent: list[str], kept: list[str | None], pad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = json.dumps({"prompt": prompt, "echo": True}).encode()
    body = json.dumps({"pad": pad, **completion(*sent)}).encode()
    record = capture(answer_messages([body]), tmp_path, monkeypatch, path=COMPLETIONS, request=request)
    assert texts_of(record) == kept
    assert all(choice["logprobs"] is None for choice in record["choices"])
    assert b"SECRET" not in all_lines(tmp_path)


def test_it_is_cut_from_a_stream_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        b"data: " + json.dumps({"choices": [{"index": 0, "text": piece, "logprobs": None}]}).encode() + b"\n\n"
        for piece in ("SECRET {", "}")
    ]
    request = json.dumps({"prompt": "SECRET ", "echo": True, "stream": True}).encode()
    record = capture(
        answer_messages(events, content_type=STREAM), tmp_path, monkeypatch, path=COMPLETIONS, request=request
    )
    assert texts_of(record) == ["{}"]


def test_what_can_not_be_read_of_an_echo_is_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = json.dumps({"prompt": "SECRET ", "echo": True}).encode()
    broken = b'{"choices":[{"text":"SECRET {'
    plain = capture(answer_messages([broken]), tmp_path / "p", monkeypatch, path=COMPLETIONS, request=request)
    assert (plain["_dspark"]["body"], plain["_dspark"]["error"]["code"]) == (None, "body_withheld")
    events = answer_messages([b"data: " + broken + b"\n\n"], content_type=STREAM)
    streamed = capture(events, tmp_path / "s", monkeypatch, path=COMPLETIONS, request=request)
    assert streamed["_dspark"]["error"]["code"] == "bad_event"
    assert b"SECRET" not in all_lines(tmp_path / "p") + all_lines(tmp_path / "s")


def test_all_is_kept_where_requests_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = json.dumps({"prompt": "SECRET ", "echo": True}).encode()
    body = completion("SECRET {}")
    record = capture(
        answer_messages([json.dumps(body).encode()]),
        tmp_path,
        monkeypatch,
        path=COMPLETIONS,
        request=request,
        CAPTURE_REQUESTS="full",
    )
    del record["_dspark"]
    assert record == body


@pytest.mark.parametrize(("echo", "kept"), [("true", None), ("false", "SECRET {}"), ("null", "SECRET {}")])
@pytest.mark.parametrize("cuts", [1, 50, 3_000])
def test_of_a_request_that_is_too_large_to_keep_it_is_known_that_it_asked(
    echo: str, kept: str | None, cuts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = f'"tool":{{"echo":{{"type":"x"}}}},"echo":{echo},'
    prompt = json.dumps('SECRET "echo": ' + "x" * 300_000)
    client = Client(f'{{{member}"prompt":{prompt}}}'.encode(), cuts=cuts)
    app = ReplayApp(answer_messages([json.dumps(completion("SECRET {}")).encode()]))
    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        asyncio.run(ask(hook, client, scope_for(COMPLETIONS)))
    assert texts_of(records(tmp_path)[0]) == [kept]


def test_the_last_message_is_cut_from_a_chat_answer_that_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"choices": [{"index": 0, "message": {"content": "SECRET{}"}, "logprobs": {"content": []}}]}
    request = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "SECRET"}], "echo": True}
    messages = answer_messages([json.dumps(answer).encode()])
    record = capture(messages, tmp_path, monkeypatch, path=CHAT, request=json.dumps(request).encode())
    (choice,) = record["choices"]
    assert (choice["message"]["content"], choice["logprobs"]) == ("{}", {"content": []})


@pytest.mark.parametrize(
    ("path", "request_", "prompts"),
    [
        (COMPLETIONS, {"prompt": "p"}, None),
        (COMPLETIONS, {"prompt": "p", "echo": False}, None),
        (COMPLETIONS, {"prompt": "p", "echo": "False"}, None),
        (COMPLETIONS, {"prompt": "p", "echo": 0}, None),
        (COMPLETIONS, {"prompt": "p", "echo": True}, ("p",)),
        (COMPLETIONS, {"prompt": "p", "echo": 1}, ("p",)),
        (COMPLETIONS, {"prompt": "p", "echo": "yes"}, ("p",)),
        (COMPLETIONS, {"prompt": [[1], [2]], "echo": True}, ()),
        (COMPLETIONS, {"prompt": "p", "echo": True, "return_token_ids": True}, ("",)),
        (CHAT, {"messages": [{"role": "user", "content": "p"}], "echo": True}, ("p",)),
        (CHAT, {"messages": [{"role": ["user"], "content": "p"}], "echo": True}, ("p",)),
        (CHAT, {"messages": [{"role": "assistant", "content": ["a", {"text": "b"}]}], "echo": True}, ("a\nb",)),
        (CHAT, {"messages": [{"role": "assistant", "content": [{"refusal": "b"}]}], "echo": True}, ()),
        (
            CHAT,
            {"messages": [{"role": "assistant", "content": [{"text": "a"}, {"text": "b"}]}], "echo": True},
            ("a\nb",),
        ),
        (CHAT, {"messages": [{"role": "assistant"}], "echo": True}, ("",)),
        (CHAT, {"messages": [], "echo": True}, None),
        ("/v1/responses", {"input": "p", "echo": True}, None),
    ],
)
def test_what_is_echoed_follows_the_request(path: str, request_: Json, prompts: tuple[str, ...] | None) -> None:
    echo = requested_echo(path, request_)
    assert (None if echo is None else echo.prompts) == prompts
