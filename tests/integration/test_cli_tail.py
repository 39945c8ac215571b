"""``dspark-json tail`` against a real server and its spool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest
from serving import elsewhere, free_port, hook, serving

from dspark_json.replay import RunningServer
from dspark_json.replay.recording import packaged_request

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "tail"]
KEY = "the-hooks-key"
ASKED = ("chat_order", "stream_order_usage", "chat_tools_required", "chat_risk")


@dataclass(frozen=True)
class Served:
    """A server that has answered, its spool, and what the clients got."""

    address: str
    spool: Path
    key_file: Path
    ids: tuple[str, ...]


def ask(address: str, name: str) -> str:
    answer = httpx.post(f"{address}/v1/chat/completions", json=packaged_request(name), timeout=30)
    text = answer.text.removeprefix("data: ").split("\n\n")[0]
    return str(json.loads(text)["id"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tail")
    key_file = folder / "key"
    key_file.write_text(KEY + "\n")
    settings = {"DSPARK_SPOOL": str(folder / "spool"), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": KEY}
    with RunningServer(arguments=("--speed", "100"), settings=settings, log=folder / "server.log") as running:
        ids = tuple(ask(running.address, name) for name in ASKED)
        bad = httpx.post(f"{running.address}/v1/chat/completions", json={"model": "nope", "messages": []})
        assert bad.status_code == 404
        yield Served(running.address, folder / "spool", key_file, ids)


def tail(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "DSPARK_API_KEY"}
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment)


def test_each_record_is_one_line_for_people(served: Served) -> None:
    done = tail(served.spool)
    assert (done.returncode, done.stderr) == (0, "")
    order, stream, tools, _, bad = done.stdout.splitlines()
    assert " 0000:0 200 tiny stop " in order
    assert "order_id" in stream
    assert "create_order(" in tools or "rate_risk(" in tools
    assert "404" in bad
    assert "error: The model `nope` does not exist." in bad


def test_with_json_each_record_is_the_line_the_spool_has(served: Served) -> None:
    done = tail(served.spool, "--json")
    assert done.stdout.encode() == b"".join(path.read_bytes() for path in sorted(served.spool.rglob("*.ndjson")))
    assert tuple(json.loads(line)["id"] for line in done.stdout.splitlines()[:4]) == served.ids


def test_a_servers_records_are_the_same_by_its_address(served: Served) -> None:
    assert tail(served.address, "--key-file", served.key_file, "--json").stdout == tail(served.spool, "--json").stdout


class Elsewhere(BaseHTTPRequestHandler):
    """A machine between: it hands on the hook's answers, but the spool's folder means nothing to who asks here."""

    address = ""

    def do_GET(self) -> None:
        answer = httpx.get(self.address + self.path, headers={"authorization": self.headers["authorization"]})
        body = answer.content
        if self.path == "/health/json-schema":
            body = json.dumps({**answer.json(), "spool": "/another/machines/folder"}).encode()
        self.send_response(answer.status_code)
        for name in ("content-type", "x-dspark-next"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_where_the_folder_can_not_be_opened_they_come_over_http(served: Served) -> None:
    Elsewhere.address = served.address
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as between:
        thread = threading.Thread(target=between.serve_forever)
        thread.start()
        try:
            done = tail(f"http://127.0.0.1:{between.server_port}", "--key-file", served.key_file, "--json")
        finally:
            between.shutdown()
            thread.join()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == tail(served.spool, "--json").stdout


def test_a_wrong_or_missing_key_is_a_named_error(served: Served, tmp_path: Path) -> None:
    wrong = tmp_path / "key"
    wrong.write_text("another-key\n")
    for arguments in ((served.address,), (served.address, "--key-file", wrong)):
        done = tail(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("dspark-json: DSPARK_JSON_ENDPOINT_KEY: ")
        assert "--key-file" in done.stderr
        assert "another-key" not in done.stderr


@pytest.mark.parametrize(("start", "count"), [("earliest", 5), ("latest", 0), ("3", 2), ("99", 0)])
def test_from_says_where_to_begin(served: Served, start: str, count: int) -> None:
    assert len(tail(served.spool, "--from", start).stdout.splitlines()) == count


@pytest.mark.parametrize("start", [5, 1000])
def test_where_a_lane_ends_is_said_to_who_begins_beyond_it(served: Served, start: int) -> None:
    done = tail(served.spool, "--from", start)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"there is no record {start} yet: lane 0000 holds records 0 to 4\n" in done.stderr


def test_that_a_lane_is_empty_is_said_to_who_begins_at_a_number(tmp_path: Path) -> None:
    with serving(hook(tmp_path)):
        done = tail(tmp_path, "--from", 3)
    assert "there is no record 3 yet: lane 0000 holds no record; its next one will be 0\n" in done.stderr


def test_one_lane_can_be_named_and_an_unknown_one_is_an_error(served: Served) -> None:
    assert tail(served.spool, "--lane", "0").stdout == tail(served.spool).stdout
    unknown = tail(served.spool, "--lane", "7")
    assert unknown.returncode == 2
    assert 'DSPARK_JSON_LANE_NOT_FOUND: the spool has no lane "0007". Its lanes: 0000.' in unknown.stderr
    assert "DSPARK_JSON_LANE_NOT_FOUND" in tail(served.spool, "--lane", "../..").stderr


def test_a_reader_that_stops_reading_ends_it_quietly(served: Served) -> None:
    with subprocess.Popen(
        [*COMMAND, str(served.spool), "--json", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"_dspark":')
        process.stdout.close()
        ask(served.address, "chat_risk")
        assert process.wait(20) == 141
        assert process.stderr.read() == b""


def test_followed_records_come_as_they_are_written_until_ctrl_c(tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool"), "DSPARK_DURABILITY": "write"}
    with RunningServer(arguments=("--speed", "100"), settings=settings, log=tmp_path / "server.log") as running:
        ask(running.address, "chat_risk")
        with subprocess.Popen(
            [*COMMAND, str(tmp_path / "spool"), "--json", "--follow", "--from", "earliest"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            for _ in range(3):
                answer_id = ask(running.address, "chat_order")
                assert json.loads(process.stdout.readline())["id"] == answer_id
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert process.stderr.read() == ""


@pytest.mark.parametrize("over_http", [False, True])
def test_a_followed_server_that_goes_and_comes_back_is_told_once_each(tmp_path: Path, *, over_http: bool) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(KEY + "\n")
    port = free_port()

    def started() -> contextlib.AbstractContextManager[str]:
        app = hook(tmp_path / "spool", KEY)
        return serving(elsewhere(app) if over_http else app, port)

    def failing_request(address: str) -> None:
        assert httpx.post(f"{address}/v1/chat/completions", json={"model": "tiny"}).status_code == 404

    with started() as address:
        failing_request(address)
        process = subprocess.Popen(
            [*COMMAND, address, "--follow", "--key-file", key_file],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert " 0000:0 404 " in process.stdout.readline()
    try:
        assert process.stderr.readline().endswith("; waiting for it\n")
        with started() as address:
            assert process.stderr.readline() == "dspark-json: the server answers again\n"
            failing_request(address)
            assert " 0000:1 404 " in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


def test_without_a_key_it_says_how_a_folder_elsewhere_is_read(served: Served) -> None:
    said = tail(served.address).stderr
    assert "/dev/shm/dspark_vllm_" in said
    assert "give that folder as the argument" in said
    assert "start the server with DSPARK_API_KEY set" in said
    assert "--key-file" in said
    assert "vllm_api_key" not in said


def test_a_server_without_a_key_is_said_to_need_one(served: Served, tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool")}
    with RunningServer(settings=settings, log=tmp_path / "server.log") as running:
        said = tail(running.address, "--key-file", served.key_file).stderr
    assert "the server has no key. Start the server with DSPARK_API_KEY set" in said


def test_records_that_are_no_longer_kept_are_told_and_passed_over(served: Served, tmp_path: Path) -> None:
    # A spool whose first segment retention has deleted: what is left begins at 3.
    from dspark_json.spool.record import Record
    from dspark_json.spool.writer import LaneWriter, WriterSettings

    spool = tmp_path / "spool"
    writer = LaneWriter.open(spool, WriterSettings(segment_bytes=400, retention_bytes=1 << 30, retention_us=None))
    for number in range(6):
        writer.append([Record(b'"status":200', b'"id":"%d","pad":"%s"' % (number, b"x" * 150))])
    writer.close()
    segments = sorted(spool.rglob("*.index"))
    assert len(segments) > 1
    segments[0].with_suffix(".ndjson").unlink()
    segments[0].unlink()
    first = int(segments[1].stem)
    done = tail(spool, "--from", "0", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [str(n) for n in range(first, 6)]
    assert f"records 0 to {first - 1} of lane 0000 are no longer kept" in done.stderr


def test_a_spool_is_followed_over_a_restart_of_its_server(tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool"), "DSPARK_DURABILITY": "write"}
    command = [*COMMAND, str(tmp_path / "spool"), "--follow", "--json"]

    def started() -> RunningServer:
        return RunningServer(arguments=("--speed", "100"), settings=settings, log=tmp_path / "server.log")

    with started() as running:
        first = ask(running.address, "chat_risk")
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["id"] == first
        with started() as running:
            second = ask(running.address, "chat_risk")
            assert json.loads(process.stdout.readline())["id"] == second
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
