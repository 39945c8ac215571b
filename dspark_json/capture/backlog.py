"""Ended exchanges on their way to the writer thread; what is quick to make of them is made on the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dspark_json.capture.captured import Captured
    from dspark_json.capture.making import RecordMaker
    from dspark_json.capture.recording import Recording

Waiter = asyncio.Future[bool]

# How long a request that comes in the meantime may have to wait for a turn.
_TURN_SECONDS: Final = 150e-6
# Of the time that the event loop took for its own things, the hook may take as much again as this part.
_SHARE: Final = 0.5
_LONGEST_TURN_SECONDS: Final = 25e-3
# The factor by which turns grow as the backlog fills from empty to full.
LONGEST_STRETCH: Final = 64


class Item:
    """A captured exchange on its way: its record once it is made, its weight in bytes, and who waits for it."""

    __slots__ = ("captured", "recording", "size", "waiter", "weight")

    def __init__(self, captured: Captured, weight: int, waiter: Waiter | None) -> None:
        self.captured: Captured | None = captured
        self.recording: Recording | None = None
        self.size = captured.size
        self.weight = weight
        self.waiter = waiter


class Backlog:
    """A queue, bounded in bytes, with two halves: exchanges as they came, then those that the writer thread may take.

    The event loop makes records in turns of its own, right after the messages that brought them: one thread alone
    needs no hand-over of the GIL, which costs more than the work. What would take long is left to the writer thread, in
    its place in the order. ``take_over`` brings everything to the second half: at the end, or where no loop runs.
    """

    def __init__(self, maker: RecordMaker, limit: int, gather: float, wake: Callable[[], None]) -> None:
        """``limit`` in bytes; ``wake`` is called where the writer thread may have something to do.

        Answers of ``gather`` seconds are made together, which is cheaper than one turn each.
        """
        self._maker = maker
        self._limit = limit
        self._gather = gather
        self._wake = wake
        self._moving = threading.Lock()  # held for moments, never while a record is made
        self._closed = False
        self._unmade: deque[Item] = deque()
        self._ready: deque[Item] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # where a turn is due
        self._due_since = 0.0
        self._at_work: tuple[Item, Iterator[Recording | None]] | None = None
        self._turns = 0
        self._turns_seen = 0
        self._weight_in = 0  # only the event loop adds here, only the writer thread there: no lock
        self._weight_out = 0

    @property
    def weight(self) -> int:
        """Bytes of what is not written yet."""
        return self._weight_in - self._weight_out

    @property
    def stretch(self) -> float:
        """How much longer than usual a turn may be, so that the backlog does not grow."""
        return 1 + LONGEST_STRETCH * self.weight / self._limit

    # -- for the event loop -------------------------------------------------------------------------------------------

    def has_room(self, weight: int) -> bool:
        """Whether so many bytes fit; something always does where nothing is there."""
        held = self.weight
        return held == 0 or held + weight <= self._limit

    def put(self, item: Item) -> bool:
        """Add an exchange; False if the backlog is closed."""
        with self._moving:
            if self._closed:
                return False
            self._weight_in += item.weight
            self._unmade.append(item)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a server that runs on something else
            self.take_over()
            self._wake()
        else:
            if self._loop is not loop:
                self._ask_for_turn(loop, self._gather)
        return True

    def _ask_for_turn(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._due_since = time.perf_counter() + seconds
        if seconds:
            loop.call_later(seconds, self._take_turn)
        else:
            loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Make records for a while; the rest comes after what else the event loop has to do."""
        loop, self._loop = self._loop, None
        begin = time.perf_counter()
        fair = min(_SHARE * (begin - self._due_since), _LONGEST_TURN_SECONDS)
        seconds = max(_TURN_SECONDS * self.stretch, fair)
        self._turns += 1
        while self._make_some():
            if time.perf_counter() - begin >= seconds:
                if loop is not None:
                    self._ask_for_turn(loop, 0)
                break
        if self._ready:
            self._wake()

    def _make_some(self) -> bool:
        """Do the next piece of work; False if there is none."""
        if self._at_work is None:
            try:
                item = self._unmade[0]
            except IndexError:
                return False
            captured = item.captured
            assert captured is not None
            self._at_work = item, self._maker.make_quickly(captured)
        item, steps = self._at_work
        recording: Recording | Literal[False] | None = next(steps, False)
        if recording is None:
            return True
        self._at_work = None
        with self._moving:
            if self._unmade and self._unmade[0] is item:  # else the thread took it meanwhile
                if recording is not False:  # else it is left to the thread
                    self._settle(item, recording)
                self._ready.append(self._unmade.popleft())
        return True

    def _settle(self, item: Item, recording: Recording) -> None:
        """Keep the record instead of what it was made of."""
        record = recording.record
        lighter = item.weight - len(record.meta) - len(record.body)
        item.recording, item.captured = recording, None
        item.weight -= lighter
        self._weight_in -= lighter

    # -- for the writer thread ----------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._ready)

    def take(self, records: int, weight: int) -> list[Item]:
        """The oldest ready items: so many, or the first ones of so many bytes together."""
        taken: list[Item] = []
        ready = self._ready
        while ready and len(taken) < records and weight > 0:
            taken.append(ready.popleft())
            weight -= taken[-1].weight
        return taken

    def done(self, items: list[Item]) -> None:
        """These items are written, or dropped."""
        self._weight_out += sum(item.weight for item in items)

    def take_over(self, *, closing: bool = False) -> None:
        """Make everything ready, whether its record is made or not; with ``closing`` nothing more is taken."""
        with self._moving:
            self._closed = self._closed or closing
            self._ready.extend(self._unmade)
            self._unmade.clear()

    def take_over_if_left(self) -> None:
        """Take over where the event loop had no turn since the last call: it was closed, or it is stuck."""
        if self._unmade and self._turns == self._turns_seen:
            self.take_over()
        self._turns_seen = self._turns
