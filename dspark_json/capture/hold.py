"""How long the end of an answer waits for its record: time in which the event loop, too, could do something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dspark_json.capture.backlog import Waiter

# No look at the clock counts for more than such a part of the hold, however late it comes.
TURNS: Final = 10


class Hold:
    """Gives a waiter False once its time is up, unless it has its result before.

    The time-out is there for a writer that is stuck. Where the event loop is late itself (a process that gets no CPU,
    an application that blocks it), time passes in which the writer thread hardly gets on either, and nobody takes what
    it has to tell: such an answer is not to go out without a record for that. So the time is counted in ``TURNS``
    pieces, one in each turn of the loop at most: on a loop that has its turns it is up after ``seconds``, and on a
    starved one after ``TURNS`` turns or a few more, of which every one takes what the writer thread has to tell.
    """

    __slots__ = ("_left", "_loop", "_piece", "_timer", "_waiter")

    def __init__(self, waiter: Waiter, seconds: float) -> None:
        """Begins to count; call it on the loop of the waiter."""
        self._waiter = waiter
        self._loop = waiter.get_loop()
        self._piece = seconds / TURNS
        self._left = TURNS
        self._timer = self._loop.call_later(self._piece, self._count)

    def _count(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._piece, self._count)
        elif not self._waiter.done():
            self._waiter.set_result(False)

    def end(self) -> None:
        """Stop to count."""
        self._timer.cancel()
