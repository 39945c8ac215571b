"""Ended exchanges on their way from the event loop to the writer thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dspark_json.capture.captured import Captured

Waiter = asyncio.Future[bool]

# The factor by which the writer's slices grow as the backlog fills from empty to full.
LONGEST_STRETCH: Final = 64
# Why an exchange is not taken.
FULL: Final = "the queue is full (DSPARK_QUEUE_MB): the writer does not keep up"
CLOSED: Final = "the hook is closed"


class Item:
    """A captured exchange on its way, its weight in bytes, and who waits for its record."""

    __slots__ = ("captured", "waiter", "weight")

    def __init__(self, captured: Captured, weight: int, waiter: Waiter | None) -> None:
        self.captured = captured
        self.weight = weight
        self.waiter = waiter


class Backlog:
    """A queue, bounded in bytes: one thread puts in, and another one takes out in the same order."""

    def __init__(self, limit: int) -> None:
        """``limit`` in bytes."""
        self._limit = limit
        self._closing = threading.Lock()
        self._closed = False
        self._items: deque[Item] = deque()
        self._weight_in = 0  # only who puts in adds here, only who takes out there: no lock
        self._weight_out = 0

    @property
    def weight(self) -> int:
        """Bytes of what is not written yet."""
        return self._weight_in - self._weight_out

    @property
    def stretch(self) -> float:
        """How much longer than usual the writer may work in one go, so that the backlog does not grow."""
        return 1 + LONGEST_STRETCH * self.weight / self._limit

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._items

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken in."""
        return self._closed

    def put(self, item: Item) -> str | None:
        """Add an exchange, else say why not. Something always fits where nothing is there."""
        held = self._weight_in - self._weight_out
        if held and held + item.weight > self._limit:
            return FULL
        with self._closing:
            if self._closed:
                return CLOSED
            self._weight_in += item.weight
            self._items.append(item)
        return None

    def close(self) -> None:
        """Take nothing more in; what is there can be taken out."""
        with self._closing:
            self._closed = True

    def take(self, records: int, weight: int) -> list[Item]:
        """The oldest items: so many, or the first ones of so many bytes together."""
        taken: list[Item] = []
        items = self._items
        while items and len(taken) < records and weight > 0:
            taken.append(items.popleft())
            weight -= taken[-1].weight
        return taken

    def done(self, items: list[Item]) -> None:
        """These items are written, or dropped."""
        self._weight_out += sum(item.weight for item in items)
