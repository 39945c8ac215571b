"""A local Spark for measurements, which keeps its files and its log in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli import output
from dspark_json.errors import DSparkJsonError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PYTHON_SOURCE: Final = "dspark-json-python"

_IVY: Final = Path("build", "ivy")  # of a checkout: what the demo and the tests have there is not got again


@contextlib.contextmanager
def local_spark(
    folder: Path, *, cores: int = 1, connector: bool = False, delta: bool = False, remedy: str
) -> Iterator[SparkSession]:
    """A Spark with so many cores; raises ``DSparkJsonError``, with ``remedy``, where it does not start.

    With ``connector`` both adapters are in it: ``dspark-json`` is the JVM connector, ``PYTHON_SOURCE`` the Python
    source.
    """
    from pyspark.sql import SparkSession

    from dspark_json.spark import configure_spark

    log = folder / "spark.log"
    settings = {
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{folder}" -XX:-UsePerfData',
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",  # all micro-batches of a run
    }
    if delta:
        settings["spark.databricks.delta.snapshotPartitions"] = "1"
        if _IVY.is_dir():
            settings["spark.jars.ivy"] = str(_IVY.absolute())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(f"local[{cores}]").appName("dspark-json bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if connector:
        builder = configure_spark(builder, delta=delta)
    try:
        with output.redirected(log, 2):
            spark = builder.getOrCreate()
    except Exception as error:
        said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        raise DSparkJsonError(
            f"Spark did not start: {str(error).strip().splitlines()[0]}", remedy="; ".join([remedy, *said])
        ) from error
    try:
        if connector:
            _register_python_source(spark)
        yield spark
    finally:
        spark.stop()


def jvm_pid(spark: SparkSession) -> int:
    """The number of the JVM's process."""
    return int(_jvm(spark).java.lang.ProcessHandle.current().pid())


def collect_garbage(spark: SparkSession) -> None:
    """Let the JVM begin a run with nothing to clear away."""
    _jvm(spark).java.lang.System.gc()


def _jvm(spark: SparkSession) -> Any:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to its process
    assert jvm is not None
    return jvm


def _register_python_source(spark: SparkSession) -> None:
    from dspark_json.source.datasource import DSparkJsonDataSource

    # As if made on a prompt, so that Spark carries the class itself to its Python processes.
    members = {"name": classmethod(lambda cls: PYTHON_SOURCE), "__module__": "__main__"}  # noqa: ARG005
    spark.dataSource.register(type("PythonSource", (DSparkJsonDataSource,), members))
