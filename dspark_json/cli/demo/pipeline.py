"""The demo's Spark side: a session with Delta, and the streaming query from a server to a table."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from dspark_json.cli import output
from dspark_json.errors import ConnectorMissingError, DSparkJsonError, MissingPackageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dspark_json.cli.demo.answers import TypedAnswers
    from dspark_json.cli.demo.folder import DemoFolder
    from dspark_json.cli.demo.verdict import RowKey

_TRIGGER: Final = "1 second"

Adapter = Literal["JVM connector", "Python source"]


class Pipeline:
    """The session and its one query: server → Delta table, with a checkpoint."""

    def __init__(self, folder: DemoFolder) -> None:
        """Start a local Spark with Delta; what it and Ivy say goes to the folder's ``spark.log``."""
        self._folder = folder
        self._rows: dict[int, int] = {}
        self._query: StreamingQuery | None = None
        self.adapter = _adapter()
        with output.redirected(folder.spark_log, 1, 2):
            self._spark = _session(folder, self.adapter)

    def start(self, options: dict[str, str]) -> None:
        """Start the query with these options of the source."""
        folder = self._folder
        rows = self._spark.readStream.format("dspark-json").options(**options).load()
        self._query = (
            rows.writeStream.format("delta")
            .option("checkpointLocation", str(folder.checkpoint))
            .outputMode("append")
            .trigger(processingTime=_TRIGGER)
            .start(str(folder.table))
        )

    def rows_written(self) -> int:
        """Rows of the micro-batches that are done; raises ``DSparkJsonError`` if the query has failed."""
        assert self._query is not None
        for progress in self._query.recentProgress:
            self._rows[progress["batchId"]] = progress["numInputRows"]
        failure = self._query.exception()
        if failure is not None:
            raise DSparkJsonError(
                f"the Spark query failed: {_first_line(str(failure))}",
                remedy=f"Spark's log is {self._folder.spark_log}.",
            )
        return sum(self._rows.values())

    def table_rows(self) -> list[tuple[RowKey, str | None]]:
        """Key and answer id of every row of the table."""
        if not (self._folder.table / "_delta_log").exists():
            return []
        found = self._table().selectExpr("_dspark.spool_id", "_dspark.lane", "_dspark.seq", "id").collect()
        return [((row[0], row[1], row[2]), row[3]) for row in found]

    def sample(self, count: int) -> list[tuple[Any, ...]]:
        """The newest rows with JSON for content: id, created, content, tokens."""
        worth_a_look = "choices[0].message.content like '{%' and usage.total_tokens is not null"
        newest = self._table().where(worth_a_look).orderBy("created", "id", ascending=False)
        columns = ("id", "created", "choices[0].message.content", "usage.total_tokens")
        return [tuple(row) for row in newest.selectExpr(*columns).limit(count).collect()]

    def typed(self, schema: str, options: dict[str, str], count: int) -> TypedAnswers:
        """The answers asked for with a schema, read once more from the server, as values; ``count`` of them."""
        from dspark_json.cli.demo.answers import typed_answers

        return typed_answers(self._spark, schema, options, count)

    def close(self) -> None:
        """End the query and Spark."""
        if self._query is not None:
            self._query.stop()
        self._spark.stop()

    def _table(self) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._folder.table))


def _adapter() -> Adapter:
    """What reads: the connector, if its jar is part of this installation."""
    from dspark_json.spark import connector_jar

    try:
        connector_jar()
    except ConnectorMissingError:
        return "Python source"
    return "JVM connector"


def _session(folder: DemoFolder, adapter: Adapter) -> SparkSession:
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    from dspark_json.spark import configure_spark

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    ivy = Path("build", "ivy").absolute()
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.ivy": str(ivy),
        "spark.local.dir": str(folder.spark),
        "spark.sql.warehouse.dir": str(folder.spark / "warehouse"),
        "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{folder.spark}" -XX:-UsePerfData',
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.Builder().master("local[2]").appName("dspark-json demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    before = _children()
    try:
        with_delta = configure_spark_with_delta_pip(builder)
        session = (configure_spark(with_delta) if adapter == "JVM connector" else with_delta).getOrCreate()
    except KeyboardInterrupt:
        # A JVM that has not come up yet does not notice that its Python has gone.
        for process in _children() - before:
            os.kill(process, signal.SIGKILL)
        raise
    except Exception as error:
        log = folder.spark_log.read_text(errors="replace") if folder.spark_log.exists() else ""
        if "unresolved dependency" in log:
            raise MissingPackageError(
                "Delta's jars are not here and could not be fetched",
                remedy=f"Run it once with network access; they are kept in {ivy}.",
            ) from error
        raise DSparkJsonError(
            f"Spark did not start: {_first_line(str(error))}", remedy=f"Its log is {folder.spark_log}."
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _children() -> set[int]:
    """The processes that this one has started."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry.name))
    return found


def _first_line(text: str) -> str:
    """The line of an error of Spark that says the most: ours if there is one, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "DSPARK_JSON_" in line), lines[0] if lines else "no reason given")
