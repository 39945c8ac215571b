"""How the worker sends the rows of a split: an Arrow IPC stream straight to the socket, and the last frame."""

from __future__ import annotations

import io
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dspark_json.source.read_task import ReadTotals
from dspark_json.source.texts import split_from
from dspark_json.source.worker_protocol import READ_METRICS, error_frame, write_frame

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

    from dspark_json.source.worker_protocol import Frame
    from dspark_json.source.worker_streams import Tasks

__all__ = ["send_rows"]

_log = logging.getLogger(__name__)

_MOST_BUFFERS: Final = 1024  # of one system call: IOV_MAX of Linux
_GATHERED_BYTES: Final = 1 << 20


def send_rows(connection: socket.socket, frame: Frame, tasks: Tasks) -> None:
    """Answer a ``read``. An error before the first row is raised, a later one becomes the last frame."""
    split = split_from(frame["split"])
    reader = tasks.get(frame["task"])
    skip, attempt, began = int(frame.get("skip_rows", 0)), int(frame.get("attempt", 0)), frame.get("began")
    if skip or attempt:
        _log.warning("%s is read again after %d rows (attempt %d)", frame["split"], skip, attempt)
    totals = ReadTotals()
    rows = reader.batches(split, totals, expected_first=int(began) if began is not None and skip else None)
    first = next(rows, None)
    write_frame(connection, {"ok": True, "began": None if totals.first is None else str(totals.first)})
    sink = _SocketSink(connection)
    serialize_ns, sent = 0, 0
    failure: Frame | None = None
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.task.wanted, options=options) as writer:
        batches = _with_first(first, rows)
        try:
            for batch in batches:
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                wanted, skip = batch.slice(skip), 0
                started, before = time.perf_counter_ns(), sink.send_ns
                writer.write_batch(wanted)
                serialize_ns += time.perf_counter_ns() - started - (sink.send_ns - before)
                sink.send()
                sent += wanted.num_rows
        except OSError:
            raise  # the other side has gone
        except Exception as error:  # noqa: BLE001 - it is the answer
            failure = error_frame(error)
    sink.send()
    metrics = _metrics(totals, serialize_ns, sink.send_ns)
    write_frame(connection, failure if failure is not None else {"ok": True, "rows": sent, "metrics": metrics})


def _with_first(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
        yield from rest


def _metrics(totals: ReadTotals, serialize_ns: int, send_ns: int) -> dict[str, Any]:
    own = {
        "serialize_ns": serialize_ns,
        "send_ns": send_ns,
        "lost": totals.lost,
        "gpu_kernel_ms": totals.parsed.gpu_ns // 1_000_000,
        "gpu_fallback_records": totals.parsed.fallback,
    }
    return {name: own.get(name, getattr(totals.parsed, name, 0)) for name in READ_METRICS}


class _SocketSink(io.RawIOBase):
    """Takes the buffers of an IPC message as they are, and sends many of them with one system call."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self.send_ns = 0
        self._connection = connection
        self._buffers: list[memoryview] = []
        self._bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if view.nbytes:
            self._buffers.append(view)
            self._bytes += view.nbytes
            if len(self._buffers) == _MOST_BUFFERS or self._bytes >= _GATHERED_BYTES:
                self.send()
        return view.nbytes

    def send(self) -> None:
        """Send what was written."""
        started = time.perf_counter_ns()
        waiting, self._buffers, self._bytes = self._buffers, [], 0
        while waiting:
            count = self._connection.sendmsg(waiting[:_MOST_BUFFERS])
            done = 0
            while done < len(waiting) and count >= waiting[done].nbytes:
                count -= waiting[done].nbytes
                done += 1
            waiting = waiting[done:]
            if count:
                waiting[0] = waiting[0][count:]
        self.send_ns += time.perf_counter_ns() - started
