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

    ``PYTHON`` are the processes that the JVM runs, ``HELPERS`` those it ran (Hadoop has a ``chmod`` for each new file), the
    others are threads of its own; ``OTHERS`` has all the rest of it, such as the threads that plan micro-batches.
    """

    parts: Mapping[str, tuple[float, float]]

    @property
    def total(self) -> float:
        """All seconds."""
        return sum(user + system for user, system in self.parts.values())

    def since(self, before: CpuTimes) -> CpuTimes:
        """What was spent after an earlier look; a thread that ended meanwhile counts among ``OTHERS``."""
        spent = {}
        for part, (user, system) in self.parts.items():
            earlier = before.parts.get(part, (0.0, 0.0))
            spent[part] = (user - earlier[0], system - earlier[1])
        return CpuTimes(spent)


def cpu_times(jvm: int) -> CpuTimes:
    """What the process ``jvm`` and its descendants, those that have ended too, have spent until now."""
    parts = {name: [0, 0] for name in (PYTHON, HELPERS, OTHERS, *(part for _, part in _THREADS))}
    for pid in _descendants(jvm):
        with contextlib.suppress(OSError):  # it has just ended: its parent has its times
            _add(parts[PYTHON], _stat(Path(f"/proc/{pid}/stat")), with_children=True)
    whole = [0, 0]
    stat = _stat(Path(f"/proc/{jvm}/stat"))
    _add(whole, stat, with_children=False)
    parts[HELPERS] = [int(stat[13]), int(stat[14])]
    for task in Path(f"/proc/{jvm}/task").iterdir():
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text()
            part = next((part for begin, part in _THREADS if name.startswith(begin)), None)
            if part is not None:
                _add(parts[part], _stat(task / "stat"), with_children=False)
    threads = [parts[part] for part in {part for _, part in _THREADS}]
    for mode in (0, 1):
        parts[OTHERS][mode] = whole[mode] - sum(thread[mode] for thread in threads)
    return CpuTimes({name: (user / _TICKS_PER_SEC, system / _TICKS_PER_SEC) for name, (user, system) in parts.items()})


def descendants_memory(jvm: int) -> int:
    """Resident memory of all descendants of a process, in bytes."""
    total = 0
    for pid in _descendants(jvm):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    return total


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


def _add(times: list[int], stat: list[str], *, with_children: bool) -> None:
    for mode in (0, 1):
        times[mode] += int(stat[11 + mode]) + (int(stat[13 + mode]) if with_children else 0)
