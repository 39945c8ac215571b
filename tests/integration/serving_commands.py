"""``dspark-json proxy`` and ``dspark-json serve`` as processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESS = re.compile(rb"on (http://\S+)")


class Command:
    """A running command; ``address`` is where it listens, ``said`` what it has said so far."""

    def __init__(self, *arguments: str, **settings: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DSPARK_")}
        environment.update({f"DSPARK_{name}": value for name, value in settings.items()})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dspark_json", *arguments, "--listen", "127.0.0.1:0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.said = b""
        self.address = self._address()

    def _address(self) -> str:
        assert self.process.stderr is not None
        deadline = time.monotonic() + 30
        while True:
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stderr.fileno(), 65536) if ready else b""
            assert piece, self.said.decode()
            self.said += piece
            for line in self.said.splitlines():
                if line.startswith(b"dspark-json:") and (found := _ADDRESS.search(line)) is not None:
                    return found[1].decode()

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def memory(self, line: str = "VmHWM") -> int:
        """The most bytes of memory that the process had (VmHWM) or has (VmRSS)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(text.split()[1]) << 10 for text in status if text.startswith(line))

    def end(self, signal: int, timeout: float = 30) -> int:
        """Send a signal, read what the process says, and give its exit status."""
        self.process.send_signal(signal)
        _, said = self.process.communicate(timeout=timeout)
        self.said += said
        return self.process.returncode


@contextlib.contextmanager
def command(*arguments: str, **settings: str) -> Iterator[Command]:
    running = Command(*arguments, **settings)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate()
        assert running.process.stderr is not None
        running.process.stderr.close()
