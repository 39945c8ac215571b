"""Where a command speaks: lines for programs on standard output, notes for people on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from dspark_json.errors import DSparkJsonError
from dspark_json.printable import printable
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LONGEST_NOTE: Final = 4000  # characters; paths and lists of names may be long, a server's text is cut before


def write(data: bytes) -> None:
    """Write to standard output; raises ``DSparkJsonError`` where it can't be written, ``BrokenPipeError`` as it is."""
    with _writing():
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Hand on what was written; raises as ``write`` does."""
    with _writing():
        sys.stdout.flush()


def note(text: str) -> None:
    """Say something to people, in one line that no text from outside can make more of."""
    if sys.stderr is not None:  # it is None where the command was started with it closed
        with contextlib.suppress(OSError):
            print("dspark-json:", printable(" ".join(text.split()), _LONGEST_NOTE), file=sys.stderr)


def require_output() -> None:
    """Raise ``DSparkJsonError`` where the command was started with standard output closed."""
    if sys.stdout is None:
        raise DSparkJsonError("standard output is closed", remedy="Redirect it to /dev/null to see nothing.")


def end() -> None:
    """Hand on what was written, and drop what can't be: the interpreter would try again when it ends, and complain."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def redirected(log: Path, *descriptors: int) -> Iterator[None]:
    """Point output (descriptor 1) or error (2) at ``log``, so that a process started meanwhile inherits that."""
    for descriptor in descriptors:
        (sys.stdout, sys.stderr)[descriptor - 1].flush()
    kept = [os.dup(descriptor) for descriptor in descriptors]
    with log.open("ab") as file:
        for descriptor in descriptors:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, before in zip(descriptors, kept, strict=True):
            os.dup2(before, descriptor)
            os.close(before)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DSparkJsonError(f"standard output can't be written: {reason(error)}") from None
