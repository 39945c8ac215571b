"""The hook changes no byte and no message (DESIGN §2 rule 1)."""

from __future__ import annotations

import asyncio
import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from unit.capture.driving import (
    CHAT,
    Client,
    Message,
    ReplayApp,
    answer_messages,
    asgi_messages,
    ask,
    closing,
    counters,
    make_hook,
    raw_exchange,
    recorded_exchanges,
    records,
    scope_for,
    serving,
)

if TYPE_CHECKING:
    from pathlib import Path

EXCHANGES = recorded_exchanges()
MARK = (b"x-dspark", b"json")


def without_mark(messages: list[Message]) -> list[Message]:
    start, *rest = messages
    headers = list(start["headers"])
    headers.remove(MARK)
    assert MARK not in headers
    return [{**start, "headers": headers}, *rest]


@pytest.mark.parametrize("durability", ["async", "write", "fsync"])
def test_messages_are_the_same_with_and_without_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    app = ReplayApp([])

    async def run() -> None:
        for exchange in EXCHANGES:
            messages = asgi_messages(exchange["messages"])
            given = copy.deepcopy(messages)
            app.messages = given
            request = json.dumps(exchange["request"]).encode()
            client = await ask(hook, Client(request, cuts=3), scope_for(exchange["path"]))
            assert app.requests[-1] == request
            assert without_mark(client.sent) == messages, exchange["name"]
            assert all(a is b for a, b in zip(client.sent[1:], given[1:], strict=True))
            assert given == messages, "the application's own objects were changed"

    with closing(make_hook(app, tmp_path / "spool", monkeypatch, DURABILITY=durability)) as hook:
        asyncio.run(run())
    assert len(records(tmp_path / "spool")) == len(EXCHANGES)
    assert counters(hook).get("hook_exceptions", 0) == 0


@pytest.mark.parametrize("durability", ["async", "write"])
def test_every_byte_on_the_wire_is_the_same_but_for_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    names = ["chat_plain", "chat_n3", "chat_bad_schema", "stream_n2", "stream_tools_required", "chat_tools_named"]
    names += ["completions_two_prompts", "stream_completions_two_prompts", "responses_json", "stream_responses"]
    chosen = [exchange for exchange in EXCHANGES if exchange["name"] in names]
    assert len(chosen) == len(names)
    app = ReplayApp([])
    hook = make_hook(app, tmp_path / "spool", monkeypatch, DURABILITY=durability)
    answers: dict[str, list[bytes]] = {}
    for wrapped in (app, hook):
        with serving(wrapped) as port:
            for exchange in chosen:
                app.messages = asgi_messages(exchange["messages"])
                raw = raw_exchange(port, json.dumps(exchange["request"]).encode(), exchange["path"])
                answers.setdefault(exchange["name"], []).append(raw)
    for name, (bare, hooked) in answers.items():
        assert hooked.count(b"x-dspark: json\r\n") == 1, name
        assert hooked.replace(b"x-dspark: json\r\n", b"") == bare, name
    assert len(records(tmp_path / "spool")) == len(chosen)


def test_what_is_not_covered_gets_the_servers_own_callables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((receive, send))

    async def run() -> None:
        for scope in (
            scope_for("/v1/models", method="GET"),
            scope_for(CHAT, method="GET"),
            scope_for(CHAT + "/"),
            scope_for("/v1/embeddings"),
            {**scope_for(CHAT), "type": "websocket"},
        ):
            client = Client()
            receive: Any = client.receive
            send: Any = client.send
            await hook(scope, receive, send)
            assert seen[-1] == (receive, send)

    with closing(make_hook(app, tmp_path / "spool", monkeypatch)) as hook:
        asyncio.run(run())
    assert not (tmp_path / "spool").exists()


def test_a_root_path_is_not_part_of_the_covered_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await ask(hook, Client(), scope_for("/api" + CHAT, root_path="/api"))
        await ask(hook, Client(), scope_for(CHAT, root_path="/api"))

    with closing(make_hook(ReplayApp(answer_messages([b"{}"])), tmp_path / "spool", monkeypatch)) as hook:
        asyncio.run(run())
    assert [record["_dspark"]["path"] for record in records(tmp_path / "spool")] == [CHAT, CHAT]


@pytest.mark.parametrize("durability", ["async", "write"])
@pytest.mark.parametrize("error", [RuntimeError("boom"), asyncio.CancelledError(), OSError("gone"), SystemExit(3)])
def test_the_applications_exceptions_pass_through_and_leave_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, error: BaseException
) -> None:
    stream = [b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n']
    app = ReplayApp(answer_messages(stream, content_type="text/event-stream", end=False), raises=error)

    async def run() -> BaseException | None:
        try:
            await ask(hook, Client())
        except BaseException as caught:  # noqa: BLE001 - handed over to be compared
            return caught
        return None

    with closing(make_hook(app, tmp_path / "spool", monkeypatch, DURABILITY=durability)) as hook:
        assert asyncio.run(run()) is error
    (record,) = records(tmp_path / "spool")
    assert record["choices"][0]["message"]["content"] == "x"
    assert record["_dspark"]["completed"] is False
    assert record["_dspark"]["disconnected"] is True
    if isinstance(error, RuntimeError):
        assert record["_dspark"]["error"]["code"] == "app_exception"
        assert "boom" not in json.dumps(record), "an exception's text may hold a prompt"
    else:
        assert record["_dspark"]["error"] is None


def test_an_application_that_fails_before_it_answers_counts_as_status_500(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp([], raises=ValueError("x"))

    async def run() -> None:
        with pytest.raises(ValueError, match="x"):
            await ask(hook, Client())

    with closing(make_hook(app, tmp_path / "spool", monkeypatch)) as hook:
        asyncio.run(run())
    (record,) = records(tmp_path / "spool")
    assert record["_dspark"]["status"] == 500
    assert record["_dspark"]["disconnected"] is False
    assert record["_dspark"]["body"] is None


def test_odd_messages_are_passed_on_and_the_exceptions_they_cause_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.response.start"},
        {"type": "http.response.body", "body": 5, "more_body": True},
        {"kind": "none"},
        {"type": "http.response.body"},
    ]

    async def run(durability: str) -> None:
        with closing(make_hook(ReplayApp(messages), tmp_path / durability, monkeypatch, DURABILITY=durability)) as hook:
            client = await ask(hook, Client())
            assert [m is n for m, n in zip(client.sent, messages, strict=True)] == [True] * 4
            assert counters(hook)["hook_exceptions"] >= 2

    for durability in ("async", "write"):
        asyncio.run(run(durability))


def test_one_shot_header_iterators_reach_the_server_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = [(b"content-type", b"application/json"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]
    messages: list[dict[str, Any]] = [
        {"type": "http.response.start", "status": 200, "headers": iter(headers)},
        {"type": "http.response.body", "body": b"{}"},
    ]

    async def run() -> None:
        client = await ask(hook, Client())
        assert list(client.sent[0]["headers"]) == [*headers, MARK]

    with closing(make_hook(ReplayApp(messages), tmp_path / "spool", monkeypatch)) as hook:
        asyncio.run(run())


PLAIN = json.dumps({"choices": [{"index": 0, "message": {"content": "x" * 900}, "finish_reason": "stop"}]}).encode()


def said(text: str) -> bytes:
    return b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


@pytest.mark.parametrize("durability", ["async", "write"])
@pytest.mark.parametrize(
    ("messages", "content"),
    [
        (answer_messages([PLAIN]), "x" * 900),
        (answer_messages([PLAIN[:100], PLAIN[100:200], PLAIN[200:]]), "x" * 900),
        (answer_messages([said("a"), said("b"), b"data: [DONE]\n\n"], content_type="text/event-stream"), "ab"),
    ],
    ids=["whole", "in pieces", "streamed"],
)
@pytest.mark.parametrize("outside", [partial(GZipMiddleware, minimum_size=10), CORSMiddleware, "stripping"])
def test_what_is_further_out_may_change_messages_in_place(
    outside: Any,
    messages: list[Message],
    content: str,
    durability: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headers = [(b"accept-encoding", b"gzip"), (b"origin", b"http://elsewhere")]
    with closing(make_hook(ReplayApp(copy.deepcopy(messages)), tmp_path, monkeypatch, DURABILITY=durability)) as hook:
        app = stripping(hook) if outside == "stripping" else outside(hook)
        asyncio.run(ask(app, Client(), scope_for(headers=headers)))
    (record,) = records(tmp_path)
    assert record["choices"][0]["message"]["content"] == content
    assert (record["_dspark"]["error"], record["_dspark"]["disconnected"]) == (None, False)


def stripping(app: Any) -> Any:
    """A middleware that empties what it passed on."""

    async def outside(scope: Message, receive: Any, send: Any) -> None:
        async def emptied(message: Message) -> None:
            await send(dict(message))
            if "headers" in message:
                message["headers"].clear()
            message.clear()

        await app(scope, receive, emptied)

    return outside


@pytest.mark.parametrize("durability", ["async", "write"])
def test_messages_that_are_sent_at_the_same_time_are_all_recorded(
    durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = answer_messages([said("a"), said("b"), said("c"), b"data: [DONE]\n\n"], content_type="text/event-stream")

    async def app(scope: Message, receive: Any, send: Any) -> None:
        await receive()
        await send(messages[0])
        await asyncio.gather(*(asyncio.create_task(send(message)) for message in messages[1:]))

    async def slow(_: Message) -> None:
        await asyncio.sleep(0.001)

    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY=durability)) as hook:
        asyncio.run(ask(hook, Client(on_send=slow)))
    (record,) = records(tmp_path)
    assert record["choices"][0]["message"]["content"] == "abc"
    assert record["_dspark"]["disconnected"] is False
