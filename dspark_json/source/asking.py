"""Many servers asked at once, with a deadline, by no more threads than the slow ones need."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ask_all"]

T = TypeVar("T")

_FIRST_THREADS: Final = 16
_TICK_S: Final = 0.02


def ask_all(
    names: Sequence[str], ask: Callable[[str], T], timeout_s: float, *, patient: bool = False
) -> dict[str, T | BaseException]:
    """What ``ask`` gives or raises for each name; a name that had no answer in time is left out.

    A few threads take name after name. When a tick brings fewer answers than there are threads, as many are added: so
    servers that hang cost the others some ticks, up to a thread for each of them, and servers that answer at once are
    not asked by more threads than can run. What hangs at the deadline is left to its own time-out.

    ``patient``: the time limits how long no answer at all comes, so that a start may take the longer the more servers
    there are.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)

    def work() -> None:
        while (name := _next(waiting)) is not None:
            try:
                answers.put((name, ask(name)))
            except BaseException as error:  # noqa: BLE001 - handed over to the thread that asked
                answers.put((name, error))

    def add(count: int) -> int:
        for _ in range(count):
            threading.Thread(target=work, name="dspark-json-asking", daemon=True).start()
        return count

    done: dict[str, T | BaseException] = {}
    now = time.monotonic()
    deadline, tick_end = now + timeout_s, now + _TICK_S
    threads = add(min(_FIRST_THREADS, len(names)))
    came = 0
    while len(done) < len(names) and now < deadline:
        if now >= tick_end:
            if came < threads:
                threads += add(min(threads, waiting.qsize()))
            came, tick_end = 0, now + _TICK_S
        try:
            name, result = answers.get(timeout=min(tick_end, deadline) - now)
        except queue.Empty:
            pass
        else:
            done[name] = result
            came += 1
            if patient:
                deadline = time.monotonic() + timeout_s
        now = time.monotonic()
    while _next(waiting) is not None:  # nobody is asked any more
        pass
    return done


def _next(waiting: queue.SimpleQueue[str]) -> str | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None
