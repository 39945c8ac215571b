"""The proxy passes bytes on as they are, in both directions, and ends with whoever ends first."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from unit.capture.driving import (
    CHAT,
    ReplayApp,
    answer_messages,
    asgi_messages,
    make_hook,
    raw_exchange,
    recorded_exchanges,
    records,
    serving,
)
from unit.proxy.behind import (
    LIMIT,
    always,
    exchange,
    fields_of,
    proxied,
    read_all,
    read_head,
    request,
    upstream,
    wait_for,
)

from dspark_json.proxy.forwarder import Forwarder, Patience
from dspark_json.proxy.upstreams import Upstreams

if TYPE_CHECKING:
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n"
SHORT = Patience(connect=1, idle=0.3)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def error(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    found: dict[str, Any] = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["type"] == "proxy_error"
    return int(head.split()[1]), found


@pytest.mark.parametrize("number", range(0, len(recorded_exchanges()), 3))
def test_every_byte_on_the_wire_is_the_same_as_without_the_proxy(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = recorded_exchanges()[number]
    app = ReplayApp(asgi_messages(recorded["messages"]))
    sent = json.dumps(recorded["request"]).encode()
    with serving(app, default_headers=False) as server:
        straight = raw_exchange(server, sent)
        with proxied(f"http://127.0.0.1:{server}") as port:
            assert raw_exchange(port, sent) == straight
        monkeypatch.setenv("DSPARK_DURABILITY", "write")
        direct_hook = make_hook(app, tmp_path / "direct", monkeypatch)
        with serving(direct_hook) as hooked:
            raw_exchange(hooked, sent)
        with proxied(
            f"http://127.0.0.1:{server}", wrap=lambda inner: make_hook(inner, tmp_path / "proxied", monkeypatch)
        ) as port:
            assert raw_exchange(port, sent).replace(b"x-dspark: json\r\n", b"") == straight
    assert app.requests == [sent] * 4
    (direct,), (through,) = records(tmp_path / "direct"), records(tmp_path / "proxied")
    for record in (direct, through):
        for timing in ("received_at", "first_byte_ms", "duration_ms"):
            del record["_dspark"][timing]
    assert through == direct


def test_targets_go_on_as_they_were_written() -> None:
    with upstream(always(OK)) as up, proxied(up.address + "/base") as port:
        for target in ("/a%2Fb/%c3%a9?q=%20&x=a+b&&", "//double", "/..%2f../x", "/x?http://y", "/a;b=c?d=%"):
            exchange(port, request("GET", target))
            assert up.heads[-1].startswith(f"GET /base{target} HTTP/1.1\r\n".encode()), target
        exchange(port, request("OPTIONS", "*"))
        assert up.heads[-1].startswith(b"OPTIONS * HTTP/1.1\r\n")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"])
def test_all_methods_and_paths_are_forwarded(method: str) -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        assert exchange(port, request(method, "/any/path", body=b"body")).endswith(b"\r\n\r\nok")
        assert up.heads[0].startswith(f"{method} /any/path ".encode())
        assert up.bodies == [b"body"]


def test_an_answer_to_head_has_its_length_and_no_body() -> None:
    with upstream(always(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")) as up, proxied(up.address) as port:
        answer = exchange(port, request("HEAD"))
        assert b"content-length: 5000\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body_end_with_their_head(status: bytes) -> None:
    raw = b"HTTP/1.1 " + status + b"\r\netag: x\r\n" + (b"content-length: 9\r\n" if b"304" in status else b"") + b"\r\n"
    with upstream(always(raw)) as up, proxied(up.address) as port:
        head = b"HTTP/1.1 %b\r\netag: x\r\nconnection: close\r\n\r\n" % status
        assert exchange(port, request()).lower() == head.lower()


def test_fields_of_the_answer_keep_order_and_duplicates_and_add_none() -> None:
    raw = b"HTTP/1.1 200 OK\r\nb: 1\r\na: 2\r\nset-cookie: x\r\nb: 3\r\nset-cookie: y\r\ncontent-length: 0\r\n\r\n"
    with upstream(always(raw)) as up, proxied(up.address) as port:
        head = exchange(port, request()).removesuffix(b"\r\n\r\n")
        assert fields_of(head) == [*fields_of(raw.removesuffix(b"\r\n\r\n")), (b"connection", b"close")]
        exchange(port, request())
        assert not any(name == b"cookie" for name, _ in fields_of(up.heads[1].strip())), "cookies are the client's"


def test_the_request_is_the_clients_with_host_via_and_who_asked() -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        exchange(port, request("GET", "/x", "b: 1", "a: 2", "b: 3", "authorization: Bearer sk", "te: trailers"))
    assert fields_of(up.heads[0].strip())[:-1] == [
        (b"host", f"127.0.0.1:{up.port}".encode()),
        (b"b", b"1"),
        (b"a", b"2"),
        (b"b", b"3"),
        (b"authorization", b"Bearer sk"),
        (b"x-forwarded-for", b"127.0.0.1"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"proxy.example"),
    ]
    assert fields_of(up.heads[0].strip())[-1][0] == b"via"


def test_bodies_stay_compressed_as_they_came() -> None:
    packed = gzip.compress(b"x" * 5000)
    raw = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed)
    with upstream(always(raw)) as up, proxied(up.address) as port:
        answer = exchange(port, request("POST", "/x", "content-encoding: gzip", "accept-encoding: gzip", body=packed))
        assert answer.endswith(b"\r\n\r\n" + packed)
        assert up.bodies == [packed]
        assert b"accept-encoding: gzip\r\n" in up.heads[0]


def test_a_compressed_answer_is_passed_on_and_its_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b'{"id":"c","choices":[]}')
    raw = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed)
    with (
        upstream(always(raw)) as up,
        proxied(up.address, wrap=lambda app: make_hook(app, tmp_path, monkeypatch)) as port,
    ):
        answer = exchange(port, request("POST", CHAT, "accept-encoding: gzip", body=b'{"model":"m"}'))
        assert answer.endswith(b"\r\n\r\n" + packed)
        assert b"accept-encoding: identity\r\n" in up.heads[0]
    (record,) = records(tmp_path)
    assert list(record) == ["_dspark"]
    assert (record["_dspark"]["error"]["code"], record["_dspark"]["body"]) == ("body_encoded", None)
    assert (record["_dspark"]["status"], record["_dspark"]["completed"]) == (200, False)


def test_a_chunked_request_goes_on_chunked_and_whole() -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        body = chunk(b"a" * 10) + chunk(b"b" * 70_000) + b"0\r\n\r\n"
        exchange(port, request("POST", "/x", "transfer-encoding: chunked") + body)
        assert up.bodies == [b"a" * 10 + b"b" * 70_000]


def test_a_request_that_waits_for_100_continue_gets_it_from_the_proxy() -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
            client.sendall(request("POST", "/x", "expect: 100-continue", "content-length: 4"))
            assert read_head(client) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"body")
            assert read_all(client).endswith(b"ok")
        assert up.bodies == [b"body"]
        assert b"expect" not in up.heads[0]


def test_informational_answers_end_at_the_proxy() -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK
    with upstream(always(raw)) as up, proxied(up.address) as port:
        assert exchange(port, request()).startswith(b"HTTP/1.1 200 OK\r\n")


def test_pieces_of_a_stream_go_on_one_by_one_when_they_come() -> None:
    gate = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED)
        for number in range(3):
            connection.sendall(chunk(b"data: %d\n\n" % number))
            gate.wait(LIMIT)
            gate.clear()
        connection.sendall(b"0\r\n\r\n")

    with upstream(answer) as up, proxied(up.address) as port, httpx.Client(trust_env=False, timeout=LIMIT) as client:
        with client.stream("POST", f"http://127.0.0.1:{port}{CHAT}", json={}) as response:
            found = []
            for piece in response.iter_raw():
                found.append(piece)
                gate.set()
        assert found == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]


def test_connections_are_kept_and_used_again_on_both_sides() -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            for _ in range(5):
                assert client.post("/x", content=b"y").content == b"ok"
        assert (up.connections, len(up.heads)) == (1, 5)


def test_a_connection_that_the_upstream_closed_meanwhile_is_not_used_again() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_RDWR)

    with upstream(answer) as up, proxied(up.address) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            for _ in range(3):
                assert client.post("/x", content=b"y").content == b"ok"
                time.sleep(0.1)
        assert up.connections == 3


def test_requests_at_once_get_their_own_answers() -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await ReplayApp([])(scope, receive, send)
            return
        body = (await receive())["body"]
        for message in answer_messages([body[:5], body[5:]]):
            await send(message)

    with serving(echo) as server, proxied(f"http://127.0.0.1:{server}") as port:

        def ask(number: int) -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                for turn in range(10):
                    text = f"client {number} turn {turn}".encode()
                    assert client.post("/x", content=text).content == text

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(ask, range(32)))


def test_a_client_that_takes_nothing_is_let_go_with_its_upstream() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED)
        while True:
            connection.sendall(chunk(b"x" * 65536))

    with (
        upstream(answer) as up,
        proxied(up.address, patience=SHORT) as port,
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client,
    ):
        client.sendall(request("GET", "/endless"))
        assert up.ended.wait(LIMIT)


@pytest.mark.parametrize("when", ["before the answer", "in the middle of a stream", "while it sends its request"])
def test_a_client_that_leaves_ends_its_request_at_the_upstream(when: str) -> None:
    asked = threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        if when == "in the middle of a stream":
            connection.sendall(CHUNKED + chunk(b"data: 1\n\n"))
        asked.set()
        assert connection.recv(1) == b"", "the upstream's connection ends"

    with upstream(answer) as up, proxied(up.address) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
            if when == "while it sends its request":
                client.sendall(request("POST", "/x", "content-length: 1000") + b"half")
                wait_for(lambda: bool(up.heads))
            else:
                client.sendall(request("POST", "/x", body=b"{}"))
                assert asked.wait(LIMIT)
            if when == "in the middle of a stream":
                read_head(client)
        assert up.ended.wait(LIMIT)
        # Nothing of the client that left is in the way of the next one.
        up.answer = always(OK)
        assert exchange(port, request()).endswith(b"ok")


def test_a_client_that_leaves_is_a_record_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
        connection.sendall(CHUNKED + chunk(event))
        connection.recv(1)

    with upstream(answer) as up, proxied(up.address, wrap=lambda app: make_hook(app, tmp_path, monkeypatch)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
            client.sendall(request("POST", CHAT, body=b"{}"))
            read_head(client)
            client.recv(1)
        assert up.ended.wait(LIMIT)
    (record,) = records(tmp_path)
    assert record["choices"][0]["message"]["content"] == "x"
    assert (record["_dspark"]["disconnected"], record["_dspark"]["error"]) == (True, None)


@pytest.mark.parametrize(
    ("raw", "cut"),
    [
        (CHUNKED + chunk(b": ping\n\n"), "chunks"),
        (CHUNKED + b"zz\r\n", "no chunk"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", "length"),
    ],
)
def test_an_answer_that_ends_in_the_middle_never_ends_cleanly_for_the_client(
    raw: bytes, cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_RDWR)

    with upstream(answer) as up, proxied(up.address, wrap=lambda app: make_hook(app, tmp_path, monkeypatch)) as port:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"http://127.0.0.1:{port}{CHAT}", json={}, trust_env=False)
        assert httpx.get(f"http://127.0.0.1:{port}/health/json-schema", trust_env=False).status_code == 200
    (record,) = records(tmp_path)
    meta = record["_dspark"]
    assert (meta["status"], meta["completed"], meta["disconnected"]) == (200, False, True)
    assert meta["error"]["type"] == "AnswerBroken"


def test_a_stream_without_framing_ends_with_its_connection() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it")
        connection.shutdown(socket.SHUT_RDWR)

    with upstream(answer) as up, proxied(up.address) as port:
        assert httpx.get(f"http://127.0.0.1:{port}/x", trust_env=False).content == b"all of it"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 502, "upstream_broken"),
        (b"nonsense\r\n\r\n", 502, "upstream_broken"),
        (b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n", 502, "upstream_broken"),
        (None, 504, "upstream_timeout"),
    ],
)
def test_an_upstream_that_fails_before_it_answers_is_a_named_error_and_a_record(
    raw: bytes | None, status: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        if raw is None:
            connection.recv(1)
        else:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_RDWR)

    with (
        upstream(answer) as up,
        proxied(up.address, wrap=lambda app: make_hook(app, tmp_path, monkeypatch), patience=SHORT) as port,
    ):
        found, told = error(exchange(port, request("POST", CHAT, body=b'{"model":"m"}')))
        assert (found, told["code"]) == (status, code)
        assert str(up.port) not in told["message"], "clients are not told where the upstreams are"
    (record,) = records(tmp_path)
    assert (record["_dspark"]["status"], record["_dspark"]["error"]["code"]) == (status, code)


def test_a_stream_that_falls_silent_is_broken_off() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(CHUNKED + chunk(b"data: 1\n\n"))
        assert connection.recv(1) == b""

    with upstream(answer) as up, proxied(up.address, patience=SHORT) as port:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"http://127.0.0.1:{port}/x", trust_env=False)
        assert up.ended.wait(LIMIT)


@pytest.fixture
def refusing() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_nobody_there_is_a_named_error_and_a_record(
    refusing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with proxied(refusing, wrap=lambda app: make_hook(app, tmp_path, monkeypatch)) as port:
        status, told = error(exchange(port, request("POST", CHAT, "authorization: Bearer sk-secret", body=b"{}")))
    assert (status, told["code"]) == (502, "upstream_unreachable")
    (record,) = records(tmp_path)
    assert record["error"]["code"] == "upstream_unreachable"
    assert refusing in caplog.text
    assert "sk-secret" not in caplog.text


def test_upstreams_are_asked_in_turn_and_one_that_refuses_is_left_out(refusing: str) -> None:
    with (
        upstream(always(OK)) as one,
        upstream(always(OK)) as two,
        proxied(one.address, refusing, two.address) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        for number in range(9):
            assert client.post("/x", content=b"%d" % number).content == b"ok"
        assert sorted(one.bodies + two.bodies) == [b"%d" % number for number in range(9)]
        assert min(len(one.bodies), len(two.bodies)) >= 3


def test_a_request_is_never_sent_twice() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.shutdown(socket.SHUT_RDWR)

    with upstream(answer) as one, upstream(answer) as two, proxied(one.address, two.address) as port:
        assert error(exchange(port, request("POST", "/x", body=b"once")))[0] == 502
        assert one.bodies + two.bodies == [b"once"]


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (request("GET", "/v1/realtime", "upgrade: websocket", "sec-websocket-key: x"), 501, "websocket_not_forwarded"),
        (request("GET", "http://elsewhere/x"), 400, "bad_target"),
        (request("CONNECT", "elsewhere:443"), 405, "method_not_forwarded"),
    ],
)
def test_what_is_not_forwarded_is_refused_by_name(raw: bytes, status: int, code: str) -> None:
    with upstream(always(OK)) as up, proxied(up.address) as port:
        found, told = error(exchange(port, raw))
        assert (found, told["code"]) == (status, code)
        assert not up.connections


def test_a_proxy_that_is_its_own_upstream_says_so_instead_of_asking_for_ever() -> None:
    app = Forwarder(["http://127.0.0.1:1"])
    with serving(app, default_headers=False) as port:
        app._upstreams = Upstreams([f"http://127.0.0.1:{port}"])
        found, told = error(exchange(port, request("POST", "/x", body=b"{}")))
    assert (found, told["code"]) == (508, "loop_detected")


def test_the_control_routes_are_the_proxys_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap = lambda app: make_hook(app, tmp_path, monkeypatch, API_KEY="k")  # noqa: E731
    with upstream(always(OK)) as up, proxied(up.address, wrap=wrap) as port:
        assert b'"json_output_hook_enabled":true' in exchange(port, request("GET", "/health/json-schema"))
        assert exchange(port, request("GET", "/dspark/v1/offsets", "authorization: Bearer k")).startswith(
            b"HTTP/1.1 200"
        )
        assert exchange(port, request("GET", "/dspark/v1/offsets")).startswith(b"HTTP/1.1 401")
        assert not up.connections


def test_an_upstream_that_answers_before_it_has_the_request_is_heard() -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        raise AssertionError("the body is never read")

    with upstream(answer) as up, proxied(up.address) as port:
        up._serve = _early  # type: ignore[method-assign]
        answer_bytes = exchange(port, request("POST", "/x", body=b"x" * 3_000_000))
        assert answer_bytes.startswith(b"HTTP/1.1 413 ")


def _early(connection: socket.socket) -> None:
    with connection:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.2)


def test_plain_answers_leave_plain_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    with (
        serving(ReplayApp(answer_messages([body])), default_headers=False) as server,
        proxied(
            f"http://127.0.0.1:{server}",
            wrap=lambda app: make_hook(app, tmp_path, monkeypatch, DURABILITY="write"),
        ) as port,
    ):
        assert body in exchange(port, request("POST", CHAT, body=b"{}"))
        (record,) = records(tmp_path)
    assert record["_dspark"]["completed"] is True
