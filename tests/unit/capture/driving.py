"""What the tests of the hook share: applications that replay messages, drivers, a real server, the records."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from dspark_json.capture.hook import JsonOutputHook
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    import pytest

TESTS = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"

Message = MutableMapping[str, Any]
App = Any


def recorded_exchanges() -> list[dict[str, Any]]:
    """The recorded ASGI exchanges of a real vLLM server."""
    lines = (TESTS / "fixtures/vllm/asgi-exchanges.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def corpus_cases() -> list[dict[str, Any]]:
    """The cases of ``corpus/exchanges.jsonl``."""
    lines = (TESTS / "corpus/exchanges.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def spec_decode_exchanges() -> list[dict[str, Any]]:
    """The recorded exchanges of a real vLLM server with speculative decoding, on covered routes."""
    found = json.loads((TESTS / "fixtures/vllm/exchanges-spec-decode.json").read_text(encoding="utf-8"))
    return [exchange for exchange in found if exchange["path"] in (CHAT, COMPLETIONS, RESPONSES)]


def recorded_messages(exchange: Mapping[str, Any]) -> list[Message]:
    """The messages of an exchange of either kind of recording."""
    if "messages" in exchange:
        return asgi_messages(exchange["messages"])
    bodies = [chunk.encode() for chunk in exchange["chunks"]]
    return answer_messages(bodies, status=exchange["status"], content_type=exchange["headers"]["content-type"])


def asgi_messages(recorded: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Recorded messages as an application sends them."""
    messages: list[Message] = []
    for message in recorded:
        if message["type"] == "start":
            headers = [(name.encode(), value.encode()) for name, value in message["headers"]]
            messages.append({"type": "http.response.start", "status": message["status"], "headers": headers})
        else:
            body = message["body"].encode()
            messages.append({"type": "http.response.body", "body": body, "more_body": message["more"]})
    return messages


def answer_messages(
    bodies: Sequence[bytes], *, status: int = 200, content_type: str = "application/json", end: bool = True
) -> list[Message]:
    """The messages of an answer; a stream ends with an empty message as vLLM's do."""
    stream = content_type.startswith("text/event-stream")
    messages: list[Message] = [
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type.encode())]}
    ]
    messages += ({"type": "http.response.body", "body": body, "more_body": True} for body in bodies)
    if end and stream:
        messages.append({"type": "http.response.body", "body": b"", "more_body": False})
    elif end:
        messages[-1]["more_body"] = False
    return messages


class ReplayApp:
    """Reads the request, sends the given messages, and waits where it is told to."""

    def __init__(self, messages: Sequence[Message], *, raises: BaseException | None = None) -> None:
        self.messages = messages
        self.raises = raises
        self.requests: list[bytes] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _plain_lifespan(receive, send)
            return
        parts = []
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        self.requests.append(b"".join(parts))
        for message in self.messages:
            await send(message)
        if self.raises is not None:
            raise self.raises


async def _plain_lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


@dataclass
class Client:
    """The server's side of one request: what it gives to ``receive`` and what it got from ``send``."""

    request: bytes = b"{}"
    cuts: int = 1
    sent: list[Message] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    on_send: Callable[[Message], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        size = max(1, -(-len(self.request) // self.cuts))
        self._parts = [self.request[i : i + size] for i in range(0, len(self.request), size)] or [b""]

    async def receive(self) -> Message:
        if not self._parts:
            return {"type": "http.disconnect"}
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}

    async def send(self, message: Message) -> None:
        if self.on_send is not None:
            await self.on_send(message)
        self.sent.append(message)
        self.sent_at.append(time.perf_counter())

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def scope_for(
    path: str = CHAT,
    *,
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),),
    query: bytes = b"",
    **more: Any,
) -> Message:
    """An HTTP connection scope."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        **more,
    }


async def ask(app: App, client: Client, scope: Message | None = None) -> Client:
    """Run one request through an application."""
    await app(scope if scope is not None else scope_for(), client.receive, client.send)
    return client


PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'


def plain_app() -> ReplayApp:
    """An application that answers everything with ``PLAIN``."""
    return ReplayApp(answer_messages([PLAIN]))


def serve(hook: JsonOutputHook, times: int = 1) -> None:
    """Ask a hook around a ``plain_app`` so many times, and let the event loop go on for a moment."""

    async def run() -> None:
        for _ in range(times):
            assert (await ask(hook, Client())).body == PLAIN
        await asyncio.sleep(0.02)

    asyncio.run(run())


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def get(app: App, path: str, *, key: str | None = None, query: str = "", method: str = "GET") -> Client:
    """Ask a control route without a socket."""
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    scope = scope_for(path, method=method, headers=headers, query=query.encode())
    return await ask(app, Client(), scope)


def make_hook(app: App, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> JsonOutputHook:
    """A hook around ``app`` whose spool is in ``folder``; settings without their ``DSPARK_``."""
    monkeypatch.setenv("DSPARK_SPOOL", str(folder))
    for name, value in settings.items():
        monkeypatch.setenv(f"DSPARK_{name}", value)
    return JsonOutputHook(app)


def counters(hook: JsonOutputHook) -> dict[str, int]:
    """The hook's counters now."""
    return hook._appender.counters()


def close(hook: JsonOutputHook) -> None:
    """End a hook that no lifespan ends."""
    hook._appender.close()
    hook._control.close()


@contextlib.contextmanager
def closing(hook: JsonOutputHook) -> Iterator[JsonOutputHook]:
    try:
        yield hook
    finally:
        close(hook)


def lines(folder: Path) -> list[bytes]:
    """All lines of a spool, lane by lane."""
    reader = SpoolReader(folder)
    found: list[bytes] = []
    for lane, extent in sorted(reader.offsets().lanes.items()):
        seq = extent.first
        while seq < extent.next:
            chunk = reader.read(lane, seq, extent.next)
            start = 0
            for end in chunk.ends:
                found.append(bytes(chunk.buffer[start:end]))
                start = end
            seq = chunk.next_seq
    return found


def all_lines(folder: Path) -> bytes:
    """All lines of a spool as they stand in it."""
    return b"".join(lines(folder))


def records(folder: Path) -> list[dict[str, Any]]:
    """All records of a spool, parsed."""
    return [json.loads(line) for line in lines(folder)]


def capture(
    messages: Sequence[Message],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    path: str = CHAT,
    request: bytes = b'{"model":"m","stream":false}',
    headers: Sequence[tuple[bytes, bytes]] = (),
    raises: BaseException | None = None,
    **settings: str,
) -> dict[str, Any]:
    """The one record that an answer of these messages leaves."""

    async def run() -> None:
        try:
            await ask(hook, Client(request), scope_for(path, headers=headers))
        except BaseException as error:
            if error is not raises:
                raise

    with closing(make_hook(ReplayApp(messages, raises=raises), folder, monkeypatch, **settings)) as hook:
        asyncio.run(run())
    (record,) = records(folder)
    return record


def capture_all(
    exchanges: Sequence[Mapping[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> list[dict[str, Any]]:
    """The records that recorded exchanges leave, in their order."""
    app = ReplayApp([])

    async def run() -> None:
        for exchange in exchanges:
            app.messages = recorded_messages(exchange)
            await ask(hook, Client(json.dumps(exchange["request"]).encode()), scope_for(exchange["path"]))

    with closing(make_hook(app, folder, monkeypatch, **settings)) as hook:
        asyncio.run(run())
    assert counters(hook).get("hook_exceptions", 0) == 0
    return records(folder)


def event(kind: str, **fields: Any) -> bytes:
    """An event of a streamed response, written as vLLM writes it."""
    data = json.dumps({**fields, "type": kind}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def is_subset(expected: Any, found: Any) -> bool:
    """Whether all keys that ``expected`` gives have these values in ``found``."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(k in found and is_subset(v, found[k]) for k, v in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(is_subset, expected, found))
    return bool(expected == found) and type(expected) is type(found)


@contextlib.contextmanager
def serving(app: App, *, default_headers: bool = True) -> Iterator[int]:
    """A real uvicorn server around an application; gives its port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_level="error",
        timeout_graceful_shutdown=2,
        lifespan="on",
        ws="none",
        date_header=default_headers,
        server_header=default_headers,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.005)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def raw_exchange(port: int, request: bytes, path: str = CHAT) -> bytes:
    """Every byte of a server's answer, chunk framing and all, without its ``date`` line."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(request)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode() + request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    raw = b"".join(parts)
    header, _, body = raw.partition(b"\r\n\r\n")
    kept = [line for line in header.split(b"\r\n") if not line.lower().startswith(b"date:")]
    return b"\r\n".join(kept) + b"\r\n\r\n" + body
