"""The JVM connector beside the Python source: one schema, one checkpoint, one text of errors; workers that die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
import threading
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from serving import elsewhere, hook, serving
from typed_spools import answer, schema
from typed_spools import write as write_typed

from .conftest import JVM, PYTHON
from .spark_support import HAS_DELTA, as_json, drain, needs_python_source, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
KEY = "s3cret-key"
ORDER = schema("order", 1, **{"item name": "string", "n": "integer"})
METRICS = {
    "adapter", "records", "bytes", "parse_time_ms", "mismatches", "invalid", "lost_records", "lag_records",
    "dspark_gpu_kernel_time_ms", "dspark_gpu_fallback_records", "dspark_schema_update_count",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def workers(spark: SparkSession) -> list[int]:
    """The worker processes of this Spark."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    parent = int(jvm.java.lang.ProcessHandle.current().pid())
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_child = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"dspark_json.source.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def kill_workers(spark: SparkSession) -> None:
    killed = workers(spark)
    assert killed
    for worker in killed:
        os.kill(worker, signal.SIGKILL)


def offsets(folder: Path) -> dict[str, str]:
    """The offset of each micro-batch, as the checkpoint has it."""
    files = (folder / "checkpoint" / "offsets").iterdir()
    return {path.name: path.read_text().splitlines()[-1] for path in files if path.name.isdigit()}


@needs_python_source
def test_the_session_has_both_adapters(spark: SparkSession, folder: Path) -> None:
    write(folder, 2)
    for adapter, scan in ((JVM, "BatchScan"), (PYTHON, "python")):
        rows = spark.read.format(adapter).load(str(folder))
        assert rows.count() == 2
        assert scan in rows._jdf.queryExecution().executedPlan().toString()
    assert len(workers(spark)) == 1


@needs_python_source
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"responseSchema": "order"},
        {"contentSchema": "m MAP<STRING, ARRAY<INT>>, s STRUCT<x: DOUBLE>"},
        {"profile": "deepseek,vllm"},
    ],
)
def test_both_have_the_same_schema_metadata_included(
    spark: SparkSession, folder: Path, options: dict[str, str]
) -> None:
    write_typed(folder, answer('{"item name":"x","n":1}', ORDER), registers=(ORDER,))
    found = [spark.read.format(name).options(**options).load(str(folder)) for name in (JVM, PYTHON)]
    assert found[0].schema.json() == found[1].schema.json()
    assert as_json(found[0]) == as_json(found[1])


@needs_python_source
@pytest.mark.parametrize("first", [JVM, PYTHON], ids=["jvm-first", "python-first"])
def test_a_checkpoint_of_one_adapter_goes_on_in_the_other(
    spark: SparkSession, folder: Path, tmp_path: Path, first: str
) -> None:
    second = PYTHON if first == JVM else JVM

    def stream(adapter: str) -> DataFrame:
        reader = spark.readStream.format(adapter).option("maxRecordsPerTrigger", "7").option("minPartitions", "3")
        return reader.load(str(folder)).select("id", "_dspark.seq", "usage")

    ids = write(folder, 10, lanes=2)
    drain(stream(first), tmp_path / "both", "parquet")
    drain(stream(first), tmp_path / "one", "parquet")
    ids += write(folder, 5)
    drain(stream(second), tmp_path / "both", "parquet")
    drain(stream(first), tmp_path / "one", "parquet")
    rows = spark.read.parquet(str(tmp_path / "both" / "table"))
    assert sorted(row["id"] for row in rows.collect()) == sorted(ids)
    assert offsets(tmp_path / "both") == offsets(tmp_path / "one")
    assert len(offsets(tmp_path / "both")) == 4
    # With nothing new, the other adapter finds nothing to do, and writes nothing.
    drain(stream(first), tmp_path / "both", "parquet")
    assert len(offsets(tmp_path / "both")) == 4


class Gate:
    """A server whose answers of records wait, from the third on, until the test lets them go."""

    def __init__(self, app: Any) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._app = app
        self._reads = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/records"):
            self._reads += 1
            if self._reads >= 3:
                self.reached.set()
                await asyncio.to_thread(self.open.wait)
        await self._app(scope, receive, send)


def test_a_worker_killed_in_mid_read_costs_no_row_and_doubles_none(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    ids = write(folder, 200)
    gate = Gate(elsewhere(hook(folder, KEY)))
    with serving(gate) as address:
        frame = spark.readStream.format(JVM).options(vllm_endpoint=address, vllm_api_key=KEY).load()
        query = (
            frame.select("id", "_dspark.seq", "choices")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        try:
            assert gate.reached.wait(60)
            before = workers(spark)
            kill_workers(spark)
            gate.open.set()
            assert query.awaitTermination(120)
        finally:
            gate.open.set()
            query.stop()
        assert set(before).isdisjoint(workers(spark))
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row["seq"] for row in rows) == list(range(200))
    assert {row["id"] for row in rows} == set(ids)
    assert int(query.lastProgress["sources"][0]["metrics"]["resumed_reads"]) == 1


def test_a_worker_killed_between_micro_batches_is_replaced(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    write(folder, 3)
    frame = spark.readStream.format(JVM).option("startingOffsets", "latest").load(str(folder)).select("id")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start(str(tmp_path / "table"))
    ids = []
    try:
        query.processAllAvailable()
        for _ in range(2):
            kill_workers(spark)
            ids += write(folder, 4)
            query.processAllAvailable()
    finally:
        query.stop()
    assert query.exception() is None
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()) == sorted(ids)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def nowhere(folder: Path) -> str:
    return str(folder / "no-such-python")


def bare(folder: Path) -> str:
    venv.create(folder / "bare", with_pip=False)
    return str(folder / "bare/bin/python")


def without_us(folder: Path) -> str:
    return script(folder / "isolated", f'exec {bare(folder)} -I "$@"')


def other_version(folder: Path) -> str:
    program = (
        "import dspark_json, runpy, sys; dspark_json.__version__ = '0.0.9'; sys.argv = sys.argv[2:]; "
        "runpy.run_module('dspark_json.source.worker', run_name='__main__', alter_sys=True)"
    )
    return script(folder / "other", f'exec {sys.executable} -c "{program}" "$@"')


def silent(folder: Path) -> str:
    return script(folder / "silent", "echo something is wrong >&2; exit 7")


@pytest.mark.parametrize(
    ("python", "code", "texts"),
    [
        (nowhere, "DSPARK_JSON_WORKER_START", ["no-such-python -m dspark_json.source.worker", "spark.dspark.python"]),
        (bare, "DSPARK_JSON_WORKER_START", ["bare/bin/python -m dspark_json.source.worker", "has no package"]),
        (without_us, "DSPARK_JSON_WORKER_START", ["isolated -m", "No module named", "dspark_json"]),
        (silent, "DSPARK_JSON_WORKER_START", ["silent -m", "7", "something is wrong"]),
        (other_version, "DSPARK_JSON_WORKER_VERSION", ["0.0.9", "0.1.0", "other"]),
    ],
)
def test_an_interpreter_that_can_not_do_it_is_named_with_what_it_said(
    spark: SparkSession, folder: Path, tmp_path: Path, python: Callable[[Path], str], code: str, texts: list[str]
) -> None:
    write(folder, 1)
    chosen = python(tmp_path)
    for reader in (spark.read, spark.readStream):
        with pytest.raises(Exception, match=code) as caught:
            reader.format(JVM).option("workerPython", chosen).load(str(folder))
        for text in texts:
            assert text in str(caught.value)
        assert "Traceback" not in str(caught.value)


def test_an_interpreter_that_breaks_later_ends_the_query_by_the_same_name(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    write(folder, 1)
    chosen = script(tmp_path / "python", f'exec {sys.executable} "$@"')
    frame = spark.readStream.format(JVM).option("workerPython", chosen).load(str(folder))
    writer = frame.select("id").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        script(tmp_path / "python", "echo it broke >&2; exit 7")
        kill_workers(spark)
        write(folder, 1)
        with pytest.raises(Exception, match="DSPARK_JSON_WORKER_START"):
            query.processAllAvailable()
        failure = str(query.exception())
        assert f"{chosen} -m dspark_json.source.worker" in failure
        assert "it broke" in failure
    finally:
        query.stop()


def message(run: Callable[[], object]) -> str:
    """The text of ours in an error."""
    with pytest.raises(Exception, match="DSPARK_JSON_") as caught:
        run()
    text = str(caught.value)
    return text[text.index("DSPARK_JSON_") :].splitlines()[0].strip()


@needs_python_source
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"mood": "x"}, None),
        ({"maxRecordsPerTrigger": "no"}, None),
        ({"responseSchema": "nobody"}, None),
        ({"contentSchema": "a NOTHING"}, None),
        ({"startingOffsets": "latest"}, None),
        ({"startingOffsets": '{"v":7}'}, None),
        ({"parse_mode": "gpu-accelerated"}, None),
        ({"vllm_endpoint": "http://127.0.0.1:1"}, None),
        ({}, "id string, usage struct<tokens: int>"),
        ({}, "id int"),
        ({"mode": "FAILFAST", "contentSchema": "ARRAY<BIGINT>"}, None),
    ],
)
def test_an_error_has_one_text_in_both(
    spark: SparkSession, folder: Path, options: dict[str, str], columns: str | None
) -> None:
    write(folder, 3)

    def read(adapter: str) -> object:
        reader = spark.read.format(adapter).options(**options)
        return (reader if columns is None else reader.schema(columns)).load(str(folder)).collect()

    assert message(lambda: read(JVM)) == message(lambda: read(PYTHON))


@pytest.fixture(params=["spark", "delta"] if HAS_DELTA else ["spark"])
def catalog(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session with Spark's own session catalog, and one with Delta's, which Spark gives tables in another form."""
    session = spark.newSession()
    if request.param == "spark":
        session.conf.unset("spark.sql.catalog.spark_catalog")
    yield session
    session.sql("drop table if exists kept_answers")


def test_a_table_of_the_catalog_reads_the_spool(catalog: SparkSession, folder: Path) -> None:
    ids = write(folder, 3)
    options = f"path '{folder}', contentSchema 'order_id STRING'"
    catalog.sql(f"create table kept_answers using `dspark-json` options ({options})")
    assert [row["id"] for row in catalog.sql("select id from kept_answers order by id").collect()] == ids
    assert "order_id" in catalog.table("kept_answers").schema.simpleString()
    ids += write(folder, 2)
    assert catalog.table("kept_answers").count() == len(ids)
    with pytest.raises(Exception, match=r"(?i)does not (support|allow)|unsupported|not allowed"):
        catalog.sql("insert into kept_answers select * from kept_answers")


@pytest.mark.parametrize("how", ["options", "tblproperties"])
def test_a_table_keeps_no_key(catalog: SparkSession, folder: Path, how: str) -> None:
    write(folder, 1)
    with pytest.raises(Exception, match="DSPARK_JSON_INVALID_OPTION") as caught:
        catalog.sql(f"create table kept_answers using `dspark-json` {how} (path '{folder}', vllm_api_key '{KEY}')")
    assert "vllm_api_key_file" in str(caught.value)
    assert KEY not in str(caught.value)


@needs_python_source
def test_the_python_source_refuses_a_table(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="TEMPORARY VIEW") as caught:
        spark.sql(f"create table t using `{PYTHON}` options (vllm_endpoint 'http://h:1', vllm_api_key '{KEY}')")
    assert "DSPARK_JSON_INVALID_OPTION" in str(caught.value)


def test_metrics_are_in_the_progress_and_at_the_scan(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    write(folder, 10)
    reader = spark.readStream.format(JVM).options(contentSchema="ARRAY<BIGINT>", maxRecordsPerTrigger="4")
    query = drain(reader.load(str(folder)).select("id", "choices"), tmp_path, "parquet")
    metrics = query.lastProgress["sources"][0]["metrics"]
    assert metrics.keys() >= METRICS
    assert metrics["adapter"] == "jvm"
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [4, 4, 2]
    assert (int(metrics["records"]), int(metrics["lag_records"])) == (10, 0)
    assert int(metrics["bytes"]) > 5_000
    assert int(metrics["invalid"]) + int(metrics["mismatches"]) > 0
    assert query.lastProgress["sources"][0]["latestOffset"] == query.lastProgress["sources"][0]["endOffset"]

    rows = spark.read.format(JVM).load(str(folder)).select("id")
    assert len(rows.collect()) == 10
    plan = rows._jdf.queryExecution().executedPlan()
    while plan.children().size():
        plan = plan.children().head()
    shown = plan.metrics()
    assert shown.get("records").get().value() == 10
    assert shown.get("bytes").get().value() > 5_000


def test_no_key_is_shown_anywhere(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    write(folder, 2)
    with serving(elsewhere(hook(folder, KEY))) as address:
        options = {"vllm_endpoint": address, "vllm_api_key": KEY}
        frame = spark.read.format(JVM).options(**options).load()
        frame.collect()
        stream = spark.readStream.format(JVM).options(**options).load()
        query = drain(stream.select("id"), tmp_path, "parquet")
        shown = [
            frame._jdf.queryExecution().toString(),
            stream._jdf.queryExecution().toString(),
            query._jsq.explainInternal(True),
            json.dumps(query.lastProgress, default=str),
            *(path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()),
        ]
    assert KEY not in "".join(shown)
    for worker in workers(spark):
        assert KEY.encode() not in Path(f"/proc/{worker}/cmdline").read_bytes()


def test_a_session_uses_one_worker_and_takes_its_files_with_it(spark: SparkSession, folder: Path) -> None:
    write(folder, 5, lanes=2)
    frame = spark.read.format(JVM).option("minPartitions", "8").load(str(folder))
    for _ in range(3):
        assert frame.count() == 10
    (worker,) = workers(spark)
    arguments = Path(f"/proc/{worker}/cmdline").read_bytes().split(b"\0")
    path = Path(os.fsdecode(next(one for one in arguments if one.startswith(b"/") and b"python" not in one)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    deadline = time.monotonic() + 10
    kill_workers(spark)
    assert frame.count() == 10
    while path.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not path.parent.exists()
