"""The control routes: keys, status codes, completeness (DESIGN §2)."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
from spool_support import open_files
from unit.capture.driving import (
    Client,
    ReplayApp,
    answer_messages,
    ask,
    closing,
    get,
    lines,
    make_hook,
    scope_for,
    serving,
)

import dspark_json
from dspark_json.errors import InvalidOptionError
from dspark_json.source.settings import reader_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dspark_json.capture.hook import JsonOutputHook

KEY = "the-hook's-key"
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
PROTECTED = [
    "/dspark/v1/offsets",
    "/dspark/v1/spools/{id}/lanes/0000/records",
    "/dspark/v1/spools/{id}/lanes/0000/index",
]
OPEN = ["/health/json-schema", "/dspark/metrics"]


async def reach_nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"{scope['path']} reached the application")


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonOutputHook]:
    """A hook with a key and five records."""
    with closing(
        make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch, DURABILITY="write", API_KEY=KEY)
    ) as made:

        async def fill() -> None:
            for _ in range(5):
                await ask(made, Client())

        asyncio.run(fill())
        made.app = reach_nobody
        yield made


def spool_id(folder: Path) -> str:
    found: str = json.loads((folder / "spool.json").read_text())["spool_id"]
    return found


def fetch(hook: JsonOutputHook, path: str, **options: Any) -> Client:
    options.setdefault("key", KEY)
    if options["key"] is not None:
        options["headers"] = [(b"authorization", f"Bearer {options['key']}".encode("latin-1"))]
    del options["key"]
    query = options.pop("query", "").encode()
    return asyncio.run(ask(hook, Client(), scope_for(path, method="GET", query=query, **options)))


def status(client: Client) -> int:
    found: int = client.sent[0]["status"]
    return found


def headers(client: Client) -> dict[bytes, bytes]:
    return dict(client.sent[0]["headers"])


def error(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.body)["error"]
    return found


@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer wrong",
        b"Basic the",
        KEY.encode(),
        b"Bearer \xff",
        b"bearer x",
        b"Basic " + KEY.encode(),
        b"Bearer " + KEY.encode() + b"\xa0",
        b"Bearer \x85" + KEY.encode(),
    ],
)
def test_records_need_the_key(hook: JsonOutputHook, tmp_path: Path, path: str, authorization: bytes | None) -> None:
    given = [] if authorization is None else [(b"authorization", authorization)]
    scope = scope_for(path.format(id=spool_id(tmp_path)), method="GET", headers=given, query=b"from=0&to=1")
    client = asyncio.run(ask(hook, Client(), scope))
    assert status(client) == 401
    assert error(client)["code"] == "DSPARK_JSON_ENDPOINT_KEY"
    assert headers(client)[b"www-authenticate"] == b"Bearer"
    assert KEY.encode() not in client.body


@pytest.mark.parametrize("authorization", ["Bearer {}", "bearer {}", "BEARER  {}", "Bearer \t{} \t"])
def test_the_key_is_taken_with_blanks_around_it(hook: JsonOutputHook, authorization: str) -> None:
    given = [(b"authorization", authorization.format(KEY).encode())]
    client = asyncio.run(ask(hook, Client(), scope_for("/dspark/v1/offsets", method="GET", headers=given)))
    assert status(client) == 200


@pytest.mark.parametrize("key", ["two words", "clé", "à", "tab\tinside", "\x7f", "\udcff", "line\nline", "\u200b"])
def test_a_key_that_no_reader_could_give_keeps_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    with pytest.raises(InvalidOptionError, match=r"DSPARK_API_KEY is not a key: .* ASCII") as caught:
        make_hook(reach_nobody, tmp_path, monkeypatch, API_KEY=key)
    assert key not in str(caught.value)
    with pytest.raises(InvalidOptionError, match="DSPARK_API_KEY is not a key"):
        reader_settings({"path": "/spool"}, {"DSPARK_API_KEY": key})


@pytest.mark.parametrize("key", ["x", "!~", "  around\n", "=+/:;,."])
def test_hook_and_reader_have_one_rule_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    given = reader_settings({"path": "/spool"}, {"DSPARK_API_KEY": key}).key
    with closing(
        make_hook(ReplayApp(answer_messages([PLAIN])), tmp_path, monkeypatch, DURABILITY="write", API_KEY=key)
    ) as hook:
        asyncio.run(ask(hook, Client()))
        assert status(fetch(hook, "/dspark/v1/offsets", key=given)) == 200


@pytest.mark.parametrize("path", PROTECTED)
def test_without_a_key_set_no_records_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    with closing(make_hook(reach_nobody, tmp_path, monkeypatch)) as hook:
        for key in (None, "", "anything"):
            client = fetch(hook, path.format(id="x"), key=key, query="from=0&to=1")
            assert status(client) == 403
            assert error(client)["code"] == "DSPARK_JSON_ENDPOINT_KEY"
        for open_path in OPEN:
            assert status(fetch(hook, open_path, key=None)) == 200
            assert status(fetch(hook, open_path, key="anything")) == 200


def test_the_key_is_not_in_anything_that_is_printed(hook: JsonOutputHook) -> None:
    assert KEY not in repr(hook._settings)
    assert KEY not in repr(hook._control)


@pytest.mark.parametrize("path", [*PROTECTED, *OPEN, "/dspark/v1/nothing"])
@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_get_is_allowed(hook: JsonOutputHook, path: str, method: str) -> None:
    client = asyncio.run(get(hook, path.format(id="x"), key="x", method=method))
    assert status(client) == 405
    assert headers(client)[b"allow"] == b"GET"


def test_health_says_little_without_the_key_and_more_with_it(hook: JsonOutputHook, tmp_path: Path) -> None:
    short = json.loads(fetch(hook, "/health/json-schema", key=None).body)
    assert short["json_output_hook_enabled"] is True
    assert short["version"] == dspark_json.__version__
    assert short["formats"] == {"spool": 1, "offset": 1}
    assert short["spool_id"] == spool_id(tmp_path)
    assert {"name": "created", "type": "timestamp[us, tz=UTC]"} in short["envelope"]
    assert "spool" not in short
    assert status(fetch(hook, "/health/json-schema", key="wrong")) == 401
    whole = json.loads(fetch(hook, "/health/json-schema").body)
    assert whole == {**short, "spool": str(tmp_path), "schemas": []}


def test_offsets_tell_what_each_lane_has(hook: JsonOutputHook, tmp_path: Path) -> None:
    client = fetch(hook, "/dspark/v1/offsets")
    assert json.loads(client.body) == {
        "v": 1,
        "spool_id": spool_id(tmp_path),
        "lanes": {"0000": {"first": 0, "next": 5, "bytes": sum(map(len, lines(tmp_path)))}},
    }
    assert headers(client)[b"content-length"] == b"%d" % len(client.body)


def lane_route(folder: Path, kind: str, lane: str = "0000") -> str:
    return f"/dspark/v1/spools/{spool_id(folder)}/lanes/{lane}/{kind}"


@pytest.mark.parametrize(
    ("query", "first", "following"),
    [("from=0&to=5", 0, 5), ("from=1&to=3", 1, 3), ("from=4&to=9", 4, 5), ("from=0&to=5&max_bytes=1", 0, 1)],
)
def test_records_come_whole_with_the_number_after_them(
    hook: JsonOutputHook, tmp_path: Path, query: str, first: int, following: int
) -> None:
    client = fetch(hook, lane_route(tmp_path, "records"), query=query)
    assert status(client) == 200
    assert client.body == b"".join(lines(tmp_path)[first:following])
    assert headers(client) == {
        b"content-type": b"application/x-ndjson",
        b"x-dspark-next": b"%d" % following,
        b"content-length": b"%d" % len(client.body),
    }


def test_the_index_comes_with_ends_times_and_checksums(hook: JsonOutputHook, tmp_path: Path) -> None:
    client = fetch(hook, lane_route(tmp_path, "index"), query="from=2&to=9")
    assert headers(client)[b"x-dspark-next"] == b"5"
    end = 0
    entries = list(struct.iter_unpack("<QQII", client.body))
    for line, (found_end, appended_at, crc, zero) in zip(lines(tmp_path)[2:], entries, strict=True):
        end += len(line)
        assert (found_end, crc, zero) == (end, zlib.crc32(line), 0)
        assert appended_at > 1_600_000_000_000_000


@pytest.mark.parametrize("kind", ["records", "index"])
@pytest.mark.parametrize(
    "query",
    [
        "", "from=0", "to=1", "from=1&to=1", "from=2&to=1", "from=-1&to=1", "from=a&to=1", "from=0&to=1e3",
        "from=&to=1", "from=0&from=0&to=1", "from=0&to=1&x=1", "from=0&to=1&max_bytes=0",
        "from=0&to=99999999999999999999",
        "from=%D9%A1&to=5", "from=0&to=1&max_bytes=-5",
    ],
)  # fmt: skip
def test_a_bad_query_is_refused(hook: JsonOutputHook, tmp_path: Path, kind: str, query: str) -> None:
    client = fetch(hook, lane_route(tmp_path, kind), query=query)
    assert status(client) == 400
    assert error(client)["code"] == "DSPARK_JSON_INVALID_OPTION"


@pytest.mark.parametrize("kind", ["records", "index"])
def test_ranges_that_are_not_there_have_their_own_status(hook: JsonOutputHook, tmp_path: Path, kind: str) -> None:
    beyond = fetch(hook, lane_route(tmp_path, kind), query="from=5&to=6")
    assert (status(beyond), error(beyond)["next"]) == (416, 5)
    unknown = fetch(hook, lane_route(tmp_path, kind, "0007"), query="from=0&to=1")
    assert (status(unknown), error(unknown)["code"]) == (404, "DSPARK_JSON_LANE_NOT_FOUND")
    other = fetch(hook, f"/dspark/v1/spools/other/lanes/0000/{kind}", query="from=0&to=1")
    assert (status(other), error(other)["spool_id"]) == (412, spool_id(tmp_path))


def test_a_damaged_record_is_never_given_out(hook: JsonOutputHook, tmp_path: Path) -> None:
    (data,) = (tmp_path / "lanes/0000").glob("*.ndjson")
    raw = bytearray(data.read_bytes())
    raw[10] ^= 1
    data.write_bytes(raw)
    client = fetch(hook, lane_route(tmp_path, "records"), query="from=0&to=5")
    assert (status(client), error(client)["code"]) == (500, "DSPARK_JSON_SPOOL_CORRUPT")


@pytest.mark.parametrize(
    "lane", ["..", "../../..", "0000/..", "%2e%2e", "....", "0000\x00", "00000", "000", "٠٠٠٠", "0000/../0000", "lock"]
)
@pytest.mark.parametrize("kind", ["records", "index"])
def test_no_path_leads_out_of_the_spool(hook: JsonOutputHook, tmp_path: Path, lane: str, kind: str) -> None:
    client = fetch(hook, lane_route(tmp_path, kind, lane), query="from=0&to=1")
    assert status(client) == 404
    for path in (f"/dspark/v1/../../{lane}", f"/dspark/v1/spools/{lane}/lanes/0000/{kind}", "/dspark/v1/"):
        assert status(fetch(hook, path, query="from=0&to=1")) in (404, 412)


@pytest.mark.parametrize(
    ("path", "wanted"), [("/dspark/v1/\ud800", 404), ("/dspark/v1/spools/x\udfff/lanes/0000/records", 412)]
)
def test_a_path_that_is_no_unicode_text_is_answered_too(hook: JsonOutputHook, path: str, wanted: int) -> None:
    scope = scope_for("", method="GET", headers=[(b"authorization", f"Bearer {KEY}".encode())], query=b"from=0&to=1")
    client = asyncio.run(ask(hook, Client(), {**scope, "path": path}))
    assert status(client) == wanted
    assert "?" in error(client)["message"]


def test_a_spool_json_that_is_nested_too_deeply_is_a_broken_one(hook: JsonOutputHook, tmp_path: Path) -> None:
    (tmp_path / "spool.json").write_text("[" * 200_000)
    client = fetch(hook, "/dspark/v1/offsets")
    assert (status(client), error(client)["code"]) == (503, "DSPARK_JSON_SPOOL_FORMAT")
    for path in OPEN:
        assert status(fetch(hook, path, key=None)) == 200


def test_other_paths_are_the_applications(hook: JsonOutputHook) -> None:
    for path in ("/health", "/health/json-schema/", "/dspark", "/dspark/metrics/x", "/dspark/v1", "/dspark/v2/offsets"):
        with pytest.raises(AssertionError, match="reached the application"):
            fetch(hook, path)


def test_metrics_are_counts_for_everybody(hook: JsonOutputHook, tmp_path: Path) -> None:
    client = fetch(hook, "/dspark/metrics", key=None)
    text = client.body.decode()
    assert headers(client)[b"content-type"].startswith(b"text/plain; version=0.0.4")
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found["dspark_records_total"] == "5"
    assert found["dspark_bytes_total"] == str(sum(map(len, lines(tmp_path))))
    assert found["dspark_dropped_records_total"] == "0"
    assert found['dspark_lane_next{lane="0000"}'] == "5"
    assert found['dspark_lane_first{lane="0000"}'] == "0"
    assert str(tmp_path) not in text
    assert spool_id(tmp_path) not in text
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_metrics_are_the_sum_over_the_processes_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ReplayApp(answer_messages([PLAIN]))
    hooks = [make_hook(app, tmp_path, monkeypatch, DURABILITY="write") for _ in range(3)]

    async def run() -> None:
        for number, hook in enumerate(hooks):
            for _ in range(number + 1):
                await ask(hook, Client())

    asyncio.run(run())
    with closing(hooks[0]), closing(hooks[1]), closing(hooks[2]):
        hooks[0]._appender.close()
        hooks[2]._appender.close()
        text = fetch(hooks[1], "/dspark/metrics", key=None).body.decode()
        assert "dspark_records_total 6\n" in text
        assert 'dspark_lane_next{lane="0002"} 3\n' in text


def test_over_a_socket_a_large_read_comes_in_pieces_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"pad":"' + b"x" * 700_000 + b'"}'
    app = ReplayApp(answer_messages([body]))
    hook = make_hook(app, tmp_path, monkeypatch, DURABILITY="write", API_KEY="k")
    with serving(hook) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for _ in range(3):
            assert client.post("/v1/chat/completions", json={}).content == body
        bearer = {"authorization": "Bearer k"}
        path = lane_route(tmp_path, "records")
        answer = client.get(path, params={"from": 0, "to": 3}, headers=bearer)
        assert answer.content == b"".join(lines(tmp_path))
        assert answer.headers["x-dspark-next"] == "3"
        small = client.get(path, params={"from": 0, "to": 3, "max_bytes": 1_000_000}, headers=bearer)
        assert (small.headers["x-dspark-next"], small.content) == ("1", lines(tmp_path)[0])
        escaped = f"/dspark/v1/spools/{spool_id(tmp_path)}/lanes/{quote('../../spool.json', safe='')}/records"
        assert client.get(escaped, params={"from": 0, "to": 1}, headers=bearer).status_code == 404
        assert client.head("/dspark/metrics").status_code == 405


def test_records_are_sent_in_pieces_of_256_kib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = ReplayApp(answer_messages([b'{"pad":"' + b"x" * 700_000 + b'"}']))
    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY="write", API_KEY="k")) as hook:
        asyncio.run(ask(hook, Client()))
        client = fetch(hook, lane_route(tmp_path, "records"), key="k", query="from=0&to=1")
    sizes = [len(message["body"]) for message in client.sent[1:]]
    assert sizes[:2] == [256 << 10] * 2
    assert len(sizes) == 3
    assert all(type(message["body"]) is bytes for message in client.sent[1:])
    assert [message["more_body"] for message in client.sent[1:]] == [True, True, False]


def large_spool(folder: Path, monkeypatch: pytest.MonkeyPatch, size: int = 700_000) -> JsonOutputHook:
    """A hook with three records of this size in one segment."""
    app = ReplayApp(answer_messages([b'{"pad":"' + b"x" * size + b'"}']))
    hook = make_hook(app, folder, monkeypatch, DURABILITY="write", API_KEY="k")

    async def fill() -> None:
        for _ in range(3):
            await ask(hook, Client())

    asyncio.run(fill())
    return hook


def test_a_segment_that_is_truncated_while_it_is_sent_cuts_the_answer_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(large_spool(tmp_path, monkeypatch)) as hook:
        (data,) = (tmp_path / "lanes/0000").glob("*.ndjson")

        async def truncate(message: Any) -> None:
            if message["type"] == "http.response.body":
                os.truncate(data, 300_000)

        scope = scope_for(
            lane_route(tmp_path, "records"),
            method="GET",
            headers=[(b"authorization", b"Bearer k")],
            query=b"from=0&to=3",
        )
        client = asyncio.run(ask(hook, Client(on_send=truncate), scope))
        assert int(headers(client)[b"content-length"]) > 2_100_000
        assert len(client.body) == 256 << 10
        assert client.sent[-1]["more_body"] is True
        assert "not sent whole" in caplog.text
        again = fetch(hook, lane_route(tmp_path, "records"), key="k", query="from=0&to=3")
        assert status(again) in (416, 500)


def test_a_client_of_an_answer_that_is_cut_sees_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = large_spool(tmp_path, monkeypatch, 12_000_000)  # more than all buffers on the way take
    (data,) = (tmp_path / "lanes/0000").glob("*.ndjson")
    with serving(hook) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        sent = client.build_request(
            "GET",
            lane_route(tmp_path, "records"),
            params={"from": 0, "to": 3},
            headers={"authorization": "Bearer k"},
        )
        answer = client.send(sent, stream=True)
        assert answer.status_code == 200
        os.truncate(data, 0)
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        answer.close()
        assert client.get("/health/json-schema").status_code == 200


def test_records_that_retention_deletes_while_they_are_sent_come_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(large_spool(tmp_path, monkeypatch)) as hook:
        expected = b"".join(lines(tmp_path))

        async def delete(message: Any) -> None:
            for path in (tmp_path / "lanes/0000").glob("0*.*"):
                path.unlink()

        scope = scope_for(
            lane_route(tmp_path, "records"),
            method="GET",
            headers=[(b"authorization", b"Bearer k")],
            query=b"from=0&to=3",
        )
        before = open_files()
        assert asyncio.run(ask(hook, Client(on_send=delete), scope)).body == expected
        assert open_files() <= before  # the writer may have noticed meanwhile that its files are gone
