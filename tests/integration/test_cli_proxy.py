"""``dspark-json proxy`` as it is run: start, stop, memory, back-pressure, what it says."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from integration.serving_commands import command
from unit.capture.driving import CHAT, records
from unit.proxy.behind import LIMIT, always, exchange, read_all, read_head, request, upstream, wait_for

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_answers_go_through_and_into_the_spool(tmp_path: Path) -> None:
    body = b'{"id":"c","model":"m","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    with (
        upstream(always(raw)) as up,
        command("proxy", "--upstream", up.address, "--spool", str(tmp_path), API_KEY="hook-secret") as proxy,
    ):
        headers = {"authorization": "Bearer model-secret"}
        answer = httpx.post(proxy.address + CHAT, json={"model": "m"}, headers=headers, trust_env=False)
        assert (answer.content, answer.headers["x-dspark"]) == (body, "json")
        assert b"authorization: Bearer model-secret" in up.heads[0]
        with httpx.Client(base_url=proxy.address, trust_env=False) as client:
            assert client.get("/dspark/v1/offsets", headers=headers).status_code == 401
            found = client.get("/dspark/v1/offsets", headers={"authorization": "Bearer hook-secret"})
            assert found.status_code == 200
        assert proxy.end(signal.SIGTERM) == 0
    (record,) = records(tmp_path)
    assert (record["id"], record["_dspark"]["completed"]) == ("c", True)
    assert b"DSpark JSON mode enabled" in proxy.said
    assert b"-secret" not in proxy.said
    assert b"Traceback" not in proxy.said


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_streams_finish_and_takes_no_new_ones(tmp_path: Path, end: int) -> None:
    go_on = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
        connection.sendall(CHUNKED + chunk(event))
        go_on.wait(LIMIT)
        connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    with upstream(answer) as up, command("proxy", "--upstream", up.address, "--spool", str(tmp_path)) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as client:
            client.sendall(request("POST", CHAT, body=b"{}"))
            read_head(client)
            proxy.process.send_signal(end)
            wait_for(lambda: _refuses(proxy.port))
            go_on.set()
            assert read_all(client).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        _, said = proxy.process.communicate(timeout=LIMIT)
        assert proxy.process.returncode == (0 if end == signal.SIGTERM else 130), said.decode()
    (record,) = records(tmp_path)
    assert record["_dspark"]["completed"] is True


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_a_stream_that_does_not_end_in_the_grace_is_broken_off_and_recorded(tmp_path: Path) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED + chunk(b": ping\n\n"))
        connection.recv(1)

    with (
        upstream(answer) as up,
        command("proxy", "--upstream", up.address, "--spool", str(tmp_path), "--grace", "1") as proxy,
    ):
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as client:
            client.sendall(request("POST", CHAT, body=b"{}"))
            read_head(client)
            assert proxy.end(signal.SIGTERM) == 0
            assert not read_all(client).endswith(b"0\r\n\r\n")
        assert up.ended.wait(LIMIT)
    (record,) = records(tmp_path)
    assert record["_dspark"]["disconnected"] is True


def test_big_bodies_cost_bounded_memory_in_both_directions(tmp_path: Path) -> None:
    size = 15 * MIB

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (16 * size))
        for _ in range(16):
            connection.sendall(b"x" * size)

    with upstream(answer) as up, command("proxy", "--upstream", up.address, "--spool", str(tmp_path)) as proxy:
        exchange(proxy.port, request("GET", "/health/json-schema"))
        before = proxy.memory()
        with (
            httpx.Client(base_url=proxy.address, trust_env=False, timeout=60) as client,
            client.stream("POST", "/v1/files", content=b"y" * size) as response,
        ):
            assert sum(map(len, response.iter_raw(MIB))) == 16 * size
        assert up.bodies == [b"y" * size]
        assert proxy.memory() - before < 10 * MIB


def test_a_slow_client_holds_the_upstream_back_and_not_the_answer_in_memory(tmp_path: Path) -> None:
    sent = [0]

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED)
        piece = chunk(b"x" * 65536)
        for _ in range(10_000):
            connection.sendall(piece)
            sent[0] += 1

    with upstream(answer) as up, command("proxy", "--upstream", up.address, "--spool", str(tmp_path)) as proxy:
        exchange(proxy.port, request("GET", "/health/json-schema"))
        before = proxy.memory()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) as client:
            client.sendall(request("GET", "/endless"))
            last = -1
            while sent[0] != last or not last:
                last = sent[0]
                time.sleep(0.3)
            assert 65536 * last < 100 * MIB, "what the kernel's buffers hold"
            assert proxy.memory() - before < 10 * MIB
        assert up.ended.wait(LIMIT)


def test_a_slow_upstream_holds_the_client_back_and_not_the_request_in_memory(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        command(
            "proxy", "--upstream", f"http://127.0.0.1:{listener.getsockname()[1]}", "--spool", str(tmp_path)
        ) as proxy,
    ):
        exchange(proxy.port, request("GET", "/health/json-schema"))
        before = proxy.memory()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=1) as client:
            client.sendall(request("POST", "/x", f"content-length: {1000 * MIB}"))
            assert _accepted(client) < 100 * MIB
            assert proxy.memory() - before < 10 * MIB


def _accepted(client: socket.socket) -> int:
    """How much a connection takes before it is held back."""
    sent = 0
    try:
        while sent < 1000 * MIB:
            client.sendall(b"x" * MIB)
            sent += MIB
    except TimeoutError:
        pass
    return sent


def test_connections_of_clients_that_leave_are_all_given_back(tmp_path: Path) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED)
        while True:
            connection.sendall(chunk(b"data: {}\n\n"))
            time.sleep(0.005)

    with upstream(answer) as up, command("proxy", "--upstream", up.address, "--spool", str(tmp_path)) as proxy:
        exchange(proxy.port, request("GET", "/health/json-schema"))
        for round_ in range(3):
            clients = [socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT) for _ in range(20)]
            for client in clients:
                client.sendall(request("POST", CHAT, body=b"{}"))
            for client in clients:
                read_head(client)
                client.close()
            wait_for(lambda: not any(thread.is_alive() for thread in up._threads[1:]))
            if not round_:
                open_files = _open_files(proxy.process.pid)
        wait_for(lambda: _open_files(proxy.process.pid) <= open_files)
        wait_for(lambda: len(records(tmp_path)) == 60)
        assert all(record["_dspark"]["disconnected"] for record in records(tmp_path))


def _open_files(pid: int) -> int:
    from pathlib import Path

    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "localhost:8000", "--listen", "127.0.0.1:0"], "DSPARK_JSON_INVALID_OPTION"),
        (["--upstream", "http://u:secret@h", "--listen", "127.0.0.1:0"], "--upstream"),
        (["--upstream", "http://h:1", "--listen", "127.0.0.1"], "is not HOST:PORT"),
        (["--upstream", "http://h:1", "--listen", "no-such-host.invalid:1"], "can't listen on"),
        (["--upstream", "http://h:1", "--listen", "127.0.0.1:0", "--grace", "0"], "is not a number of seconds"),
    ],
)
def test_wrong_arguments_are_one_line_that_says_so(arguments: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "dspark_json", "proxy", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_line_that_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["proxy", "--upstream", "http://h:1", "--listen", place]
        done = subprocess.run([sys.executable, "-m", "dspark_json", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"can't listen on {place} (Address already in use)" in done.stderr


def test_the_default_spool_is_named_by_the_port(tmp_path: Path) -> None:
    with upstream(always(OK)) as up, command("proxy", "--upstream", up.address, SPOOL=str(tmp_path / "s")) as proxy:
        health = json.loads(httpx.get(proxy.address + "/health/json-schema", trust_env=False).content)
        assert json.loads((tmp_path / "s/spool.json").read_text())["spool_id"] == health["spool_id"]
