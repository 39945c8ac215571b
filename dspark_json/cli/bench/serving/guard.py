"""Runs a command in a process group of its own, and ends the whole group when standard input ends.

``python -m dspark_json.cli.bench.serving.guard COMMAND ARGUMENT…``: whoever starts this holds the other end of its
standard input, so that the command is gone soon after the starter is, however that one ended. The command's exit status
is this one's; 127 if it can't be started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import Final

PATIENCE_SEC: Final = 30.0  # for an orderly end, before the group is killed
_GONE_SEC: Final = 5.0
_POLL_SEC: Final = 0.05


def main() -> int:
    """Run the command until it or standard input ends."""
    try:
        process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    except OSError as error:
        print(f"{sys.argv[1]} can't be started: {os.strerror(error.errno or 0)}", file=sys.stderr)
        return 127
    try:
        while process.poll() is None and not _input_ended():
            pass
    finally:
        _end(process)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _input_ended() -> bool:
    ready, _, _ = select.select([0], [], [], _POLL_SEC)
    return bool(ready) and not os.read(0, 4096)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the group, SIGKILL to what is left of it."""
    group = process.pid
    if process.poll() is None:
        _signal(group, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SEC)
    gone_by = time.monotonic() + _GONE_SEC  # processes that nobody reaps stay in the group for ever
    while _signal(group, signal.SIGKILL) and time.monotonic() < gone_by:
        time.sleep(_POLL_SEC)
        process.poll()
    process.wait()


def _signal(group: int, number: signal.Signals) -> bool:
    """Whether anything of the group was there to get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
