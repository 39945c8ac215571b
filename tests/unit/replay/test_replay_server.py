"""The replay server over real HTTP: it behaves as vLLM does."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from dspark_json.errors import ServerEndedError
from dspark_json.replay import ReplayApp, RunningServer
from dspark_json.replay.recording import packaged_request

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST = ("--no-hook", "--speed", "1000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(arguments=FAST, log=tmp_path_factory.mktemp("replay") / "server.log") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address) as http:
        yield http


def ask(client: httpx.Client, name: str) -> httpx.Response:
    return client.post("/v1/chat/completions", json=packaged_request(name))


def test_each_answer_has_an_id_of_its_own_and_the_time_of_now(client: httpx.Client) -> None:
    answers = [ask(client, "chat_order") for _ in range(5)]
    assert len({answer.json()["id"] for answer in answers}) == 5
    for answer in answers:
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert abs(answer.json()["created"] - time.time()) < 30


def test_a_stream_has_one_id_and_ends_with_done(client: httpx.Client) -> None:
    answer = ask(client, "stream_order_usage")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert len({json.loads(event.removeprefix("data: "))["id"] for event in events[:-2]}) == 1


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, "body"),
        (b"[1]", 400, "body"),
        (b'{"model":"tiny"}', 400, "body.messages"),
        (b'{"model":"nope","messages":[]}', 404, "model"),
    ],
)
def test_a_bad_request_gets_an_error_of_vllms_shape(client: httpx.Client, body: bytes, status: int, param: str) -> None:
    answer = client.post("/v1/chat/completions", content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, status, param)
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/completions", "completions_two_prompts"),
        ("/v1/completions", "stream_completions_two_prompts"),
        ("/v1/responses", "responses_json"),
        ("/v1/responses", "stream_responses"),
    ],
)
def test_the_other_routes_are_answered_as_recorded(client: httpx.Client, path: str, name: str) -> None:
    request = packaged_request(name)
    answer = client.post(path, json=request)
    assert answer.status_code == 200
    if name.startswith("stream"):
        assert answer.text.endswith("data: [DONE]\n\n") is (path == "/v1/completions")
        last = json.loads(answer.text.removesuffix("data: [DONE]\n\n").strip().rsplit("data: ", 1)[1])
        assert abs(last.get("response", last).get("created_at", last.get("created", 0)) - time.time()) < 30
    else:
        assert answer.json()["object"] == {"/v1/completions": "text_completion", "/v1/responses": "response"}[path]
    missing = client.post(path, json={"model": "tiny"})
    assert missing.status_code == 400
    assert missing.json()["error"]["param"] == ("body.prompt" if path == "/v1/completions" else "body.input")


def test_the_model_is_listed_and_other_paths_are_not_found(client: httpx.Client) -> None:
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny"]
    assert client.get("/health").status_code == 200
    assert client.get("/v1/nothing").status_code == 404
    assert client.get("/v1/chat/completions").status_code == 405


def test_answers_come_at_the_recorded_pace(tmp_path: Path) -> None:
    with RunningServer(arguments=("--no-hook", "--speed", "2"), log=tmp_path / "log") as running:
        began = time.monotonic()
        httpx.post(f"{running.address}/v1/chat/completions", json=packaged_request("stream_n2"))
        took = time.monotonic() - began
    assert took > 0.2  # 99 events of 5 ms, twice as fast


async def messages_of(request: dict[str, object], *, leave_after: int | None = None) -> list[dict[str, object]]:
    sent: list[dict[str, object]] = []
    left = asyncio.Event()
    incoming = [{"type": "http.request", "body": json.dumps(request).encode(), "more_body": False}]

    async def receive() -> dict[str, object]:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)
        if leave_after is not None and len(sent) > leave_after:
            left.set()
            await asyncio.sleep(0)

    if leave_after == 0:
        left.set()
    await ReplayApp(speed=100)({"type": "http", "method": "POST", "path": "/v1/chat/completions"}, receive, send)
    return sent


def test_a_streams_messages_are_one_an_event_then_done_then_an_empty_last_one() -> None:
    start, *bodies = asyncio.run(messages_of(packaged_request("stream_plain")))
    assert start["type"] == "http.response.start"
    assert [body["more_body"] for body in bodies] == [True] * (len(bodies) - 1) + [False]
    assert all(body["body"].count(b"data: ") == 1 for body in bodies[:-1])
    assert [body["body"] for body in bodies[-2:]] == [b"data: [DONE]\n\n", b""]


def test_a_stream_whose_client_left_has_no_last_message() -> None:
    sent = asyncio.run(messages_of(packaged_request("stream_order_usage"), leave_after=5))
    assert len(sent) < 10
    assert sent[-1]["more_body"] is True


def test_a_call_whose_client_left_is_answered_with_null() -> None:
    start, body = asyncio.run(messages_of(packaged_request("chat_order"), leave_after=0))
    assert (start["status"], body["body"], body["more_body"]) == (200, b"null", False)


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path; from dspark_json.replay import RunningServer\n"
        "running = RunningServer(arguments=['--no-hook'], log=Path(sys.argv[1]))\n"
        "print(running.address, flush=True); os._exit(9)"
    )
    starter = subprocess.run([sys.executable, "-c", code, tmp_path / "log"], capture_output=True, text=True)
    port = int(starter.stdout.strip().rsplit(":", 1)[1])
    deadline = time.monotonic() + 15
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < deadline, "it still listens"
        time.sleep(0.1)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ServerEndedError, match=f"can't listen on 127.0.0.1:{port}"):
            RunningServer(arguments=("--no-hook", "--port", port), log=tmp_path / "log")


def test_the_default_spool_is_named_by_the_port_as_vllms_is(tmp_path: Path) -> None:
    with RunningServer(log=tmp_path / "log") as running:
        port = running.address.rsplit(":", 1)[1]
        folder = Path(f"/dev/shm/dspark_vllm_{port}")
        try:
            assert httpx.get(f"{running.address}/health/json-schema").json()["spool_id"]
            assert (folder / "spool.json").exists()
        finally:
            running.stop()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_ends_the_server_without_a_traceback(tmp_path: Path, signals: int) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "dspark_json.replay", *FAST], stdout=subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline().startswith(b'{"address"')
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert "Traceback" not in log.read_text()
    assert "KeyboardInterrupt" not in log.read_text()
