"""A server in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, Self

from dspark_json.errors import EndpointUnreachableError, ServerEndedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_START_SEC: Final = 60.0
_STOP_SEC: Final = 10.0


class RunningServer:
    """A Python module that serves HTTP and prints ``{"address": …}`` once it does (see ``serve``); a context manager.

    ``address`` is its base address, ``pid`` its process number. Its standard error goes to ``log``.
    """

    def __init__(
        self,
        module: str = "dspark_json.replay",
        arguments: Sequence[str] = (),
        *,
        settings: Mapping[str, str] | None = None,
        log: Path,
    ) -> None:
        """Start it and wait until it takes requests.

        ``settings`` are the hook's ``DSPARK_*`` variables; those of this process are not handed on. Raises
        ``ServerEndedError`` with the end of its log if it ends, ``EndpointUnreachableError`` if it does not come up.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DSPARK_")}
        environment.update(settings or {})
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, *arguments, "--exit-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the command; the command then ends the server
            )
        self.pid = self._process.pid
        try:
            self.address = self._announced_address(log)
        except BaseException:
            self.stop()
            raise

    def _announced_address(self, log: Path) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _START_SEC
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0))
            piece = os.read(self._process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                lines = log.read_text(errors="replace").strip().splitlines()
                reason = lines[-1] if lines else "it said nothing"
                kind = ServerEndedError if ready else EndpointUnreachableError
                raise kind(f"the server did not start: {reason}", remedy=f"Its log is {log}.")
            line += piece
        address: str = json.loads(line)["address"]
        return address

    @property
    def running(self) -> bool:
        """Whether its process is still there."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it in good order (the hook writes what it holds), by force after ten seconds."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def kill(self) -> None:
        """End it with SIGKILL: nothing is flushed, nothing is told."""
        self._process.kill()
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
