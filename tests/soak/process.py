"""What a process holds: memory of its own, threads, open files."""

from __future__ import annotations

import contextlib
from pathlib import Path


def own_mib(pid: int) -> float:
    """A process's own memory, without the files that it maps (a spool in /dev/shm is one), in MiB; 0 if it is gone."""
    return _status(pid, "RssAnon") / 1024


def threads(pid: int) -> int:
    """How many threads a process has; 0 if it is gone."""
    return _status(pid, "Threads")


def open_files(pid: int) -> int:
    """How many files and sockets a process has open; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


def children(parent: int, words: str) -> list[int]:
    """The processes that one started, by what stands in their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_child = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and words.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def _status(pid: int, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0
