"""How long work may take before the event loop gets its turn."""

from __future__ import annotations

import time
from typing import Final

# Each handing over of the GIL costs both threads several wake-ups: a slice is long enough for some twenty answers, and
# short enough not to show beside a server's own pauses.
SLICE_SECONDS: Final = 400e-6
# sleep(0) hands the GIL over only if the other thread wakes faster than this one asks again; a tiny sleep always does.
_YIELD_SECONDS: Final = 50e-6


class Pacer:
    """Cuts a thread's work into slices.

    ``tick()`` between pieces of work sleeps for a moment once a slice is used up. ``stretch`` makes slices longer
    when work piles up: beside a busy event loop every yield may cost a whole GIL switch interval (5 ms).
    """

    __slots__ = ("_end", "stretch")

    def __init__(self) -> None:
        self.stretch = 1.0
        self._end = 0.0

    def restart(self) -> None:
        """Begin a slice now (after the thread slept for another reason)."""
        self._end = time.perf_counter() + SLICE_SECONDS * self.stretch

    def tick(self) -> None:
        """Yield if the slice is used up."""
        if time.perf_counter() >= self._end:
            time.sleep(_YIELD_SECONDS)
            self.restart()
