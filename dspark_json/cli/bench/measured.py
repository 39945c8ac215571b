"""A running ``BurstApp`` server, its CPU time, its memory, and how many records its hook has written."""

from __future__ import annotations

import contextlib
import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from dspark_json.cli.bench.load import Load, LoadGenerator, Yield, run_load
from dspark_json.cli.bench.server import CPU_PATH
from dspark_json.errors import DSparkJsonError, SpoolNotFoundError
from dspark_json.replay.process import RunningServer
from dspark_json.scratch import scratch_folder
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DRAIN_SEC: Final = 5.0
_TOUCHED_BYTES: Final = 256 << 20  # more than a round's records


def touch_memory() -> None:
    """Use memory for the spool once and give it back.

    On a virtual machine the first use of a page may take the host a multiple of the time that writing to it takes, and
    the kernel counts that as the writer's.
    """
    with mmap.mmap(-1, _TOUCHED_BYTES) as memory:
        for page in range(0, _TOUCHED_BYTES, mmap.PAGESIZE):
            memory[page] = 1


@dataclass(frozen=True, slots=True)
class Spent:
    """What a load took of the server (CPU of all threads in µs) and what came; answers without a record are counted."""

    cpu_us: float
    unrecorded: int
    got: Yield

    @property
    def cpu_us_per_answer(self) -> float:
        """CPU of the server process per answer."""
        return self.cpu_us / self.got.answers

    @property
    def answers_per_second(self) -> float:
        """Throughput."""
        return self.got.answers / self.got.seconds


def joined(parts: Sequence[Spent]) -> Spent:
    """What several loads took together."""
    got = [part.got for part in parts]
    return Spent(
        sum(part.cpu_us for part in parts),
        sum(part.unrecorded for part in parts),
        Yield(
            sum(one.answers for one in got),
            sum(one.failures for one in got),
            sum(one.seconds for one in got),
            sum(one.cpu_s for one in got),
            [time for one in got for time in one.latencies_ms],
            [time for one in got for time in one.first_ms],
        ),
    )


class BenchServer:
    """A server to measure, with the hook (and then its spool folder) or without."""

    def __init__(self, running: RunningServer, spool: Path | None) -> None:
        self._running = running
        self.spool = spool
        parts = urlsplit(running.address)
        self.host, self.port = str(parts.hostname), int(str(parts.port))

    def measure(self, load: Load, generator: LoadGenerator | None = None) -> Spent:
        """Run a load and tell what it took; the hook's own lag is waited for and counted."""
        cpu, records = self._cpu_ns(), self._records()
        got = run_load(load) if generator is None else generator.run(load)
        if got.failures or not got.answers:
            raise DSparkJsonError(f"{got.failures} answers of the measured server were not as expected")
        unrecorded = 0 if self.spool is None else got.answers - (self._drained(records + got.answers) - records)
        return Spent((self._cpu_ns() - cpu) / 1000, unrecorded, got)

    def memory_bytes(self) -> int:
        """Resident memory of the server process."""
        status = Path(f"/proc/{self._running.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    def _cpu_ns(self) -> int:
        answer = httpx.get(f"{self._running.address}{CPU_PATH}", trust_env=False)
        return int(answer.json()["cpu_ns"])

    def _records(self) -> int:
        if self.spool is None:
            return 0
        try:
            return sum(extent.next for extent in SpoolReader(self.spool).offsets().lanes.values())
        except SpoolNotFoundError as error:
            raise DSparkJsonError("the hook of the measured server is off", remedy="See its log.") from error

    def _drained(self, expected: int) -> int:
        deadline = time.monotonic() + _DRAIN_SEC
        while (records := self._records()) < expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return records


@contextlib.contextmanager
def bench_server(*, hook: bool, durability: str = "async") -> Iterator[BenchServer]:
    """Start a server to measure; its spool is in shared memory where there is any, and is removed."""
    with scratch_folder("dspark-bench-", in_memory=True) as folder:
        spool = folder / "spool" if hook else None
        settings = {} if spool is None else {"DSPARK_SPOOL": str(spool), "DSPARK_DURABILITY": durability}
        arguments = () if hook else ("--no-hook",)
        with RunningServer(
            "dspark_json.cli.bench.server", arguments, settings=settings, log=folder / "server.log"
        ) as running:
            yield BenchServer(running, spool)
