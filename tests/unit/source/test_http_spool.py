"""A spool read over HTTP from the real hook, and from servers that are not the hook or fail in the middle."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from serving import App, Message, Receive, Send, free_port, hook, model, serving
from unit.source.spools import expire, write

from dspark_json.errors import (
    BeyondEndError,
    EndpointAnswerError,
    EndpointKeyError,
    EndpointUnreachableError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolReplacedError,
)
from dspark_json.spool.http import HookClient, HttpSpool
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "s3cret-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def answering(status: int, body: bytes, *headers: tuple[bytes, bytes], length: int | None = None) -> App:
    """A server that gives one answer to everything; a ``length`` above the body's cuts the answer."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan here")
        size = (b"content-length", b"%d" % (len(body) if length is None else length))
        await send({"type": "http.response.start", "status": status, "headers": [*headers, size]})
        await send({"type": "http.response.body", "body": body, "more_body": length is not None})
        if length is not None:
            raise ConnectionError

    return app


def cutting(app: App, times: int, path_end: str = "/records") -> App:
    """The same server, whose first ``times`` answers to a route break off in the middle."""
    left = times

    async def asked(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal left
        if scope["type"] != "http" or not scope["path"].endswith(path_end) or left == 0:
            await app(scope, receive, send)
            return
        left -= 1

        async def cut(message: Message) -> None:
            if message["type"] == "http.response.body":
                await send({**message, "body": message["body"][:-3], "more_body": True})
                raise ConnectionError
            await send(message)

        await app(scope, receive, cut)

    return asked


@pytest.fixture
def spool_id(folder: Path) -> str:
    return write(folder, 40, 0)


@pytest.fixture
def address(folder: Path, spool_id: str) -> Iterator[str]:
    with serving(hook(folder, KEY)) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[HookClient]:
    with HookClient(address, KEY, 5.0) as found:
        yield found


def test_everything_is_as_through_the_folder(folder: Path, client: HookClient, spool_id: str) -> None:
    over_http, through_folder = HttpSpool(client, spool_id), SpoolReader(folder)
    assert over_http.offsets() == through_folder.offsets()
    for start, stop in ((0, 40), (7, 9), (39, 99)):
        theirs, ours = through_folder.index("0000", start, stop), over_http.index("0000", start, stop)
        assert list(ours.ends) == list(theirs.ends)
        assert list(ours.crcs) == list(theirs.crcs)
        assert list(ours.appended_at) == list(theirs.appended_at)
    at = 0
    while at < 40:
        theirs_read, ours_read = through_folder.read("0000", at, 40), over_http.read("0000", at, 40)
        assert bytes(ours_read.buffer) == bytes(theirs_read.buffer)
        assert list(ours_read.ends) == list(theirs_read.ends)
        assert list(ours_read.appended_at) == list(theirs_read.appended_at)
        at = ours_read.next_seq
    moment = through_folder.index("0000", 20, 21).appended_at[0]
    assert over_http.seek_time("0000", moment) == through_folder.seek_time("0000", moment)
    assert over_http.seek_time("0000", 1 << 60) == 40


def test_max_bytes_bounds_a_read_and_one_record_always_comes(client: HookClient, spool_id: str) -> None:
    spool = HttpSpool(client, spool_id)
    assert len(spool.read("0000", 0, 40, max_bytes=1)) == 1
    assert len(spool.read("0000", 3, 40, max_bytes=149)) == 2


def test_what_is_not_there_has_the_folder_s_errors(folder: Path, client: HookClient, spool_id: str) -> None:
    spool = HttpSpool(client, spool_id)
    with pytest.raises(LaneNotFoundError, match="0007"):
        spool.read("0007", 0, 1)
    with pytest.raises(BeyondEndError) as beyond:
        spool.read("0000", 40, 41)
    assert beyond.value.next == 40
    first = expire(folder)
    with pytest.raises(RecordsExpiredError) as expired:
        spool.read("0000", 0, 40)
    assert expired.value.first == first
    other = HttpSpool(client, "another-id")
    with pytest.raises(SpoolReplacedError):
        other.read("0000", 20, 21)
    with pytest.raises(SpoolReplacedError):
        other.offsets()


def test_a_damaged_record_is_named(folder: Path, client: HookClient, spool_id: str) -> None:
    data = min((folder / "lanes" / "0000").glob("*.ndjson"))
    raw = bytearray(data.read_bytes())
    raw[60] ^= 1
    data.write_bytes(raw)
    with pytest.raises(SpoolCorruptError, match="lane 0000"):
        HttpSpool(client, spool_id).read("0000", 0, 40)


def test_bytes_changed_on_the_way_do_not_pass(folder: Path, spool_id: str) -> None:
    app = hook(folder, KEY)

    async def changing(scope: Message, receive: Receive, send: Send) -> None:
        async def change(message: Message) -> None:
            if message["type"] == "http.response.body" and scope["path"].endswith("/records"):
                message = {**message, "body": message["body"].replace(b"0000:1", b"0000:9", 1)}
            await send(message)

        await app(scope, receive, change if scope["type"] == "http" else send)

    with (
        serving(changing) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(SpoolCorruptError, match="record 1 "),
    ):
        HttpSpool(client, spool_id).read("0000", 0, 40)


@pytest.mark.parametrize("route", ["/records", "/index"])
def test_a_cut_answer_is_asked_for_again(folder: Path, spool_id: str, route: str) -> None:
    with serving(cutting(hook(folder, KEY), 2, route)) as address, HookClient(address, KEY, 5.0) as client:
        assert HttpSpool(client, spool_id).read("0000", 0, 40).first_seq == 0


def test_answers_that_stay_cut_are_a_named_error(folder: Path, spool_id: str) -> None:
    with (
        serving(cutting(hook(folder, KEY), 99)) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(EndpointUnreachableError, match="asked 3 times"),
    ):
        HttpSpool(client, spool_id).read("0000", 0, 40)


def test_an_answer_without_its_completeness_headers_does_not_count(folder: Path) -> None:
    with (
        serving(answering(200, b"x\n", (b"content-type", b"application/x-ndjson"))) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(EndpointAnswerError, match="x-dspark-next"),
    ):
        HttpSpool(client, "id").read("0000", 0, 40)


HTML = answering(200, b"<html>hello</html>", (b"content-type", b"text/html"))


@pytest.mark.parametrize(
    ("app", "named"),
    [
        (HTML, "text/html"),
        (answering(404, b'{"detail":"Not Found"}', (b"content-type", b"application/json")), "status 404"),
        (answering(200, b'{"status":"ok"}', (b"content-type", b"application/json")), "not the hook"),
        (answering(302, b"", (b"location", b"http://elsewhere/")), "redirect"),
        (answering(500, b"oops"), "status 500"),
        (answering(403, b"forbidden", (b"content-type", b"text/plain")), "status 403"),
    ],
)
def test_a_server_that_is_not_the_hook_is_named_with_the_remedy(app: App, named: str) -> None:
    with serving(app) as address, HookClient(address, KEY, 5.0) as client:
        with pytest.raises(EndpointAnswerError, match=named) as caught:
            client.identity()
        assert address in str(caught.value)
        assert "--middleware dspark_json.JsonOutputHook" in str(caught.value)
        assert KEY not in str(caught.value)


EVIL = "\x1b]0;pwned\x07"
JSON = (b"content-type", b"application/json")


def offsets_answer(lane: str = "0000", **extent: object) -> bytes:
    return json.dumps({"spool_id": "s", "lanes": {lane: {"first": 0, "next": 3, "bytes": 9, **extent}}}).encode()


def health_answer(**members: object) -> bytes:
    return json.dumps({"json_output_hook_enabled": True, "spool_id": "s", "schemas": [], **members}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"spool_id":"s","lanes":[]}',
        b'{"spool_id":"s","lanes":{"0000":7}}',
        b'{"spool_id":"s","lanes":{"0000":{"first":0,"next":1e999,"bytes":1}}}',
        b'{"spool_id":"s","lanes":{"0000":{"first":0,"next":' + b"9" * 400 + b',"bytes":1}}}',
        b'{"spool_id":"s","lanes":{"0000":{"first":0,"next":' + b"9" * 5000 + b',"bytes":1}}}',
        b'{"spool_id":"\\ud800","lanes":{}}',
        b'{"spool_id":"../x","lanes":{}}',
        b'{"spool_id":7,"lanes":{}}',
        offsets_answer(first=4),
        offsets_answer(first=-1),
        offsets_answer(next="3"),
        offsets_answer(next=3.0),
        offsets_answer(first=False),
        offsets_answer(bytes=None),
        offsets_answer("../../x"),
        offsets_answer("0000" + EVIL),
        offsets_answer("٠٠٠٠"),
    ],
)
def test_offsets_that_are_not_the_hooks_are_a_named_error(body: bytes) -> None:
    with serving(answering(200, body, JSON)) as address, HookClient(address, KEY, 5.0) as client:
        with pytest.raises(EndpointAnswerError) as caught:
            client.offsets()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        health_answer(spool="/a\0b"),
        health_answer(spool="/" + "a" * 5000),
        health_answer(spool="relative"),
        health_answer(spool=7),
        health_answer(spool="/\ud800"),
        health_answer(spool_id="\ud800"),
        health_answer(spool_id=EVIL),
        health_answer(spool_id=""),
    ],
)
def test_an_identity_that_is_not_the_hooks_is_a_named_error(body: bytes) -> None:
    with serving(answering(200, body, JSON)) as address, HookClient(address, KEY, 5.0) as client:
        with pytest.raises(EndpointAnswerError):
            client.identity()
        with pytest.raises(EndpointAnswerError):
            client.schemas()


@pytest.mark.parametrize("schemas", [7, [7], [{}], [{"hash": 7}]])
def test_schemas_that_are_not_the_hooks_are_a_named_error(schemas: object) -> None:
    with (
        serving(answering(200, health_answer(schemas=schemas), JSON)) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(EndpointAnswerError),
    ):
        client.schemas()


@pytest.mark.parametrize(
    ("status", "following", "body"),
    [
        (200, "9" * 5000, b"{}\n"),
        (200, "1" * 19, b"{}\n"),
        (200, "0", b""),
        (200, "-1", b""),
        (410, "", b'{"error":{}}'),
        (410, "", b'{"error":{"first":0}}'),
        (410, "", b'{"error":{"first":true}}'),
        (410, "", b'{"error":{"first":' + b"9" * 400 + b"}}"),
        (416, "", b'{"error":{"next":9}}'),
        (416, "", b'{"error":{"next":-9}}'),
    ],
)
def test_records_answers_that_contradict_the_question_are_a_named_error(
    status: int, following: str, body: bytes
) -> None:
    app = answering(status, body, (b"x-dspark-next", following.encode()))
    with serving(app) as address, HookClient(address, KEY, 5.0) as client, pytest.raises(EndpointAnswerError):
        HttpSpool(client, "id").read("0000", 0, 3)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (answering(200, health_answer(spool_id=None, spool_problem=EVIL * 999), JSON), "has no spool open"),
        (answering(503, json.dumps({"error": {"message": EVIL * 999}}).encode(), JSON), "status 503"),
        (answering(500, json.dumps({"error": {"code": SpoolCorruptError.code, "message": EVIL}}).encode()), "pwned"),
        (answering(500, b"", (b"content-type", b"text/\xc2\x9b31m")), "status 500"),
    ],
)
def test_what_a_server_says_can_not_command_a_terminal_and_is_cut(app: App, said: str) -> None:
    with serving(app) as address, HookClient(address, KEY, 5.0) as client:
        for ask in (client.identity, lambda: HttpSpool(client, "id").read("0000", 0, 3)):
            with pytest.raises((EndpointAnswerError, EndpointUnreachableError, SpoolCorruptError)) as caught:
                ask()
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 4000
        if said != "has no spool open":
            assert said in str(caught.value)


def test_an_address_that_can_not_be_asked_is_a_named_error() -> None:
    for address in ("http://..", "http://xn--", "http://h\x7f"):
        with HookClient(address, KEY, 5.0) as client, pytest.raises(EndpointUnreachableError):
            client.identity()


def test_nobody_listening_is_named() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with HookClient(address, KEY, 5.0) as client, pytest.raises(EndpointUnreachableError, match=address):
        client.identity()


def test_a_gateway_whose_server_is_down_counts_as_unreachable() -> None:
    with (
        serving(answering(502, b"bad gateway")) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(EndpointUnreachableError, match="status 502"),
    ):
        client.identity()


def test_keys_wrong_missing_and_not_configured_are_told_apart(folder: Path, address: str, spool_id: str) -> None:
    with HookClient(address, "wrong-key", 5.0) as client:
        with pytest.raises(EndpointKeyError, match="refuses the key") as caught:
            client.identity()
        assert "wrong-key" not in str(caught.value)
    with HookClient(address, None, 5.0) as client:
        identity = client.identity()
        assert (identity.spool_id, identity.folder) == (spool_id, None)
        with pytest.raises(EndpointKeyError, match="asks for a key"):
            client.offsets()
    with HookClient(address, KEY, 5.0) as client:
        assert client.identity().folder == str(folder)
    with (
        serving(hook(folder)) as open_address,
        HookClient(open_address, KEY, 5.0) as client,
        pytest.raises(EndpointKeyError, match="the server has no key"),
    ):
        client.offsets()


def test_the_key_goes_to_no_other_address(folder: Path) -> None:
    seen: list[bytes] = []

    async def thief(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.append(scope["path"].encode())
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps({}).encode()})

    with (
        serving(thief) as stolen,
        serving(answering(307, b"", (b"location", stolen.encode()))) as address,
        HookClient(address, KEY, 5.0) as client,
        pytest.raises(EndpointAnswerError),
    ):
        client.identity()
    assert seen == []


def test_a_silent_server_is_unreachable_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with HookClient(address, KEY, 0.2) as client, pytest.raises(EndpointUnreachableError, match="does not answer"):
            client.identity()


def test_a_connection_that_the_server_has_closed_meanwhile_is_no_failure() -> None:
    body = health_answer()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65_536).split(b"\r\n")[0])
                    connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        with HookClient(f"http://127.0.0.1:{listener.getsockname()[1]}", KEY, 5.0) as client:
            assert client.identity() == client.identity()
        server.join(10)
    assert asked == [b"GET /health/json-schema HTTP/1.1"] * 2


def test_https_to_a_server_that_speaks_http_is_said_in_plain_words() -> None:
    with (
        serving(model) as address,
        HookClient(address.replace("http:", "https:"), None, 5) as client,
        pytest.raises(EndpointUnreachableError, match="the server speaks http, not https"),
    ):
        client.identity()
