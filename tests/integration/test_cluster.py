"""A standalone cluster and three servers on other machines: exactly once though machines and servers are killed."""

from __future__ import annotations

import collections
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
from clients import Clients
from cluster import Cluster, Driver, Node, can_have_views
from packed_environment import make_environment, pack
from serving import hook, serving

from dspark_json.replay.process import RunningServer
from dspark_json.spark import connector_jar
from dspark_json.spool.reader import SpoolReader

from .spark_support import write

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
KEY = "k3y-of-the-hook"
# The other adapter goes the same way as in the other tests; this takes half a minute for each.
ADAPTERS = ["jvm", "python"] if os.environ.get("DSPARK_CLUSTER_TESTS") == "all" else ["jvm"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "env"
    make_environment(folder)
    return folder


class Server:
    """A server on another machine: its folder can be opened neither by the driver nor by executors."""

    def __init__(self, folder: Path) -> None:
        self.spool = folder / "spool"
        self._log = folder.with_suffix(".log")
        self._port = "0"
        self.start()
        self._port = self.address.rsplit(":", 1)[1]
        self.clients = Clients(self.address, threads=1)

    def start(self) -> None:
        settings = {"DSPARK_SPOOL": str(self.spool), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": KEY}
        settings["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        self._process = RunningServer(
            "remote_server", ["--speed", "5", "--port", self._port], settings=settings, log=self._log
        )
        self.address = self._process.address

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self.clients.stop()
        self._process.stop()

    def written(self) -> set[tuple[str, str, int]]:
        """(spool_id, lane, seq) of all its records."""
        offsets = SpoolReader(self.spool).offsets()
        return {
            (offsets.spool_id, lane, seq)
            for lane, extent in offsets.lanes.items()
            for seq in range(extent.first, extent.next)
        }


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    running: list[Server] = []
    try:
        running.extend(Server(tmp_path / f"server{n}") for n in range(3))
        yield running
    finally:
        for server in running:
            server.stop()


def submit(cluster: Cluster, adapter: str, environment: Path, folder: Path, servers: list[Server]) -> Driver:
    """The job with an environment that is sent with it, by the settings of docs/spark.md."""
    archive = pack(environment, folder / "env.tar.gz")
    job = [str(Path(__file__).with_name("cluster_job.py")), "--table", str(folder / "table")]
    job += ["--checkpoint", str(folder / "checkpoint"), "--endpoint", ",".join(s.address for s in servers)]
    variables = {"PYSPARK_PYTHON": "./env/bin/python", "DSPARK_API_KEY": KEY}
    if adapter == "jvm":
        variables |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        return cluster.submit("--jars", str(connector_jar()), "--archives", f"{archive}#env", *job, variables=variables)
    return cluster.submit("--archives", f"{archive}#env", *job, variables=variables, beside={"env": environment})


def committed(table: Path) -> list[Path]:
    """The files of a table that its log has."""
    log = table / "_spark_metadata"
    compacted = max(log.glob("*.compact"), key=lambda entry: int(entry.stem), default=None)
    later = [p for p in log.glob("[0-9]*") if p.name.isdigit() and (not compacted or int(p.name) > int(compacted.stem))]
    lines = [line for p in filter(None, [compacted, *later]) for line in p.read_text().splitlines()[1:]]
    return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]


def rows_of(table: Path) -> list[tuple[str, str, int, str]]:
    """(spool_id, lane, seq, id) of the rows of a table."""
    rows = []
    for path in committed(table):
        part = pyarrow.parquet.read_table(path, columns=["spool_id", "lane", "seq", "id"], partitioning=None)
        rows.extend((row["spool_id"], row["lane"], row["seq"], row["id"]) for row in part.to_pylist())
    return rows


def batches(table: Path) -> int:
    """How many micro-batches are in a table."""
    return len({entry.stem for entry in (table / "_spark_metadata").glob("[0-9]*")})


def interpreters(node: Node) -> set[str]:
    """What runs Python on a node."""
    return {line[0] for line in node.processes(b"python", b"\0-m\0").values()}


def files_with(text: str, *folders: Path) -> list[Path]:
    """The files that hold a text."""
    found = []
    for folder in folders:
        for place, _, names in os.walk(folder):
            files = (Path(place, name) for name in names if "site-packages" not in place)
            found += [path for path in files if path.is_file() and text.encode() in path.read_bytes()]
    return found


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_answer_lands_once_though_machines_and_a_server_are_killed(
    servers: list[Server], environment: Path, tmp_path: Path, adapter: str
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with Cluster(tmp_path / "cluster") as cluster:
        lost, kept = cluster.workers
        job = submit(cluster, adapter, environment, tmp_path, servers)
        try:
            job.wait_for(lambda: batches(table) >= 1 and all(map(interpreters, cluster.workers)))
            servers[1].kill()
            lost.kill()
            begun = batches(table)
            time.sleep(1)
            servers[1].start()
            job.wait_for(lambda: batches(table) >= begun + 2)

            # An executor alone: its Python processes end with it, and the machine gets another one.
            (executor,) = kept.executors()
            pythons = kept.processes(b"python", b"\0-m\0")
            os.kill(executor, signal.SIGKILL)
            deadline = time.monotonic() + 5
            while pythons.keys() & kept.processes(b"python").keys():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            begun = batches(table)
            job.wait_for(lambda: batches(table) >= begun + 2)
            for server in servers:
                server.clients.stop()
            written = set.union(*(server.written() for server in servers))
            job.wait_for(lambda: len(rows_of(table)) >= len(written))
            assert interpreters(kept) == {"./env/bin/python"}
            assert kept.processes(KEY.encode()) == {}
        finally:
            job.stop()
    rows = rows_of(table)
    keys = collections.Counter(row[:3] for row in rows)
    ids = collections.Counter(row[3] for row in rows if row[3] is not None)
    assert [key for key, count in keys.items() if count > 1] == []
    assert set(keys) == written
    for server in servers:
        assert len(server.clients.complete) > 10
        assert [answer for answer in server.clients.complete if ids[answer] != 1] == []
    assert files_with(KEY, tmp_path / "cluster", checkpoint, table) == []


@pytest.mark.skipif(not can_have_views(), reason="this user may not give processes another view of the files")
def test_what_executors_can_not_see_is_read_over_http_or_is_a_named_error(environment: Path, tmp_path: Path) -> None:
    seen, instead = tmp_path / "spools", tmp_path / "instead"
    write(seen / "spool", 7, lanes=2)
    write(seen / "other", 5)
    write(instead / "other", 3)  # executors have another spool in that folder
    with (
        serving(hook(seen / "spool", KEY)) as address,
        Cluster(tmp_path / "cluster", workers=1, view=(instead, seen)) as cluster,
    ):
        both = {"vllm_endpoint": address, "endpointTimeoutSec": "5"}
        options = [
            {"path": str(seen / "spool")},
            {"path": str(seen / "other"), "failOnDataLoss": "false"},
            both,
            {**both, "vllm_api_key": KEY},
        ]
        reads = [{"format": name, "options": one} for name in ("dspark-json", "dspark-json-python") for one in options]
        python = str(environment / "bin" / "python")
        job = cluster.submit(
            "--jars",
            str(connector_jar()),
            "--conf",
            f"spark.dspark.python={python}",
            "--conf",
            "spark.task.maxFailures=1",
            str(Path(__file__).with_name("cluster_reads.py")),
            json.dumps(reads),
            str(tmp_path / "results"),
            variables={"PYSPARK_PYTHON": python},
        )
        try:
            assert job.finish() == 0, job.tail()
        finally:
            job.stop()
    results = json.loads((tmp_path / "results").read_text())
    for folder, replaced, no_key, rows in (results[:4], results[4:]):
        assert "DSPARK_JSON_SPOOL_ELSEWHERE" in folder
        assert str(seen / "spool") in folder
        assert "DSPARK_JSON_SPOOL_ELSEWHERE" in replaced
        assert "DSPARK_JSON_SPOOL_ELSEWHERE" in no_key or "DSPARK_JSON_ENDPOINT_KEY" in no_key
        assert "vllm_api_key" in no_key
        assert rows == 14
