"""The protocol between the JVM connector and its worker process: the one place that writes it down.

``PROTOCOL`` is its number and ``Version.java`` has the same; both sides check it, and that they are of one
version of this package, at the start of every connection.

**Process.** ``python -m dspark_json.source.worker SOCKET [--log LEVEL]``. The JVM makes a folder that only its user may
enter, writes a token (32 bytes in hexadecimal and a line feed) to the worker's standard input and keeps that open: its
end means that the JVM is gone, and the worker removes socket and folder and ends. Once it listens it prints its only
line on standard output, ``{"ready":true,"protocol":1,"version":"…","pid":…}``. Standard error is the log, each line
``LEVEL logger text``.

**Frames.** A length (32 bits, big-endian, at most 64 MiB) and so many bytes of a JSON object in UTF-8. Requests have
``op`` and the members below; every one gets one answer, in order: ``{"ok":true,…}``, or an error ``{"ok":false,"code":
"DSPARK_JSON_…","message":"…","remedy":"…","text":"…","kind":"option"|"data"|"internal"}``. ``text`` is what a user
sees, the same as from the Python source. ``option`` is wrong input; ``internal`` is a fault, its ``traceback`` beside
it. Connections are served concurrently, a thread for each.

The first frame is ``{"op":"hello","token":T,"protocol":1,"version":V}``. A wrong token, or anything else, closes the
connection without an answer.

Schemas are base64 of Arrow's IPC message, offsets are the text that the checkpoint holds, and ``rows``, ``task``,
``split``, ``target``, ``began`` are texts that the JVM hands back as they are. ``options`` are strings by name.

=============== ================================================= ===================================================
op              request                                           answer
=============== ================================================= ===================================================
describe        options, table, schema?: the user's               schema: the declared rows; rows: as resolved now;
                                                                  secrets: names of options that nobody may show
open_stream     options, rows, schema, initial?, target?          stream; task; limits {max_records, max_bytes: number
                (what the same stream gave on an earlier worker)  or null}; adapter; engine
initial         stream                                            offset
latest          stream, start, limit: {"all":true} or             offset: ``start`` itself where nothing is new
                {max_records?, max_bytes?}
report          stream                                            offset or null
fix_target      stream                                            target
plan            stream, start, end, schema?: pruned columns       task, splits [{split, hosts, records}]
plan_batch      options, rows, schema, columns?: pruned           task, splits
stream_metrics  stream                                            metrics: numbers by name
close_stream    stream
read            task, split, skip_rows, attempt, began?           see below
=============== ================================================= ===================================================

``table``: the options are the properties of ``CREATE TABLE``, where a key is refused. ``schema`` of ``open_stream`` and
``plan_batch`` is that of the data frame, ``columns`` and the ``schema`` of ``plan`` are what pruning has left of it.
``hosts`` is not empty where the driver itself could open the folder: its name. A stream that the worker does not know
is ``DSPARK_JSON_STREAM_UNKNOWN``: another worker had it, and it is to be opened again with ``initial`` and ``target``.

``read`` answers ``{"ok":true,"began":…}``, then an Arrow IPC stream in exactly the task's schema without the first
``skip_rows`` rows, then a last frame, ``{"ok":true,"rows":n,"metrics":{…}}`` or an error. Only that says that the read
was whole. The same read gives the same rows again, so one that was cut short goes on with ``skip_rows`` and the
``began`` of its first answer; where the split begins with another record by now that is a ``DSPARK_JSON_DATA_LOSS``.
``metrics`` are those of the whole split: numbers under the names of ``READ_METRICS``.
"""

from __future__ import annotations

import hmac
import json
import struct
import traceback
from typing import TYPE_CHECKING, Any, Final

from dspark_json import __version__
from dspark_json.errors import (
    ContentSchemaError,
    DSparkJsonError,
    InternalError,
    OptionError,
    SchemaError,
    WorkerVersionError,
)

if TYPE_CHECKING:
    import socket

__all__ = [
    "MAX_FRAME_BYTES",
    "PROTOCOL",
    "READ_METRICS",
    "Frame",
    "error_frame",
    "greeting",
    "is_greeting",
    "read_frame",
    "ready_line",
    "write_frame",
]

PROTOCOL: Final = 1
MAX_FRAME_BYTES: Final = 64 << 20
READ_METRICS: Final = (
    "records",
    "bytes",
    "parse_ns",
    "serialize_ns",
    "send_ns",
    "mismatches",
    "invalid",
    "truncated",
    "corrupt",
    "dropped",
    "filtered",
    "lost",
    "gpu_kernel_ms",
    "gpu_fallback_records",
)

_LENGTH: Final = struct.Struct(">I")
_INPUT: Final = (OptionError, SchemaError, ContentSchemaError)

Frame = dict[str, Any]


def ready_line(pid: int) -> str:
    """What the worker prints once it listens."""
    return json.dumps({"ready": True, "protocol": PROTOCOL, "version": __version__, "pid": pid})


def is_greeting(frame: Frame, token: str) -> bool:
    """Whether a connection's first frame comes from somebody who knows the token; takes the same time if not."""
    given = frame.get("token")
    return frame.get("op") == "hello" and isinstance(given, str) and hmac.compare_digest(given.encode(), token.encode())


def greeting(frame: Frame, pid: int) -> Frame:
    """The answer to a greeting; ``WorkerVersionError`` where the other side is of another release."""
    protocol, version = frame.get("protocol"), frame.get("version")
    if protocol != PROTOCOL or version != __version__:
        raise WorkerVersionError(
            f"the connector's jar is of dspark-json {version} (protocol {protocol}), and the worker's Python has "
            f"dspark-json {__version__} (protocol {PROTOCOL})",
            remedy="Install one version on the driver and on every executor, and use the jar that comes with it "
            "(python -m dspark_json.spark prints its path).",
        )
    return {"ok": True, "protocol": PROTOCOL, "version": __version__, "pid": pid}


def error_frame(error: Exception) -> Frame:
    """The answer that says what went wrong."""
    if not isinstance(error, DSparkJsonError):
        internal = InternalError(
            f"{type(error).__name__}: {error}", remedy="Please report it, with the worker's lines in the log."
        )
        trace = "".join(traceback.format_exception(error))
        return {**_error(internal), "kind": "internal", "traceback": trace}
    return {**_error(error), "kind": "option" if isinstance(error, _INPUT) else "data"}


def _error(error: DSparkJsonError) -> Frame:
    return {"ok": False, "code": error.code, "message": error.message, "remedy": error.remedy, "text": str(error)}


def read_frame(connection: socket.socket, most: int = MAX_FRAME_BYTES) -> Frame:
    """The next frame; ``EOFError`` where the other side has closed, ``ValueError`` for what is none."""
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if length > most:
        raise ValueError(f"a frame of {length} bytes is longer than {most}")
    frame = json.loads(_read(connection, length))
    if not isinstance(frame, dict):
        raise ValueError("a frame is not a JSON object")  # noqa: TRY004 - what was read, not a programmer's mistake
    return frame


def write_frame(connection: socket.socket, frame: Frame) -> None:
    """Send a frame."""
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    connection.sendall(_LENGTH.pack(len(text)) + text)


def _read(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise EOFError
        filled += count
    return data
