"""The soak: servers with the hook at a steady rate, clients that leave, servers and readers that are killed.

Three replay servers share a spool: one runs throughout, two are killed (SIGKILL) at random and started again. Two
readers keep tables: one reads the folder and runs throughout, the other reads over HTTP, is killed at random and goes
on from its checkpoint. At the end the servers get SIGTERM in the midst of answers, and both tables are held against
what the clients received.

``python -m soak.run --seconds 600 [--rate 300] [--seed 1] [--json]`` with ``tests`` on the path; 1 where it failed.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from serving import free_port
from soak.clients import Account, Clients
from soak.process import own_mib
from soak.reader import committed, newest_commit, rows_of
from soak.verdict import Memory, Table, failures, judge_memory, judge_table

from dspark_json.replay.process import RunningServer
from dspark_json.spool.layout import lane_folder
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.stats import load_counters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_KEY: Final = "soak-key"
_SERVERS: Final = 3
_STEADY: Final = 2
_DOWN_SEC: Final = 0.5
_WAIT_SEC: Final = 60.0
_SAMPLE_SEC: Final = 0.5
# For the processes that are started: the folder above this package is on the path of this one only.
_TESTS: Final = str(Path(__file__).parents[1])
_PATH: Final = {"PYTHONPATH": os.pathsep.join(filter(None, (_TESTS, os.environ.get("PYTHONPATH"))))}
# What may not stand in a server's log.
_BAD_LINE: Final = re.compile(r"WITHOUT a record|DROPPED|exception inside the hook|are lost|NOT kept")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do; ``pause`` is the mean time between two kills of one process, ``hold_ms`` is DSPARK_HOLD_MS."""

    seconds: float = 60.0
    rate: float = 300.0
    seed: int = 1
    pause: float = 8.0
    hold_ms: int = 1000


@dataclass(slots=True)
class Outcome:
    """What came of it; ``failures`` empty is right."""

    seed: int
    seconds: float
    account: Account
    kills: dict[str, int]
    tables: dict[str, Table]
    memory: dict[str, Memory]
    counters: dict[str, int]
    reader_errors: dict[str, int]
    failures: list[str]

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        account = self.account
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "asked": account.asked,
            "whole": len(account.whole),
            "whole_streamed": account.streamed,
            "whole_per_second": round(len(account.whole) / self.seconds, 1),
            "left": len(account.left) + account.left_unanswered,
            "cut": sum(account.cut.values()),
            "refused": account.refused,
            "late": account.late,
            "kills": self.kills,
            "rows": {name: table.rows for name, table in self.tables.items()},
            "lost": {name: len(table.lost) + len(table.lost_of_left) for name, table in self.tables.items()},
            "twice": {name: len(table.twice) for name, table in self.tables.items()},
            "memory_mib": {name: dataclasses.asdict(memory) for name, memory in self.memory.items()},
            "counters": self.counters,
            "reader_errors": self.reader_errors,
            "failures": self.failures,
        }

    def lines(self) -> list[str]:
        """For people."""
        told = self.document()
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items())
        lines = [
            (
                f"{told['seconds']} s, seed {self.seed}: {told['asked']} requests, {told['whole']} answers whole "
                f"({told['whole_per_second']}/s, {told['whole_streamed']} streamed), {told['left']} left by clients, "
                f"{told['cut']} cut, {told['refused']} refused, {told['late']} not asked"
            ),
            f"killed: {kills}; reader errors: {self.reader_errors or 'none'}",
            f"counters: {self.counters}",
        ]
        for name, table in self.tables.items():
            lines.append(
                f"{name}: {table.rows} rows, lost {told['lost'][name]}, twice {told['twice'][name]}, "
                f"holes {len(table.holes)}, wrong {len(table.wrong)}"
            )
        for name, memory in self.memory.items():
            lines.append(f"memory of the {name}: {memory.before} → {memory.after} MiB, at most {memory.most}")
        return [*lines, *(f"FAILED: {failure}" for failure in self.failures)]


class Server:
    """A server that may be killed and started again, on its port and on the spool of all."""

    def __init__(self, number: int, folder: Path, spool: Path, plan: Plan) -> None:
        self.port = free_port()
        self.log = folder / f"server-{number}.log"
        self._settings = {
            **_PATH,
            "DSPARK_SPOOL": str(spool),
            "DSPARK_API_KEY": _KEY,
            "DSPARK_DURABILITY": "write",
            "DSPARK_HOLD_MS": str(plan.hold_ms),
            # Small, so that lanes roll and retention deletes while readers read.
            "DSPARK_SEGMENT_MB": "2",
            "DSPARK_RETENTION_MB": "96",
        }
        self.running: RunningServer | None = None

    def start(self) -> None:
        """Start it; returns once it takes requests."""
        arguments = ["--port", str(self.port), "--speed", "3"]
        self.running = RunningServer("remote_server", arguments, settings=self._settings, log=self.log)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.running is not None
        self.running.kill()

    def end(self) -> None:
        """SIGTERM, and wait: a busy machine takes its time, and what is killed meanwhile has no records."""
        if self.running is not None:
            if self.running.running:
                os.kill(self.running.pid, signal.SIGTERM)
            deadline = time.monotonic() + _WAIT_SEC
            while self.running.running and time.monotonic() < deadline:
                time.sleep(0.02)
            self.running.stop()


class Reader:
    """A reader that may be killed, and is started again where it ended."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        self.errors: collections.Counter[str] = collections.Counter()
        self._options = {**options, "maxRecordsPerTrigger": "2000", "minPartitions": "3"}
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it."""
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "soak.reader", str(self.folder), json.dumps(self._options)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **_PATH},
            )

    def kill(self) -> None:
        """SIGKILL, if it has not failed by itself."""
        process = self._process
        if process is not None:
            self._process = None
            process.kill()
            self._note(process)

    def revive(self) -> None:
        """Start it again if it has failed."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._note(process)
            self.start()

    def _note(self, process: subprocess.Popen[str]) -> None:
        told, _ = process.communicate()
        if process.returncode != -signal.SIGKILL:
            self.errors[told.strip() or f"exit status {process.returncode}"] += 1


@dataclass(slots=True)
class Soak:
    """One run, in a folder of its own."""

    plan: Plan
    folder: Path
    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    restarts: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> Outcome:
        """Do all of it."""
        plan, spool = self.plan, self.folder / "spool"
        source = random.Random(plan.seed)
        servers = [Server(number, self.folder, spool, plan) for number in range(_SERVERS)]
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
        # The steady server comes last: over HTTP the first one that answers gives the records of all.
        addresses = ",".join(f"http://127.0.0.1:{server.port}" for server in servers)
        steady = Reader(self.folder / "steady", {"path": str(spool)})
        restarted = Reader(self.folder / "restarted", {"vllm_endpoint": addresses, "vllm_api_key": _KEY})
        readers = [steady, restarted]
        try:
            for reader in readers:
                reader.start()
            clients = Clients([server.port for server in servers], plan.rate, random.Random(source.random()))
            enough = asyncio.Event()
            asking = asyncio.create_task(clients.run(enough))
            samples: dict[str, list[float]] = {"steady server": [], "steady reader": []}
            steady_server = servers[_STEADY].running
            assert steady_server is not None
            began = time.monotonic()
            looking = asyncio.create_task(self._look(samples, steady_server.pid, readers))
            await self._wait(lambda: all(committed(reader.folder) for reader in readers))  # a first start wants all
            trouble = [
                looking,
                *(
                    asyncio.create_task(self._kill_servers(s, random.Random(source.random())))
                    for s in servers[:_STEADY]
                ),
                asyncio.create_task(self._kill_readers(restarted, random.Random(source.random()))),
            ]
            left = began + plan.seconds - time.monotonic()
            done, _ = await asyncio.wait([asking, *trouble], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            for task in trouble:
                task.cancel()
            await asyncio.gather(*trouble, return_exceptions=True)
            await asyncio.gather(*self.restarts)
            # With answers under way: what clients have of them counts too.
            await asyncio.gather(*(asyncio.to_thread(server.end) for server in servers))
            seconds = time.monotonic() - began
            enough.set()
            await asking
            await asyncio.to_thread(servers[0].start)
            ends = {lane: extent.next for lane, extent in SpoolReader(spool).offsets().lanes.items()}
            await self._wait(
                lambda: all(committed(reader.folder) == ends for reader in readers),
                lambda: _revive(readers),
            )
        finally:
            for reader in readers:
                reader.kill()
            for server in servers:
                server.end()
        return self._outcome(seconds, clients.account, samples, ends, servers, readers)

    async def _kill_servers(self, server: Server, source: random.Random) -> None:
        while True:
            await asyncio.sleep(source.expovariate(1 / self.plan.pause))
            self.kills["servers"] += 1
            # Not to be cut short by the end of the run: the process would be nobody's.
            restart = asyncio.create_task(self._restart(server, source.uniform(0, _DOWN_SEC)))
            self.restarts.append(restart)
            await asyncio.shield(restart)

    async def _restart(self, server: Server, pause: float) -> None:
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(pause)
        await asyncio.to_thread(server.start)

    async def _kill_readers(self, reader: Reader, source: random.Random) -> None:
        while True:
            # Not again before it has gone on: on a busy machine it would be killed while it starts, for ever.
            before = newest_commit(reader.folder)
            await self._wait(lambda before=before: newest_commit(reader.folder) > before)
            await asyncio.sleep(source.expovariate(2 / self.plan.pause))
            self.kills["readers"] += 1
            reader.kill()
            reader.start()

    async def _look(self, samples: Mapping[str, list[float]], server: int, readers: Sequence[Reader]) -> None:
        while True:
            _revive(readers)
            for name, pid in (("steady server", server), ("steady reader", readers[0].pid)):
                samples[name].append(own_mib(pid))
            await asyncio.sleep(_SAMPLE_SEC)

    async def _wait(self, moment: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + _WAIT_SEC
        while not moment() and time.monotonic() < deadline:
            meanwhile()
            await asyncio.sleep(0.1)

    def _outcome(
        self,
        seconds: float,
        account: Account,
        samples: Mapping[str, list[float]],
        ends: Mapping[str, int],
        servers: Sequence[Server],
        readers: Sequence[Reader],
    ) -> Outcome:
        tables = {
            f"{reader.folder.name} reader": judge_table(rows_of(reader.folder), account, ends, _STEADY)
            for reader in readers
        }
        memory = {name: judge_memory(values, seconds) for name, values in samples.items()}
        counters: collections.Counter[str] = collections.Counter()
        for lane in ends:
            counters.update(load_counters(lane_folder(self.folder / "spool", lane)).snapshot())
        errors: collections.Counter[str] = collections.Counter()
        for reader in readers:
            errors.update(reader.errors)
        lines = [
            line
            for server in servers
            for line in server.log.read_text(errors="replace").splitlines()
            if _BAD_LINE.search(line)
        ]
        return Outcome(
            self.plan.seed,
            seconds,
            account,
            dict(self.kills),
            tables,
            memory,
            dict(counters),
            dict(errors),
            failures(tables, memory, counters, errors, lines),
        )


def _revive(readers: Sequence[Reader]) -> None:
    for reader in readers:
        reader.revive()


def soak(plan: Plan, folder: Path) -> Outcome:
    """Run a soak in an empty folder, where its logs are found afterwards."""
    return asyncio.run(Soak(plan, folder).run())


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Every answer once, while servers and readers are killed.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=300.0, help="requests a second (300)")
    parser.add_argument("--seed", type=int, default=None, help="of what is random (drawn, and told)")
    parser.add_argument("--pause", type=float, default=8.0, help="mean seconds between two kills of a process (8)")
    parser.add_argument("--hold-ms", type=int, default=1000, help="DSPARK_HOLD_MS of the servers (1000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in, which is kept")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    plan = Plan(given.seconds, given.rate, seed, given.pause, given.hold_ms)
    place = Path("/dev/shm")
    with contextlib.ExitStack() as stack:
        folder = given.folder
        if folder is None:
            temporary = tempfile.TemporaryDirectory(
                prefix="dspark-soak-", dir=place if place.is_dir() else None, ignore_cleanup_errors=True
            )
            folder = Path(stack.enter_context(temporary))
        else:
            folder.mkdir(parents=True, exist_ok=True)
        outcome = soak(plan, folder)
    print(json.dumps(outcome.document()) if given.json else "\n".join(outcome.lines()))
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
