"""What the hook says in the server's log, loudly but not endlessly."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Final

LOGGER: Final = logging.getLogger("dspark_json")

_LOUD_TIMES: Final = 10
_LOUD_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 60.0


def make_visible() -> None:
    """See to it that INFO lines of our logger reach somebody: servers often configure their own loggers only."""
    if LOGGER.getEffectiveLevel() > logging.INFO:
        LOGGER.setLevel(logging.INFO)
    if not LOGGER.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [dspark_json] %(message)s"))
        LOGGER.addHandler(handler)


class Notice:
    """One kind of trouble that may come thousands of times a second: at first a line a second, later one a minute.

    What was swallowed in between is said with the next line. Usable from any thread.
    """

    def __init__(self, level: int = logging.ERROR, *, loud_times: int = _LOUD_TIMES) -> None:
        """``loud_times``: how many lines may come a second apart before it is one a minute."""
        self._level = level
        self._loud_times = loud_times
        self._lock = threading.Lock()
        self._said = 0
        self._swallowed = 0
        self._next = float("-inf")

    def say(self, text: str, *, exc_info: bool = False) -> None:
        """Log the text, or count it as swallowed."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                self._swallowed += 1
                return
            swallowed, self._swallowed = self._swallowed, 0
            self._said += 1
            self._next = now + (_LOUD_SECONDS if self._said < self._loud_times else _QUIET_SECONDS)
        more = f" ({swallowed} more since the last line)" if swallowed else ""
        LOGGER.log(self._level, "DSpark JSON: %s%s", text, more, exc_info=exc_info)
