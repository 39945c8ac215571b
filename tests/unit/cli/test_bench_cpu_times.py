"""CPU seconds of a process and of what it started are counted once, whoever has ended meanwhile."""

from __future__ import annotations

import subprocess
import sys
from typing import Self

from dspark_json.cli.bench.cpu_times import CpuClock

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
PARENT = """
import subprocess, sys
for line in sys.stdin:
    exec(line.encode().decode("unicode_escape"))
    print("done", flush=True)
"""


class Parent:
    """A process that does what it is told, line by line."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def do(self, text: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(text.encode("unicode_escape").decode() + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def __enter__(self) -> Self:
        self.do("pass")
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_process_and_its_children_that_have_ended_are_told_apart() -> None:
    with Parent() as parent:
        clock = CpuClock.of(parent.pid)
        parent.do(f"subprocess.run([sys.executable, '-c', {BUSY.format(seconds=0.3)!r}])")
        spent = clock.spent()
        assert 0.25 < sum(spent.parts["helpers"]) < 1
        assert sum(spent.parts["others"]) < 0.2
        assert spent.total == sum(sum(part) for part in spent.parts.values())


def test_a_child_that_lives_on_counts_from_then_on_alone() -> None:
    with Parent() as parent:
        child = "import sys\nprint(1, flush=True)\nsys.stdin.readline()\n" + BUSY.format(seconds=0.6)
        child += "print(1, flush=True)\nsys.stdin.readline()"
        busy = BUSY.format(seconds=0.3)
        parent.do(
            f"child = subprocess.Popen([sys.executable, '-c', {busy + child!r}], stdin=-1, stdout=-1)\n"
            "child.stdout.readline()"
        )
        clock = CpuClock.of(parent.pid)
        parent.do("child.stdin.write(b'\\n')\nchild.stdin.flush()\nchild.stdout.readline()")
        assert 0.2 < sum(clock.spent().parts["python"]) < 0.5
        parent.do("child.kill()\nchild.communicate()")
        # The parent has waited for it, so that all of it is the parent's now.
        assert clock.spent().total >= 0.25
