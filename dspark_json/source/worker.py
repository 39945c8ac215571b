"""``python -m dspark_json.source.worker SOCKET``: plans and parses for a JVM connector, as long as that lives.

The protocol is written down in ``worker_protocol``. Neither Spark nor PySpark is needed.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.source.worker_folder import remove_folder, remove_orphans

if TYPE_CHECKING:
    from typing import TextIO

    from dspark_json.source.worker_calls import Calls
    from dspark_json.source.worker_streams import Tasks

_log = logging.getLogger("dspark_json.source.worker")  # also where it runs as __main__

_HELLO_SEC: Final = 10.0
_HELLO_BYTES: Final = 4096  # of somebody who has yet to show the token
_BACKLOG: Final = 128


class Worker:
    """Serves every connection in a thread of its own."""

    def __init__(self, token: str) -> None:
        from dspark_json.source.worker_calls import Calls
        from dspark_json.source.worker_streams import Tasks

        self._token = token
        self._calls: Calls = Calls()
        self._tasks: Tasks = Tasks()

    def serve(self, listener: socket.socket) -> None:
        """Take connections, for ever."""
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._served, args=(connection,), name="dspark-json-worker", daemon=True).start()

    def _served(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self._is_welcome(connection):
                    while True:
                        self._answer(connection)
            except (EOFError, OSError):
                pass  # the other side may go at any moment: a task that was killed, a query that was stopped
            except ValueError as error:
                _log.warning("a connection was closed: %s", error)

    def _is_welcome(self, connection: socket.socket) -> bool:
        from dspark_json.errors import WorkerVersionError
        from dspark_json.source.worker_protocol import error_frame, greeting, is_greeting, read_frame, write_frame

        connection.settimeout(_HELLO_SEC)
        frame = read_frame(connection, _HELLO_BYTES)
        if not is_greeting(frame, self._token):
            _log.warning("a connection without the token was closed")
            return False
        connection.settimeout(None)
        try:
            write_frame(connection, greeting(frame, os.getpid()))
        except WorkerVersionError as error:
            write_frame(connection, error_frame(error))
            return False
        return True

    def _answer(self, connection: socket.socket) -> None:
        from dspark_json.source.worker_protocol import error_frame, read_frame, write_frame
        from dspark_json.source.worker_reads import send_rows

        frame = read_frame(connection)
        try:
            if frame.get("op") == "read":
                send_rows(connection, frame, self._tasks)
                return
            answer = self._calls.answer(frame)
        except (EOFError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = error_frame(error)
            if answer["kind"] == "internal":
                _log.error("%s: %s", frame.get("op"), answer["traceback"])
        write_frame(connection, answer)


def main() -> int:
    """Serve until standard input ends; the exit status where that can't begin."""
    parser = argparse.ArgumentParser(prog="python -m dspark_json.source.worker", description=__doc__)
    parser.add_argument("socket", type=Path, help="path of the socket to make, in a folder of its own")
    parser.add_argument("--log", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="level of the log")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal is the JVM's to answer
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)  # whatever some library prints goes to the log
        _start_log(arguments.log)
        signal.signal(signal.SIGTERM, lambda *_: _end(arguments.socket))  # of who ends all of a job's processes
        token = sys.stdin.readline().strip()
        if not token:
            print("no token came on standard input", file=sys.stderr)  # noqa: T201 - nobody is there to log to
            remove_folder(arguments.socket)  # the JVM was killed while this started
            return 2
        return _serve(arguments.socket, token, answer)


def _serve(path: Path, token: str, answer: TextIO) -> int:
    try:
        from dspark_json.source.worker_protocol import ready_line

        worker = Worker(token)
    except ImportError as error:
        _log.error("%s has no package %s, which dspark-json needs", sys.executable, error.name)
        return 3
    before = os.umask(0o177)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    threading.Thread(target=_end_with_input, args=(path,), name="dspark-json-end", daemon=True).start()
    try:
        answer.write(ready_line(os.getpid()) + "\n")
        answer.close()
        threading.Thread(target=remove_orphans, args=(path,), name="dspark-json-orphans", daemon=True).start()
        worker.serve(listener)
    finally:
        remove_folder(path)
    return 0


def _end_with_input(path: Path) -> None:
    """Wait for the end of standard input, then end the process, whatever its threads are doing."""
    while sys.stdin.readline():
        pass
    _end(path)


def _end(path: Path) -> None:
    remove_folder(path)
    os._exit(0)


class _LineFormatter(logging.Formatter):
    """``LEVEL logger text`` on every line, so that the JVM knows where each belongs."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{record.levelname} {record.name} "
        return "\n".join(head + line for line in super().format(record).splitlines() or [""])


def _start_log(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("dspark_json").setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
