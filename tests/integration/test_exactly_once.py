"""Exactly once into Delta while Spark and the server are killed and restarted, under adapters that change."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
from clients import Clients

from dspark_json.replay.process import RunningServer
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


class Job:
    """The streaming job in a process group of its own, so that SIGKILL takes the JVM and its Python workers too."""

    def __init__(self, folder: Path, address: str, adapter: str, *options: str) -> None:
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"
        self._log = folder / "job.log"
        command = [sys.executable, str(Path(__file__).with_name("stream_job.py")), "--endpoint", address]
        command += ["--table", str(self.table), "--checkpoint", str(self.checkpoint), "--ivy", str(ROOT / "build/ivy")]
        command += ["--adapter", adapter]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "DSPARK_API_KEY": "k"},
                start_new_session=True,
            )

    def newest(self, kind: str) -> int:
        """The newest batch in the checkpoint's ``offsets`` or ``commits``; -1 where there is none."""
        return max((int(p.name) for p in self.checkpoint.glob(f"{kind}/*") if p.name.isdigit()), default=-1)

    def versions(self) -> int:
        """How many commits the table has."""
        return len(list(self.table.glob("_delta_log/*.json")))

    def kill_when(self, moment: Callable[[], bool]) -> None:
        """SIGKILL everything at the moment wanted."""
        self.wait_for(moment)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def processes(self, *words: bytes) -> list[int]:
        """The processes of the group whose command line has all these words."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if os.getpgid(int(entry.name)) == self.process.pid and all(word in line for word in words):
                    found.append(int(entry.name))
        return found

    def kill_jvm(self) -> None:
        """SIGKILL the JVM alone, and see its worker end by itself; then everything else."""
        jvm = min(self.processes(b"java", b"org.apache.spark.deploy.SparkSubmit"))  # a fork of it may be under way
        assert len(self.processes(b"dspark_json.source.worker")) == 1
        os.kill(jvm, signal.SIGKILL)
        deadline = time.monotonic() + 2
        while self.processes(b"dspark_json.source.worker"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, moment: Callable[[], bool]) -> None:
        """Wait for the moment wanted."""
        deadline = time.monotonic() + 300
        while not moment():
            assert self.process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.001)

    def finish(self) -> None:
        """Wait until it ends by itself, without an error."""
        assert self.process.wait(300) == 0, self.tail()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def rows_of(table: Path) -> list[tuple[str, str, int, str]]:
    """(spool_id, lane, seq, id) of the rows in the table's current version."""
    live: dict[str, None] = {}
    for version in sorted(table.glob("_delta_log/*.json")):
        for line in version.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = None
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
    rows = []
    for path in live:
        part = pyarrow.parquet.read_table(table / path, columns=["spool_id", "lane", "seq", "id"])
        rows.extend((row["spool_id"], row["lane"], row["seq"], row["id"]) for row in part.to_pylist())
    return rows


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_answer_lands_once_though_spark_and_the_server_are_killed(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    settings = {"DSPARK_SPOOL": str(spool), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": "k"}
    server = RunningServer(arguments=["--speed", "5"], settings=settings, log=tmp_path / "server.log")
    port = server.address.rsplit(":", 1)[1]
    clients = Clients(server.address)
    try:
        # In mid-batch: the offsets of a batch are logged, its commit is not, and the table does not have it yet.
        job = Job(tmp_path, server.address, "jvm")
        seen = {"versions": 0}

        def in_mid_batch() -> bool:
            running = job.newest("offsets") > max(job.newest("commits"), 0)
            seen["versions"] = job.versions()
            return running and seen["versions"] == job.newest("offsets")

        job.kill_when(in_mid_batch)
        assert job.newest("offsets") > job.newest("commits")

        server.kill()
        time.sleep(0.3)
        server = RunningServer(
            arguments=["--speed", "5", "--port", port], settings=settings, log=tmp_path / "server.log"
        )

        # Between the offset log and the commit log, with the batch already in the table: its rows must not come twice.
        job = Job(tmp_path, server.address, "python")
        behind = job.newest("commits")

        def in_table_but_not_committed() -> bool:
            newest = job.newest("offsets")
            return newest > max(job.newest("commits"), behind + 1) and job.versions() > newest

        job.kill_when(in_table_but_not_committed)
        pending = job.newest("offsets")
        if job.newest("commits") == pending:  # the kill came a moment late: put the log back to that moment
            (job.checkpoint / "commits" / str(pending)).unlink()
            (job.checkpoint / "commits" / f".{pending}.crc").unlink(missing_ok=True)

        # The server is killed under a running query, too.
        job = Job(tmp_path, server.address, "jvm")
        resumed_at = job.newest("commits")
        job.wait_for(lambda: job.newest("commits") >= resumed_at + 2)
        server.kill()
        server = RunningServer(
            arguments=["--speed", "5", "--port", port], settings=settings, log=tmp_path / "server.log"
        )
        time.sleep(1)
        committed = job.newest("commits")
        job.wait_for(lambda: job.newest("commits") > committed)
        job.kill_jvm()
    finally:
        clients.stop()
        server.stop()

    # The folder alone is enough to finish, but the address must answer at a fresh start: so start the server again.
    with RunningServer(arguments=["--port", port], settings=settings, log=tmp_path / "server.log") as server:
        Job(tmp_path, server.address, "python", "--drain").finish()

    rows = rows_of(tmp_path / "table")
    offsets = SpoolReader(spool).offsets()
    written = {
        (offsets.spool_id, lane, seq)
        for lane, extent in offsets.lanes.items()
        for seq in range(extent.first, extent.next)
    }
    keys = collections.Counter(row[:3] for row in rows)
    ids = collections.Counter(row[3] for row in rows if row[3] is not None)
    assert [key for key, count in keys.items() if count > 1] == []
    assert set(keys) == written
    assert len(clients.complete) > 100
    assert [answer for answer in clients.complete if ids[answer] != 1] == []
