"""The worker as a process: who gets in, what it says, when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typed_spools import answer, write

from dspark_json import __version__
from dspark_json.source.worker_folder import remove_orphans
from dspark_json.source.worker_protocol import MAX_FRAME_BYTES, PROTOCOL, read_frame, write_frame

from .worker_support import Connection, running_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .worker_support import WorkerProcess

ROOT = Path(__file__).resolve().parents[3]


def is_closed(connection: socket.socket) -> bool:
    """Whether the worker has closed a connection, without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:  # it had not read all that was sent
        return True


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path_factory.mktemp("worker") / "log") as process:
        yield process


def test_it_says_once_that_it_is_ready_and_of_which_version(worker: WorkerProcess) -> None:
    assert worker.ready == {"ready": True, "protocol": PROTOCOL, "version": __version__, "pid": worker.process.pid}


def test_the_socket_and_its_folder_are_the_users_alone(worker: WorkerProcess) -> None:
    assert stat.S_IMODE(worker.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(worker.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "first",
    [
        {"op": "hello", "token": "0" * 64, "protocol": PROTOCOL, "version": __version__},
        {"op": "hello", "token": "", "protocol": PROTOCOL, "version": __version__},
        {"op": "hello", "token": None, "protocol": PROTOCOL, "version": __version__},
        {"op": "hello", "token": "ü", "protocol": PROTOCOL, "version": __version__},
        {"op": "hello", "protocol": PROTOCOL, "version": __version__},
        {"op": "describe", "options": {}},
        {},
    ],
)
def test_whoever_lacks_the_token_gets_no_answer(worker: WorkerProcess, first: dict[str, object]) -> None:
    with worker.dial() as connection:
        write_frame(connection, first)
        assert is_closed(connection)


@pytest.mark.parametrize(
    "raw", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 3) + b"[1]", struct.pack(">I", 2) + b"{]"]
)
def test_what_is_no_frame_closes_the_connection(worker: WorkerProcess, raw: bytes) -> None:
    with worker.dial() as connection:
        connection.sendall(raw)
        assert is_closed(connection)
    with worker.connected() as taken:
        taken.raw.sendall(struct.pack(">I", MAX_FRAME_BYTES + 1))
        assert is_closed(taken.raw)


@pytest.mark.parametrize("other", [{"protocol": PROTOCOL + 1}, {"version": "0.0.9"}, {"version": None}])
def test_another_release_on_the_other_side_is_a_named_error(worker: WorkerProcess, other: dict[str, object]) -> None:
    with worker.dial() as connection:
        hello = {"op": "hello", "token": worker.token, "protocol": PROTOCOL, "version": __version__, **other}
        write_frame(connection, hello)
        refused = read_frame(connection)
        assert refused["code"] == "DSPARK_JSON_WORKER_VERSION"
        assert f"dspark-json {__version__}" in refused["text"]
        assert is_closed(connection)


def test_an_op_that_nobody_knows_is_an_internal_error_with_its_traceback(worker: WorkerProcess) -> None:
    with worker.connected() as connection:
        for op in ("dance", "hello", ""):
            refused = connection.request(op)
            assert (refused["code"], refused["kind"]) == ("DSPARK_JSON_INTERNAL", "internal")
            assert "Traceback" in refused["traceback"]
            assert "Traceback" not in refused["text"]
        assert connection.request("describe")["kind"] == "internal"  # and the connection goes on


def test_it_ends_at_once_with_its_input_whatever_it_is_doing(tmp_path: Path) -> None:
    write(tmp_path / "spool", *[answer('{"a":1}') for _ in range(3000)])
    with running_worker(tmp_path / "log") as worker, worker.connected() as connection:
        task, splits = connection.batch({"path": str(tmp_path / "spool")})
        # A reader that takes nothing: the worker stands in the middle of a send.
        write_frame(connection.raw, {"op": "read", "task": task, "split": splits[0], "skip_rows": 0, "attempt": 0})
        assert read_frame(connection.raw)["ok"]
        time.sleep(0.2)
        began = time.monotonic()
        assert worker.end_input() == 0
        assert time.monotonic() - began < 2
        assert not worker.folder.exists()


def test_it_leaves_no_folder_when_all_processes_of_a_job_are_told_to_end(tmp_path: Path) -> None:
    with running_worker(tmp_path / "log") as worker:
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(10) == 0
        assert not worker.folder.exists()


def test_it_leaves_no_folder_when_the_jvm_is_killed_while_it_starts(tmp_path: Path) -> None:
    for token in ("", "t" * 64 + "\n"):
        folder = tmp_path / "dspark-json-1"
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "dspark_json.source.worker", str(folder / "s")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(token)
        process.stdin.close()
        process.wait(20)
        assert not folder.exists()


def test_a_new_worker_removes_what_killed_ones_left_and_nothing_else(tmp_path: Path) -> None:
    def folder(name: str, *files: str, mode: int = 0o700) -> Path:
        made = tmp_path / name
        made.mkdir(mode=mode)
        for file in files:
            (made / file).touch()
        return made

    dead, living, own = folder("dspark-json-1"), folder("dspark-json-2"), folder("dspark-json-3")
    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as listening:
        left.bind(str(dead / "s"))
        listening.bind(str(living / "s"))
        listening.listen()
        empty = folder("dspark-json-4")
        kept = [
            living,
            own,
            folder("dspark-json-5", "data"),
            folder("dspark-json-6", mode=0o755),
            folder("dspark-json-data"),
            folder("other-7"),
        ]
        remove_orphans(own / "s")
        assert dead.exists()  # it may be about to listen
        remove_orphans(own / "s", starting_s=0)
    assert [path.exists() for path in (dead, empty)] == [False, False]
    assert all(path.exists() for path in kept)


def test_ctrl_c_on_the_terminal_is_not_for_the_worker(tmp_path: Path) -> None:
    with running_worker(tmp_path / "log") as worker:
        worker.process.send_signal(signal.SIGINT)
        with worker.connected() as connection:
            assert connection.request("close_stream", stream="none")["ok"]


def test_a_reader_that_goes_away_harms_nobody_else(worker: WorkerProcess, tmp_path: Path) -> None:
    write(tmp_path / "spool", *[answer('{"a":1}') for _ in range(3000)])
    with worker.connected() as connection:
        task, splits = connection.batch({"path": str(tmp_path / "spool")})
        with worker.connected() as leaving:
            write_frame(leaving.raw, {"op": "read", "task": task, "split": splits[0], "skip_rows": 0, "attempt": 0})
            read_frame(leaving.raw)
        assert connection.read(task, splits[0]).count == 3000
    assert "BrokenPipe" not in worker.log


def test_no_token_no_worker(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dspark_json.source.worker", str(tmp_path / "s")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no token" in ended.stderr


def test_a_python_that_lacks_a_package_says_which(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare/bin/python"
    plain = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [str(bare), "-m", "dspark_json.source.worker"]
    with running_worker(tmp_path / "log", command=command, environment=plain) as worker:
        assert worker.ready == {}
        assert worker.process.wait(10) == 3
        assert re.search(f"{bare} has no package (httpx|orjson|pyarrow), which dspark-json needs", worker.log)


def test_it_needs_no_pyspark(tmp_path: Path) -> None:
    write(tmp_path / "spool", answer('{"a":1}'))
    with running_worker(tmp_path / "log") as worker, worker.connected() as connection:
        task, splits = connection.batch({"path": str(tmp_path / "spool")})
        assert connection.read(task, splits[0]).count == 1
        maps = Path(f"/proc/{worker.process.pid}/maps").read_text()
        assert "pyarrow" in maps
    imported = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            "import dspark_json.source.worker_calls, dspark_json.source.worker_reads",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "dspark_json.source.query" in imported
    assert "pyspark" not in imported


def test_standard_output_has_one_line_and_the_log_has_levels(tmp_path: Path) -> None:
    write(tmp_path / "spool", answer('{"a":1}'))
    with running_worker(tmp_path / "log", "--log", "DEBUG") as worker:
        with worker.connected() as connection:
            task, splits = connection.batch({"path": str(tmp_path / "spool")})
            connection.read(task, splits[0])
            connection.request("dance")
        assert worker.process.stdout is not None
        worker.end_input()
        assert worker.process.stdout.read() == b""
        lines = worker.log.splitlines()
    assert {line.split(" ")[0] for line in lines} == {"DEBUG", "INFO", "ERROR"}
    assert all(line.split(" ")[1].startswith("dspark_json") for line in lines)
    assert any(line.startswith("DEBUG dspark_json [DSpark] parsed ") for line in lines)


def test_a_key_is_in_the_task_and_nowhere_else(tmp_path: Path) -> None:
    key = "k3y-of-the-hook"
    (tmp_path / "key").write_text(key + "\n")
    write(tmp_path / "spool", answer('{"a":1}'))
    with running_worker(tmp_path / "log", "--log", "DEBUG") as worker, worker.connected() as connection:
        said = []
        for given in ({"vllm_api_key": key}, {"vllm_api_key_file": str(tmp_path / "key")}):
            options = {"path": str(tmp_path / "spool"), **given}
            described = connection.ask("describe", options=options, table=False)
            stream = connection.stream(options)
            start = stream.ask("initial")["offset"]
            planned = stream.ask("plan", start=start, end=stream.all(start))
            said += [described, {**stream.opened, "task": ""}, {**planned, "task": ""}, stream.ask("stream_metrics")]
            assert key in stream.opened["task"]
            assert key in planned["task"]
            for refused in (
                connection.request("describe", options={**options, "contentSchema": "a NOTHING"}, table=False),
                connection.request("describe", options={**options, "vllm_endpoint": "http://h:1"}, table=False),
                connection.request("describe", options={**options, "nothing": "1"}, table=False),
                connection.request("describe", options={"path": "/p", "vllm_api_key": key}, table=True),
                connection.request("latest", stream=stream.opened["stream"], start="nonsense", limit={}),
            ):
                assert not refused["ok"]
                said.append(refused)
        assert key not in json.dumps(said)
        assert key not in worker.log


def test_connections_are_served_at_once(worker: WorkerProcess, tmp_path: Path) -> None:
    write(tmp_path / "spool", *[answer('{"a":1}') for _ in range(3000)])
    with worker.connected() as first:
        task, splits = first.batch({"path": str(tmp_path / "spool")})
        waiting = [worker.dial() for _ in range(20)]
        try:
            for raw in waiting:
                connection = Connection(raw)
                connection.ask("hello", token=worker.token, protocol=PROTOCOL, version=__version__)
                write_frame(raw, {"op": "read", "task": task, "split": splits[0], "skip_rows": 0, "attempt": 0})
                assert read_frame(raw)["ok"]  # and it stands in its rows, which nobody takes
            assert first.read(task, splits[0]).count == 3000
        finally:
            for raw in waiting:
                raw.close()


def test_an_older_socket_that_stands_in_the_way_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        ended = subprocess.run(
            [sys.executable, "-m", "dspark_json.source.worker", str(path)], input="t\n", capture_output=True, text=True
        )
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr
