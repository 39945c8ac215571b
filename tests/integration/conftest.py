"""One local Spark with Delta and the JVM connector for all tests of a run that need one.

Both adapters are in it: ``dspark-json`` is the connector, and the Python source is registered under a name of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .spark_support import HAS_DELTA, HAS_PYTHON_SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

ROOT = Path(__file__).resolve().parents[2]
IVY = ROOT / "build" / "ivy"
JVM, PYTHON = "dspark-json", "dspark-json-python"


@pytest.fixture(params=[JVM, PYTHON], ids=["jvm", "python"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The name of an adapter for ``format(…)``: a test with it holds for both."""
    if request.param == PYTHON and not HAS_PYTHON_SOURCE:
        pytest.skip("this Spark is too old for the Python source")
    return str(request.param)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores; Python workers run this interpreter and see this source tree."""
    from pyspark.sql import SparkSession

    from dspark_json import configure_spark

    scratch = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [before.get("PYTHONPATH")])])
    os.environ.pop("DSPARK_API_KEY", None)
    settings = {
        "spark.jars.ivy": str(IVY),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch} -XX:-UsePerfData",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.Builder().master("local[2]").appName("dspark-json tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure_spark(builder, delta=HAS_DELTA).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    if HAS_PYTHON_SOURCE:
        session.dataSource.register(_python_source())
    try:
        yield session
    finally:
        session.stop()
        os.environ.clear()
        os.environ.update(before)


def _python_source() -> type[DataSource]:
    """The Python source, under a name that the connector does not have."""
    from dspark_json.source.datasource import DSparkJsonDataSource

    # As if made on a prompt, so that Spark carries the class itself to its Python processes.
    return type(
        "PythonSource", (DSparkJsonDataSource,), {"name": classmethod(lambda cls: PYTHON), "__module__": "__main__"}
    )
