"""A standalone Spark cluster for tests: a master and workers, each a machine as far as one machine can play several.

Every node has an address of the loopback network, a home, folders and an environment of its own: nothing of this
checkout and nothing of the test's environment is in it. What runs on a node is in one session, so that killing a node
takes its executors and their Python processes with it, as losing a machine does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pyspark.find_spark_home import _find_spark_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

START_S: Final = 300


def can_have_views() -> bool:
    """Whether this user may give processes another view of the files."""
    return shutil.which("unshare") is not None and subprocess.run(["unshare", "-Urm", "true"]).returncode == 0


def _with_view(view: tuple[Path, Path] | None) -> list[str]:
    if view is None:
        return []
    return ["unshare", "-Urm", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', *map(str, view)]


class Node:
    """A process of Spark's own, and all that it starts."""

    def __init__(self, folder: Path, address: str, view: tuple[Path, Path] | None, *command: str) -> None:
        """Start it; ``command`` is what ``spark-class`` runs. It sees the first folder of ``view`` as the second."""
        self.folder = folder
        self.address = address
        self.log = folder / "log"
        for name in ("home", "tmp", "work"):
            (folder / name).mkdir(parents=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_with_view(view), Path(_find_spark_home(), "bin", "spark-class"), *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder / "home",
                env=_plain_environment(folder, address),
                start_new_session=True,
            )

    def wait_for(self, line: str) -> str:
        """Wait for a line of its log; gives the first group of the pattern."""
        deadline = time.monotonic() + START_S
        while (found := re.search(line, self.log.read_text(errors="replace"))) is None:
            assert self._process.poll() is None, self.log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        return found[1]

    def processes(self, *words: bytes) -> dict[int, list[str]]:
        """The command lines of what runs on it, by process; of those that have all these words."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if os.getsid(int(entry.name)) == self._process.pid and all(word in line for word in words):
                    found[int(entry.name)] = line.decode(errors="replace").split("\0")
        return found

    def executors(self) -> list[int]:
        """The JVMs that run tasks."""
        return list(self.processes(b"java", b"CoarseGrainedExecutorBackend", b"--executor-id"))

    def kill(self) -> None:
        """The machine is gone."""
        while running := self.processes():
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.poll()
        self._process.wait()


class Cluster:
    """A master and workers of one core each; a context manager."""

    def __init__(self, folder: Path, workers: int = 2, view: tuple[Path, Path] | None = None) -> None:
        """``view``: workers see the first folder in the place of the second (``can_have_views``)."""
        self._folder = folder
        self._view: tuple[Path, Path] | None = None
        self._nodes = [self._start("master", "127.0.0.1", "master.Master", "--port", "0", "--webui-port", "0")]
        self._view = view
        try:
            self.address = self._nodes[0].wait_for(r"Starting Spark master at (spark://\S+)")
            for n in range(workers):
                name, host = f"worker{n}", f"127.0.0.{n + 2}"
                options = ["--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                options += ["--work-dir", str(folder / name / "work"), self.address]
                self._nodes.append(self._start(name, host, "worker.Worker", *options))
            for worker in self.workers:
                worker.wait_for("(Successfully registered) with master")
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, host: str, what: str, *options: str) -> Node:
        return Node(self._folder / name, host, self._view, f"org.apache.spark.deploy.{what}", "--host", host, *options)

    @property
    def workers(self) -> list[Node]:
        """The machines that run executors, also those that are gone."""
        return self._nodes[1:]

    def submit(self, *arguments: str, variables: Mapping[str, str], beside: Mapping[str, Path] | None = None) -> Driver:
        """Run a program on the cluster with ``spark-submit``, its driver on this machine.

        ``variables`` are of its environment, ``beside`` are folders under other names where it runs.
        """
        folder = self._folder / "driver"
        folder.mkdir(parents=True)
        for name, place in (beside or {}).items():
            (folder / name).symlink_to(place)
        return Driver(folder, self.address, arguments, variables)

    def stop(self) -> None:
        """End all of it."""
        for node in self._nodes:
            node.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Driver:
    """A program that was submitted."""

    def __init__(self, folder: Path, master: str, arguments: tuple[str, ...], variables: Mapping[str, str]) -> None:
        self._log = folder / "log"
        small = {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        settings = [word for name, value in small.items() for word in ("--conf", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [Path(_find_spark_home(), "bin", "spark-submit"), "--master", master, *settings, *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={**_plain_environment(folder, "127.0.0.1"), **variables},
                start_new_session=True,
            )

    def wait_for(self, moment: Callable[[], bool], seconds: float = 300) -> None:
        """Wait for the moment wanted, while the program runs."""
        deadline = time.monotonic() + seconds
        while not moment():
            assert self._process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.02)

    def finish(self, seconds: float = 300) -> int:
        """Wait until it ends by itself; gives its exit status."""
        return self._process.wait(seconds)

    def tail(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-6000:]

    def stop(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _plain_environment(folder: Path, address: str) -> dict[str, str]:
    """What a machine has that knows of Spark and Java alone."""
    java = shutil.which("java")
    assert java is not None
    return {
        "PATH": "/usr/bin:/bin",
        "JAVA_HOME": os.environ.get("JAVA_HOME") or str(Path(java).resolve().parents[1]),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder / 'tmp'} -XX:-UsePerfData",
        "SPARK_HOME": _find_spark_home(),
        "SPARK_LOCAL_IP": address,
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
