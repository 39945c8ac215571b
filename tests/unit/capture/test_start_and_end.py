"""How the hook starts with its server, tells that it is there, and ends (DESIGN §2)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from unit.capture.driving import (
    CHAT,
    Client,
    Message,
    ReplayApp,
    all_lines,
    answer_messages,
    ask,
    closing,
    counters,
    get,
    make_hook,
    records,
    scope_for,
    serving,
)

import dspark_json
from dspark_json.capture import notices
from dspark_json.capture.hook import JsonOutputHook
from dspark_json.capture.settings import HookSettings
from dspark_json.errors import InvalidOptionError

PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'


def test_the_public_name_is_the_hook() -> None:
    assert dspark_json.JsonOutputHook is JsonOutputHook


@pytest.mark.parametrize(
    ("name", "value"), [("DURABILITY", "sync"), ("HOLD_MS", "0"), ("QUEUE_MB", "x"), ("CAPTURE_REQUESTS", "all")]
)
def test_a_bad_setting_keeps_the_server_from_starting(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidOptionError, match=f"DSPARK_{name}"):
        make_hook(ReplayApp([]), tmp_path, monkeypatch, **{name: value})


def test_settings_have_the_documented_defaults() -> None:
    settings = HookSettings.from_environment({})
    assert settings.folder(None) == Path("/dev/shm/dspark_vllm_8000")
    assert settings.folder(9001) == Path("/dev/shm/dspark_vllm_9001")
    assert (settings.durability, settings.hold, settings.capture_requests) == ("async", 1.0, "settings")
    assert (settings.max_record, settings.assembly, settings.queue) == (64 << 20, 512 << 20, 64 << 20)
    assert settings.api_key is None
    given = HookSettings.from_environment(
        {
            "DSPARK_SPOOL": "some/where",
            "DSPARK_RETENTION_MB": "3",
            "DSPARK_RETENTION_HOURS": "0.5",
            "DSPARK_SEGMENT_MB": "2",
        }
    )
    assert given.folder(9001) == Path.cwd() / "some/where"
    assert given.writer.retention_bytes == 3 << 20
    assert given.writer.segment_bytes == 2 << 20
    assert given.writer.retention_us == 1_800_000_000


def test_building_the_hook_opens_no_file_and_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    before = threading.active_count()
    make_hook(ReplayApp([]), tmp_path / "s", monkeypatch)
    assert threading.active_count() == before
    assert not (tmp_path / "s").exists()


async def lifespan(hook: JsonOutputHook, scope: dict[str, Any], work: Any = None) -> list[str]:
    """Run a server's lifespan around some work; the kinds of the messages the server got."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[str] = []
    started = asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message["type"])
        started.set()

    task = asyncio.create_task(hook({"type": "lifespan", **scope}, to_app.get, send))
    await to_app.put({"type": "lifespan.startup"})
    await asyncio.wait({task, asyncio.create_task(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if work is not None:
        await work()
    await to_app.put({"type": "lifespan.shutdown"})
    await task
    return sent


def test_the_start_lines_name_version_folder_and_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DSPARK_SPOLO", "x")
    hook = make_hook(ReplayApp([]), tmp_path / "s", monkeypatch, API_KEY="hush")
    assert asyncio.run(lifespan(hook, {})) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    spool_id = json.loads((tmp_path / "s/spool.json").read_text())["spool_id"]
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert "DSpark JSON mode enabled" in messages[0]
    for fact in (dspark_json.__version__, str(tmp_path / "s"), spool_id):
        assert fact in messages[0]
    assert messages[1] == "json_output_hook_enabled: true"
    assert 'DSPARK_SPOLO is not a setting of the hook. Did you mean "DSPARK_SPOOL"?' in caplog.text
    assert "hush" not in caplog.text


def test_the_spool_is_open_before_the_server_serves_and_whole_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch)

    async def work() -> None:
        assert (tmp_path / "s/spool.json").exists()
        await asyncio.gather(*(ask(hook, Client()) for _ in range(500)))

    asyncio.run(lifespan(hook, {}, work))
    assert len(records(tmp_path / "s")) == 500
    assert json.loads((tmp_path / "s/lanes/0000/stats.json").read_text())["records"] == 500


def test_an_answer_that_never_ends_keeps_no_server_from_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(ReplayApp):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await super().__call__(scope, receive, send)
            if scope["type"] == "http":
                await asyncio.sleep(3600)

    app = Endless(answer_messages([PLAIN], end=False))
    hook = make_hook(app, tmp_path / "s", monkeypatch)
    asking: list[asyncio.Task[Client]] = []

    async def work() -> None:
        asking.append(asyncio.create_task(ask(hook, Client())))
        await asyncio.sleep(0.05)

    async def run() -> list[str]:
        sent = await lifespan(hook, {}, work)
        asking[0].cancel()
        return sent

    assert asyncio.run(run()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert hook._desk.under_way == 0
    assert counters(hook)["dropped_records"] == 1


@pytest.mark.parametrize("durability", ["async", "write"])
def test_a_server_that_starts_again_is_captured_again(
    durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch, DURABILITY=durability)

    async def work() -> None:
        await ask(hook, Client())
        await get(hook, "/dspark/metrics")

    for life in range(1, 4):
        asyncio.run(lifespan(hook, {}, work))
        assert counters(hook) == {"records": life, "bytes": len(all_lines(tmp_path / "s"))}
    assert [record["_dspark"]["seq"] for record in records(tmp_path / "s")] == [0, 1, 2]


def test_an_answer_after_the_end_starts_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch)
    asyncio.run(lifespan(hook, {}))
    assert asyncio.run(ask(hook, Client())).body == PLAIN
    assert records(tmp_path / "s") == []
    assert counters(hook)["dropped_records"] == 1


def test_of_two_hooks_around_one_another_the_outer_one_works_and_the_inner_one_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inner = make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path / "s", monkeypatch)

    async def between(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope}, receive, send)

    hook = make_hook(between, tmp_path / "s", monkeypatch)

    async def work() -> None:
        for _ in range(3):
            scope = scope_for()
            client = await ask(hook, Client(), scope)
            assert client.sent[0]["headers"].count((b"x-dspark", b"json")) == 1
            assert scope == scope_for()

    asyncio.run(lifespan(hook, {}, work))
    assert len(records(tmp_path / "s")) == 3
    assert [path.name for path in (tmp_path / "s/lanes").iterdir()] == ["0000"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "twice" in warnings[0]


def test_the_default_folder_is_named_by_vllms_port(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.delenv("DSPARK_SPOOL", raising=False)
    port = 61_000 + os.getpid() % 4_000
    folder = Path(f"/dev/shm/dspark_vllm_{port}")
    assert not folder.exists()
    app = SimpleNamespace(state=SimpleNamespace(args=SimpleNamespace(port=port)))
    try:
        asyncio.run(lifespan(JsonOutputHook(ReplayApp([])), {"app": app}))
        assert (folder / "spool.json").exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_port_that_is_not_known_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DSPARK_SPOOL", raising=False)
    monkeypatch.setattr(HookSettings, "folder", lambda _self, _port: tmp_path / "spool")  # not the one of a real server
    asyncio.run(lifespan(JsonOutputHook(ReplayApp([])), {}))
    warned = [record.message for record in caplog.records if "port is not known" in record.message]
    assert len(warned) == 1
    assert "Set DSPARK_SPOOL for each" in warned[0]
    assert "dspark_vllm_<port>" in warned[0], "where readers of a port look"


def test_a_folder_that_holds_other_things_is_taken_with_a_warning_at_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir(mode=0o700)
    for name in "abcd":
        (folder / f"{name}.jpg").touch()
    app = ReplayApp(answer_messages([PLAIN]))
    for _ in range(2):
        with closing(make_hook(app, folder, monkeypatch)) as hook:
            asyncio.run(ask(hook, Client()))
    assert len(records(folder)) == 2
    (warned,) = [record.getMessage() for record in caplog.records if "other things" in record.getMessage()]
    assert f'the folder {folder} was no spool and holds other things ("a.jpg", "b.jpg", "c.jpg", …)' in warned
    assert "set DSPARK_SPOOL to an empty folder" in warned


@pytest.mark.parametrize("names", [[], ["lost+found"], ["lanes", "schemas"], [".spool.json.17.tmp"]])
def test_a_folder_that_holds_nothing_else_is_taken_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, names: list[str]
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)) as hook:
        asyncio.run(ask(hook, Client()))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_an_application_without_lifespan_is_captured_from_its_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp(answer_messages([PLAIN]))
    with closing(make_hook(app, tmp_path / "s", monkeypatch)) as hook:
        asyncio.run(ask(hook, Client()))
    assert len(records(tmp_path / "s")) == 1


def test_an_application_that_refuses_lifespan_does_so_through_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError(scope["type"])

    with closing(make_hook(app, tmp_path / "s", monkeypatch)) as hook:
        assert not hook._appender.started
        with pytest.raises(NotImplementedError, match="lifespan"):
            asyncio.run(lifespan(hook, {}))


def test_two_servers_on_one_spool_have_a_lane_each_and_a_restart_takes_the_free_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp(answer_messages([PLAIN]))
    first = make_hook(app, tmp_path, monkeypatch, DURABILITY="write")
    with serving(first) as one:
        with serving(make_hook(app, tmp_path, monkeypatch, DURABILITY="write")) as two:
            for port in (one, two, two):
                assert httpx.post(f"http://127.0.0.1:{port}{CHAT}", json={}, trust_env=False).content == PLAIN
        with serving(make_hook(app, tmp_path, monkeypatch, DURABILITY="write")) as again:
            httpx.post(f"http://127.0.0.1:{again}{CHAT}", json={}, trust_env=False)
    found = [(r["_dspark"]["lane"], r["_dspark"]["seq"]) for r in records(tmp_path)]
    assert found == [("0000", 0), ("0001", 0), ("0001", 1), ("0001", 2)]


def test_json_object_without_a_schema_is_warned_about_once_for_each_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        for model in ("a", "a", "b"):
            request = {"model": model, "response_format": {"type": "json_object"}}
            await ask(hook, Client(json.dumps(request).encode()), scope_for())

    with closing(make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "'a' is asked for json_object without a schema" in warnings[0]
    assert hook._appender.counters()["json_object_without_schema"] == 3


def test_info_lines_are_shown_where_nobody_configured_logging() -> None:
    script = (
        "import logging; logging.getLogger().setLevel(logging.ERROR)\n"
        "from dspark_json.capture.notices import LOGGER, make_visible\n"
        "make_visible(); make_visible(); LOGGER.info('seen %d', 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert re.fullmatch(r"INFO .* \[dspark_json\] seen 1\n", done.stderr)


def test_a_handler_that_is_there_is_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices.LOGGER, "handlers", [logging.NullHandler()])
    notices.make_visible()
    assert len(notices.LOGGER.handlers) == 1


SERVER = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
event = b'data: {{"id":"c","choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":"stop"}}]}}\\n\\n'
stream = answer_messages([event, event, b"data: [DONE]\\n\\n"], content_type="text/event-stream")
plain = answer_messages([b'{{"id":"c","choices":[]}}'])
plain[0]["headers"].append((b"content-length", b"23"))
class App(ReplayApp):
    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.messages = stream if dict(scope["headers"]).get(b"x-stream") else plain
        await super().__call__(scope, receive, send)
uvicorn.run(JsonOutputHook(App([])), host="127.0.0.1", port={port}, log_level="error", lifespan="on")
"""


def started_server(script: str, port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return process


def read_answer(port: int, number: int, *, stream: bool) -> bool:
    """Ask with a plain socket and stop reading with the byte that makes the answer complete."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\nx-request-id: {number}\r\ncontent-length: 2\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall((head + ("x-stream: 1\r\n" if stream else "") + "\r\n{}").encode())
        received = b""
        end = b"data: [DONE]\n\n" if stream else b'"choices":[]}'
        while end not in received:
            part = connection.recv(1)
            if not part:
                return False
            received += part
    return True


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_an_answer_a_client_has_survives_sigkill_in_write_mode(tmp_path: Path, *, stream: bool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = SERVER.format(tests=str(Path(__file__).parents[2]), port=port)
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path), "DSPARK_DURABILITY": "write"}
    got: list[str] = []
    for life in range(3):
        process = started_server(script, port, environment)
        try:
            for turn in range(4 + life):
                number = 100 * life + turn
                if read_answer(port, number, stream=stream):
                    got.append(str(number))
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait(10)
    kept = [record["_dspark"]["request_id"] for record in records(tmp_path)]
    assert len(got) == 15
    assert kept == got


CUT = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
event = b'data: {{"id":"c","choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":null}}]}}\\n\\n'
class App(ReplayApp):
    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        self.messages = answer_messages([event, event, b"data: [DONE]\\n\\n"], content_type="text/event-stream")
        if not dict(scope["headers"]).get(b"x-endless"):
            return await super().__call__(scope, receive, send)
        try:
            for message in self.messages[:2]:
                await send(message)
            await asyncio.sleep(60)
        finally:
            for _ in range(3):  # as the task groups of frameworks do, and generators that clean up
                await asyncio.sleep(0.05)
uvicorn.run(
    JsonOutputHook(App([])), host="127.0.0.1", port={port}, log_level="critical", lifespan="on",
    timeout_graceful_shutdown=1,
)
"""


@pytest.mark.parametrize("durability", ["async", "write"])
def test_answers_that_a_server_cuts_when_it_ends_have_their_records_beside_the_whole_ones(
    durability: str, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = CUT.format(tests=str(Path(__file__).parents[2]), port=port)
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path), "DSPARK_DURABILITY": durability}
    process = started_server(script, port, environment)
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(8)]
    try:
        for number, client in enumerate(clients):
            head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\nx-request-id: cut-{number}\r\nx-endless: 1\r\n"
            client.sendall(f"{head}content-length: 2\r\n\r\n{{}}".encode())
            while b"data: " not in client.recv(65536):
                pass
        assert read_answer(port, 1, stream=True)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
        for client in clients:
            client.close()
    kept = {record["_dspark"]["request_id"]: record["_dspark"]["disconnected"] for record in records(tmp_path)}
    assert kept == {"1": False, **{f"cut-{number}": True for number in range(8)}}
    assert json.loads((tmp_path / "lanes/0000/stats.json").read_text()).get("dropped_records", 0) == 0


ENDING = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
hook = JsonOutputHook(ReplayApp(answer_messages([b'{{"id":"c"}}'])))
async def run():
    for _ in range(300):
        await ask(hook, Client())
asyncio.run(run())
"""


def test_a_process_that_ends_without_lifespan_writes_what_is_queued(tmp_path: Path) -> None:
    script = ENDING.format(tests=str(Path(__file__).parents[2]))
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=environment, timeout=60, check=True, stderr=subprocess.DEVNULL)
    assert len(records(tmp_path)) == 300
