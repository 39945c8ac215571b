"""Readers of the control routes cost the server bounded memory and time, and see nothing beside records."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from unit.capture.driving import (
    Client,
    ReplayApp,
    answer_messages,
    ask,
    closing,
    make_hook,
    scope_for,
    serving,
)

from dspark_json.capture import control
from dspark_json.capture.metrics import metrics_text
from dspark_json.errors import EndpointUnreachableError
from dspark_json.spool.http import HookClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.capture.hook import JsonOutputHook

KEY = "the-hook's-key"
BEARER = (b"authorization", b"Bearer " + KEY.encode())
MIB = 1 << 20


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonOutputHook]:
    """A hook with a key and a record of 1 MiB."""
    app = ReplayApp(answer_messages([b'{"pad":"' + b"x" * MIB + b'"}']))
    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY="write", API_KEY=KEY)) as made:
        asyncio.run(ask(made, Client()))
        yield made


def spool_id(folder: Path) -> str:
    found: str = json.loads((folder / "spool.json").read_text())["spool_id"]
    return found


def records_scope(folder: Path, query: bytes = b"from=0&to=1", headers: Any = (BEARER,)) -> Any:
    path = f"/dspark/v1/spools/{spool_id(folder)}/lanes/0000/records"
    return scope_for(path, method="GET", headers=headers, query=query)


def seen(client: Client) -> tuple[int, dict[bytes, bytes], Any]:
    start = client.sent[0]
    return start["status"], dict(start["headers"]), json.loads(client.body)


async def stuck(hook: JsonOutputHook, scope: Any, number: int) -> tuple[list[asyncio.Task[Any]], asyncio.Event]:
    """So many readers that take nothing until the event is set."""
    go_on = asyncio.Event()

    async def wait(_: Any) -> None:
        await go_on.wait()

    tasks = [asyncio.create_task(ask(hook, Client(on_send=wait), scope)) for _ in range(number)]
    await asyncio.sleep(0.2)
    return tasks, go_on


def test_one_reader_too_many_is_told_to_come_back(hook: JsonOutputHook, tmp_path: Path) -> None:
    async def run() -> None:
        scope = records_scope(tmp_path)
        tasks, go_on = await stuck(hook, scope, control._MOST_READERS)
        for path in (scope["path"], "/dspark/v1/offsets", "/health/json-schema"):
            again = scope_for(path, method="GET", headers=[BEARER], query=scope["query_string"])
            status, headers, document = seen(await ask(hook, Client(), again))
            assert (status, document["error"]["code"]) == (429, "DSPARK_JSON_BUSY")
            assert int(headers[b"retry-after"]) >= 1
        wrong = await ask(hook, Client(), records_scope(tmp_path, headers=[(b"authorization", b"Bearer no")]))
        assert wrong.sent[0]["status"] == 401, "who has no key learns nothing of the others"
        for path in ("/dspark/metrics", "/health/json-schema"):
            client = await ask(hook, Client(), scope_for(path, method="GET", headers=[]))
            assert client.sent[0]["status"] == 200, "monitoring is not kept out by readers"
        go_on.set()
        for client in await asyncio.gather(*tasks):
            assert client.sent[0]["status"] == 200
            assert client.sent[-1]["more_body"] is False
        assert (await ask(hook, Client(), scope)).sent[0]["status"] == 200

    asyncio.run(run())


def test_visitors_without_a_key_do_not_keep_readers_out(hook: JsonOutputHook, tmp_path: Path) -> None:
    async def run() -> None:
        metrics = scope_for("/dspark/metrics", method="GET", headers=[])
        tasks, go_on = await stuck(hook, metrics, control._MOST_VISITORS)
        assert (await ask(hook, Client(), metrics)).sent[0]["status"] == 429
        assert (await ask(hook, Client(), records_scope(tmp_path))).sent[0]["status"] == 200
        go_on.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_reader_that_leaves_gives_its_place_back(hook: JsonOutputHook, tmp_path: Path, how: str) -> None:
    async def fail(_: Any) -> None:
        if how == "failed":
            raise OSError("the client is gone")
        await asyncio.sleep(60)

    async def run() -> None:
        for _ in range(control._MOST_READERS + 1):
            task = asyncio.create_task(ask(hook, Client(on_send=fail), records_scope(tmp_path)))
            if how == "cancelled":
                await asyncio.sleep(0.01)
                task.cancel()
            with pytest.raises((OSError, asyncio.CancelledError)):
                await task
        assert (await ask(hook, Client(), records_scope(tmp_path))).sent[0]["status"] == 200

    asyncio.run(run())


def test_a_reader_that_takes_nothing_is_let_go(
    hook: JsonOutputHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control, "_STALL_SECONDS", 0.05)

    async def stall(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    client = asyncio.run(ask(hook, Client(on_send=stall), records_scope(tmp_path)))
    assert [message["type"] for message in client.sent] == ["http.response.start"]
    assert "took nothing" in caplog.text


@pytest.mark.parametrize(
    "query", [b"from=0&to=1&" + b"&" * 60_000, b"from=0" * 10_000, b"%" * 2000, b"from=0&to=1" + b"0" * 1100]
)
def test_a_huge_query_is_refused_in_a_few_words(hook: JsonOutputHook, tmp_path: Path, query: bytes) -> None:
    status, _, document = seen(asyncio.run(ask(hook, Client(), records_scope(tmp_path, query))))
    assert (status, document["error"]["code"]) == (400, "DSPARK_JSON_INVALID_OPTION")
    assert len(document["error"]["message"]) < 200


@pytest.mark.parametrize(
    "query",
    [
        b"\xff=1",
        b"from=%00&to=1",
        b"from=0;to=1",
        b"from=0&to=1&FROM=2",
        b"from=0&to=1#x",
        b"from=+0&to=1",
        b"from=0&to=\xb2",
    ],
)
def test_an_odd_query_is_refused(hook: JsonOutputHook, tmp_path: Path, query: bytes) -> None:
    assert seen(asyncio.run(ask(hook, Client(), records_scope(tmp_path, query))))[0] == 400


@pytest.mark.parametrize(
    "path",
    [
        "/dspark/v1/" + "x" * 60_000,
        "/dspark/v1/spools/" + "x" * 60_000 + "/lanes/0000/records",
        "/dspark/v1/spools/x/lanes/" + "0" * 60_000 + "/records",
        "/dspark/v1/" + "a/" * 30_000,
    ],
)
def test_a_huge_path_is_answered_in_a_few_words(hook: JsonOutputHook, path: str) -> None:
    scope = scope_for(path, method="GET", headers=[BEARER], query=b"from=0&to=1")
    client = asyncio.run(ask(hook, Client(), scope))
    assert client.sent[0]["status"] in (404, 412)
    assert len(client.body) < 1000


def test_a_huge_key_is_a_wrong_one(hook: JsonOutputHook, tmp_path: Path) -> None:
    headers = [(b"authorization", b"Bearer " + b"k" * 10 * MIB)]
    assert seen(asyncio.run(ask(hook, Client(), records_scope(tmp_path, headers=headers))))[0] == 401


@pytest.mark.parametrize(
    "target",
    [
        "/dspark/v1/spools/{id}/lanes/..%2f..%2fspool.json/records?from=0&to=1",
        "/dspark/v1/spools/{id}/lanes/0000%2f..%2f0000/records?from=0&to=1",
        "/dspark/v1/spools/%2e%2e/lanes/0000/records?from=0&to=1",
        "/dspark/v1/spools/{id}/lanes/0000/%2e%2e/records?from=0&to=1",
        "/dspark/v1/spools/{id}/lanes/0000/lock",
        "/dspark/v1/spools/{id}/lanes/0000/records%00?from=0&to=1",
        "/dspark/v1/spools/{id}/lanes/%30%30%30%30%0a/records?from=0&to=1",
        "/dspark/v1/%2e%2e/%2e%2e/etc/passwd",
        "/dspark/v1//spools/{id}/lanes/0000/records?from=0&to=1",
    ],
)
def test_no_spelling_of_a_path_gives_anything_but_records(hook: JsonOutputHook, tmp_path: Path, target: str) -> None:
    hook.app = ReplayApp(answer_messages([b"{}"]))
    raw = f"GET {target.format(id=spool_id(tmp_path))} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n"
    with serving(hook) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(raw.encode() + b"authorization: Bearer " + KEY.encode() + b"\r\n\r\n")
        answer = b""
        while part := client.recv(65536):
            answer += part
    assert answer.split()[1] in (b"404", b"412")
    assert len(answer) < 1000


def test_keys_are_in_no_log_line(hook: JsonOutputHook, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "spool.json").write_text("[" * 100_000)

    async def run() -> None:
        for key in (KEY, "another-secret"):
            for path in ("/dspark/v1/offsets", "/dspark/metrics", "/health/json-schema", "/dspark/v1/x"):
                headers = [(b"authorization", f"Bearer {key}".encode())]
                await ask(hook, Client(), scope_for(path, method="GET", headers=headers))

    asyncio.run(run())
    assert KEY not in caplog.text
    assert "another-secret" not in caplog.text


def test_names_that_are_no_counters_never_reach_the_metrics() -> None:
    hostile = {'x"} 1\nevil_total{a="': 5, "x\ny": 1, "": 2, "UPPER": 3, "a" * 1000: 4, "fine_1": 6}
    text = metrics_text(hostile, {})
    assert "dspark_fine_1_total 6\n" in text
    assert "evil" not in text
    names = [line.split()[0] for line in text.splitlines() if not line.startswith("#")]
    assert all(name.replace("_", "a").isalnum() and name.islower() for name in names)


def test_a_reader_waits_for_a_busy_server_and_no_longer_than_it_may() -> None:
    refusals = 3
    asked: list[float] = []

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await ReplayApp([])(scope, receive, send)
            return
        asked.append(time.monotonic())
        if len(asked) > refusals:
            body = b'{"v":1,"spool_id":"s","lanes":{}}'
            messages = answer_messages([body])
        else:
            messages = answer_messages([b'{"error":{"code":"DSPARK_JSON_BUSY"}}'], status=429)
            messages[0]["headers"].append((b"retry-after", b"0"))
        for message in messages:
            await send(message)

    with serving(busy) as port:
        with HookClient(f"http://127.0.0.1:{port}", "k", 10) as client:
            assert client.offsets().spool_id == "s"
        assert len(asked) == refusals + 1
        assert asked[-1] - asked[0] > 0.1
        refusals = 1_000_000
        with (
            HookClient(f"http://127.0.0.1:{port}", "k", 0.4) as client,
            pytest.raises(EndpointUnreachableError, match="status 429, too many readers"),
        ):
            client.offsets()


SERVER = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
hook = JsonOutputHook(ReplayApp([]))
with serving(hook) as port:
    print(port, flush=True)
    sys.stdin.read()
"""


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def test_slow_readers_of_large_answers_hold_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ReplayApp(answer_messages([b'{"pad":"' + b"x" * 40 * MIB + b'"}']))
    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        asyncio.run(ask(hook, Client()))
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path), "DSPARK_API_KEY": "k"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(tests=str(Path(__file__).parents[2]))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        raw = (
            f"GET /dspark/v1/spools/{spool_id(tmp_path)}/lanes/0000/records?from=0&to=1 HTTP/1.1\r\n"
            "host: t\r\nauthorization: Bearer k\r\n\r\n"
        ).encode()
        httpx.get(f"http://127.0.0.1:{port}/dspark/metrics", trust_env=False)
        before = memory_of(process.pid)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(100)]
        answers: list[bytes] = []

        def read(client: socket.socket) -> None:
            client.sendall(raw)
            answers.append(client.recv(12))  # and then nothing

        threads = [threading.Thread(target=read, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers.count(b"HTTP/1.1 200") == control._MOST_READERS
        assert answers.count(b"HTTP/1.1 429") == 100 - control._MOST_READERS
        time.sleep(0.5)
        assert memory_of(process.pid) - before < 60 * MIB, "of 64 answers of 40 MiB each"
        for client in clients:
            client.close()
    finally:
        process.communicate()
