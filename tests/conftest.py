"""What all tests share."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A job in the background ignores Ctrl-C, and so would every process that a test starts and interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
