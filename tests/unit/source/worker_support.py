"""A worker process, and connections to it as the JVM makes them."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dspark_json import __version__
from dspark_json.source.worker_protocol import PROTOCOL, Frame, read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class WorkerProcess:
    """``python -m dspark_json.source.worker`` with a socket in a private folder; its log goes to a file."""

    def __init__(
        self,
        log: Path,
        *options: str,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # Not below pytest's folders: the path of a socket has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="dspark-json-"))
        self.socket = self.folder / "worker"
        self.token = secrets.token_hex(32)
        self._log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [*(command or [sys.executable, "-m", "dspark_json.source.worker"]), str(self.socket), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(self.token.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.ready: Frame = json.loads(line) if line else {}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def dial(self) -> socket.socket:
        """A connection that has not said anything."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self.socket))
        return connection

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection that was taken."""
        with self.dial() as raw:
            connection = Connection(raw)
            connection.ask("hello", token=self.token, protocol=PROTOCOL, version=__version__)
            yield connection

    def end_input(self) -> int:
        """Close standard input, as a JVM that ends does; gives the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(10)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.socket.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.folder.rmdir()


@contextlib.contextmanager
def running_worker(log: Path, *options: str, **settings: Any) -> Iterator[WorkerProcess]:
    """A worker that is ended at the end."""
    worker = WorkerProcess(log, *options, **settings)
    try:
        yield worker
    finally:
        worker.close()


class Connection:
    """Requests over one connection."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw

    def request(self, op: str, **members: Any) -> Frame:
        """The answer to a request, whatever it is."""
        write_frame(self.raw, {"op": op, **members})
        return read_frame(self.raw)

    def ask(self, op: str, **members: Any) -> Frame:
        """The answer to a request that must succeed."""
        answer = self.request(op, **members)
        assert answer["ok"], answer
        return answer

    def read(self, task: str, split: str, *, skip_rows: int = 0, attempt: int = 0, **members: Any) -> Read:
        """The rows of a split and the last frame."""
        begun = self.ask("read", task=task, split=split, skip_rows=skip_rows, attempt=attempt, **members)
        with pa.ipc.open_stream(pa.PythonFile(_Received(self.raw), "r")) as stream:
            batches = list(stream)
            schema = stream.schema
        return Read(begun["began"], schema, batches, read_frame(self.raw))

    def stream(self, options: Mapping[str, str], **members: Any) -> Stream:
        """Describe the rows and open a stream over all of them."""
        described = self.ask("describe", options=options, table=False)
        opened = self.ask("open_stream", options=options, rows=described["rows"], schema=described["schema"], **members)
        return Stream(self, opened)

    def batch(self, options: Mapping[str, str], **members: Any) -> tuple[str, list[str]]:
        """The task and the splits of a batch read of all columns."""
        described = self.ask("describe", options=options, table=False)
        planned = self.ask(
            "plan_batch", **{"options": options, "rows": described["rows"], "schema": described["schema"], **members}
        )
        return planned["task"], [one["split"] for one in planned["splits"]]


class Read:
    """What a ``read`` gave."""

    def __init__(self, began: str | None, schema: pa.Schema, batches: list[pa.RecordBatch], last: Frame) -> None:
        self.began = began
        self.schema = schema
        self.batches = batches
        self.last = last

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


class Stream:
    """A stream that is open on a worker."""

    def __init__(self, connection: Connection, opened: Frame) -> None:
        self.connection = connection
        self.opened = opened

    def ask(self, op: str, **members: Any) -> Frame:
        return self.connection.ask(op, stream=self.opened["stream"], **members)

    def all(self, start: str) -> str:
        """The end of a micro-batch without a limit."""
        return str(self.ask("latest", start=start, limit={"all": True})["offset"])


class _Received:
    """What comes over a connection, as a file."""

    closed = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count and (part := self._connection.recv(count - len(data))):
            data += part
        return bytes(data)
