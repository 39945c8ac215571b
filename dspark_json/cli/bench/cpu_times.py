"""CPU seconds of a JVM and of all processes that it started, and which part of them spent how much (Linux)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS_PER_SEC: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = slice(3, 5)  # of the fields of /proc/stat: idle, and waiting for a disk
_WAITED_FOR: Final = 13  # where the times of children that have ended stand

# Threads of a JVM by the beginning of their names, of which the kernel keeps 15 characters.
_THREADS: Final = (
    ("Executor task", "tasks"),
    ("C1 Compiler", "compiler"),
    ("C2 Compiler", "compiler"),
    ("G1 ", "memory"),
    ("GC Thread", "memory"),
    ("VM Thread", "memory"),
)
PYTHON: Final = "python"
HELPERS: Final = "helpers"
OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds in user mode and in the kernel, by part.

    ``PYTHON`` are the processes that the JVM runs, ``HELPERS`` those it ran (Hadoop has a ``chmod`` for each new file),
    the others are threads of its own; ``OTHERS`` has all the rest of it, such as the threads that plan micro-batches.
    """

    parts: Mapping[str, tuple[float, float]]

    @property
    def total(self) -> float:
        """All seconds."""
        return sum(user + system for user, system in self.parts.values())


@dataclass(frozen=True, slots=True)
class CpuClock:
    """What a JVM, its threads and the processes below it had spent at a moment, in ticks: user mode, kernel."""

    jvm: int
    threads: Mapping[str, tuple[int, int]]
    whole: tuple[int, int]
    helpers: tuple[int, int]
    own: Mapping[int, tuple[int, int]]
    """Of each process below."""
    ended: Mapping[int, tuple[int, int]]
    """Of those that each of them has waited for."""

    @classmethod
    def of(cls, jvm: int) -> CpuClock:
        """The present moment."""
        own, ended = {}, {}
        for pid in _descendants(jvm):
            with contextlib.suppress(OSError):  # it has just ended
                stat = _stat(Path(f"/proc/{pid}/stat"))
                own[pid], ended[pid] = _times(stat), _times(stat, _WAITED_FOR)
        threads = {part: (0, 0) for _, part in _THREADS}
        for task in Path(f"/proc/{jvm}/task").iterdir():
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text()
                part = next((part for begin, part in _THREADS if name.startswith(begin)), None)
                if part is not None:
                    threads[part] = _sum(threads[part], _times(_stat(task / "stat")))
        stat = _stat(Path(f"/proc/{jvm}/stat"))
        return cls(jvm, threads, _times(stat), _times(stat, _WAITED_FOR), own, ended)

    def spent(self) -> CpuTimes:
        """What has been spent since."""
        now = CpuClock.of(self.jvm)
        parts = {part: _less(now.threads[part], ticks) for part, ticks in self.threads.items()}
        rest = _less(now.whole, self.whole)
        for ticks in parts.values():
            rest = _less(rest, ticks)
        # A process that has ended counts for the one that waited for it, from its beginning on. Nobody waits for some.
        python, waited, gone = (0, 0), (0, 0), (0, 0)
        for pid, ticks in now.own.items():
            python = _sum(python, _less(ticks, self.own.get(pid, (0, 0))))
            waited = _sum(waited, _less(now.ended[pid], self.ended.get(pid, (0, 0))))
        for pid, ticks in self.own.items():
            if pid not in now.own:
                gone = _sum(gone, ticks)
        late = _less(waited, gone)
        parts[PYTHON] = _sum(python, (max(0, late[0]), max(0, late[1])))
        parts[HELPERS] = _less(now.helpers, self.helpers)
        parts[OTHERS] = rest
        return CpuTimes(
            {part: (user / _TICKS_PER_SEC, kernel / _TICKS_PER_SEC) for part, (user, kernel) in parts.items()}
        )


def machine_busy_s() -> float:
    """Seconds that all cores together have been busy since the machine started, with whatever work."""
    times = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(times) - sum(times[_IDLE])) / _TICKS_PER_SEC


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children.setdefault(int(_stat(entry / "stat")[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _stat(path: Path) -> list[str]:
    """The fields after the name of the command, which stands in brackets: the state is the first."""
    return path.read_text().rpartition(") ")[2].split()


def _times(stat: list[str], at: int = 11) -> tuple[int, int]:
    return int(stat[at]), int(stat[at + 1])


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _less(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] - other[0], one[1] - other[1]
