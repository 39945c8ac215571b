"""A model server that a command starts, for as long as it is measured."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

import httpx

from dspark_json.cli.bench.serving.command_keys import HIDDEN, keys_of
from dspark_json.cli.model_server import server_address
from dspark_json.errors import EndpointUnreachableError, InvalidOptionError, ListenError, ServerEndedError
from dspark_json.printable import printable
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

_LENGTH: Final = "{k}"
_PORT: Final = "{port}"
_GUARD: Final = "dspark_json.cli.bench.serving.guard"
_POLL_SEC: Final = 0.25
_HEALTH_TIMEOUT_SEC: Final = 5.0
_STOP_SEC: Final = 45.0  # more than the guard's patience
_SHOWN: Final = 300  # characters of a log's line
_LAST_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server: an argument vector, in which ``{k}`` is the speculation length and ``{port}`` its port."""

    arguments: tuple[str, ...]
    endpoint: str

    @classmethod
    def of(cls, command: str, endpoint: str | None) -> Launch:
        """Read ``command``, which no shell does, and where its server listens.

        With ``{port}`` in it a free port is chosen, and ``endpoint`` must be None.
        """
        try:
            arguments = tuple(shlex.split(command))
        except ValueError as error:
            raise InvalidOptionError(
                f"--serve can't be split into arguments: {error}", remedy="Check its quotes."
            ) from None
        if _LENGTH not in command:
            raise InvalidOptionError(
                f"--serve has no {_LENGTH}", remedy=f"Write {_LENGTH} where the number of speculative tokens stands."
            )
        if _PORT not in command:
            return cls(arguments, server_address(endpoint or "http://127.0.0.1:8000"))
        if endpoint is not None:
            raise InvalidOptionError(f"--serve has {_PORT}, and --endpoint is given", remedy="Leave one out.")
        port = _free_port()
        chosen = tuple(argument.replace(_PORT, str(port)) for argument in arguments)
        return cls(chosen, f"http://127.0.0.1:{port}")

    def command(self, length: int) -> list[str]:
        """The arguments for a speculation length."""
        return [argument.replace(_LENGTH, str(length)) for argument in self.arguments]


class LaunchedServer:
    """Starts a server and waits until it is healthy; a context manager that ends it, and all that it started.

    All it says goes to ``log``. Raises ``ServerEndedError`` where the command ends before it is healthy, and
    ``EndpointUnreachableError`` where it is not within ``patience`` seconds; both name the log and tell its last lines.
    ``ListenError`` where something answers at its address before it was started.
    """

    def __init__(self, command: Sequence[str], endpoint: str, log: Path, patience: float) -> None:
        _require_unused(endpoint)
        try:
            output = log.open("ab")
        except OSError as error:
            raise InvalidOptionError(f"the server's log \"{log}\" can't be written: {reason(error)}") from None
        with output:
            self._process = subprocess.Popen(  # noqa: S603 - the user's command, which this is to run
                [sys.executable, "-m", _GUARD, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the sweep, which then ends the server
            )
        self._log = log
        self._keys = keys_of(command)
        try:
            self._wait(endpoint, patience)
        except BaseException:
            self.stop()
            raise

    def _wait(self, endpoint: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            if not self.runs:
                raise self.ended("before it was healthy")
            if _is_healthy(endpoint):
                return
            if time.monotonic() > deadline:
                what = f"the server was not healthy at {endpoint}/health within {patience:g} s"
                raise EndpointUnreachableError(what + self._last_words(), remedy=self._remedy())
            time.sleep(_POLL_SEC)

    def ended(self, when: str) -> ServerEndedError:
        """The error for a server that has ended by itself at a time when it should not have."""
        status = self._process.wait()
        return ServerEndedError(
            f"the command of --serve ended with status {status} {when}{self._last_words()}", remedy=self._remedy()
        )

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = [line for line in lines if line.strip()][-_LAST_LINES:]
        for key in self._keys:  # servers tell their arguments
            last = [line.replace(key, HIDDEN) for line in last]
        return f"; the last it said: {' | '.join(printable(line, _SHOWN) for line in last)}" if last else ""

    def _remedy(self) -> str:
        return f"Its whole output is in {self._log}."

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it in good order, by force after half a minute."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_healthy(endpoint: str) -> bool:
    try:
        return (
            httpx.get(f"{endpoint}/health", timeout=_HEALTH_TIMEOUT_SEC, trust_env=False).status_code == httpx.codes.OK
        )
    except httpx.HTTPError:
        return False


def _require_unused(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((str(parts.hostname), port), _HEALTH_TIMEOUT_SEC).close()
    except OSError:
        return
    raise ListenError(
        f"something listens at {endpoint} already, which would be measured instead",
        remedy=f"Stop it, or write {_PORT} in --serve, so that a free port is chosen.",
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
