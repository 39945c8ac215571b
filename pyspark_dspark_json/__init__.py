"""Lets Spark find the Python data source by name: ``spark.readStream.format("dspark-json")`` without a jar.

Spark imports this module in the Python that it runs, which may not be the one with this package's requirements (a
checkout in the working folder is enough to find it). Then the data source says so, rather than a traceback.
"""

from __future__ import annotations

import os
import sys

__all__ = ["DefaultSource"]

try:
    from dspark_json.source.datasource import DSparkJsonDataSource as DefaultSource
except ImportError as error:
    from pyspark import __version__
    from pyspark.sql.datasource import DataSource

    from dspark_json.errors import MissingPackageError

    # Spark 4.0 and 4.1 have no limits for what a Python source puts into a micro-batch, and so none of their names.
    _OLD = (error.name or "").startswith("pyspark.")
    _MISSING = error.name

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Stands for the data source where it can't run: says which package is missing in which Python."""

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # the message is all there is to see
            if _OLD:
                raise MissingPackageError(
                    f"Spark {__version__} is too old for the Python source of dspark-json",
                    remedy="Add the connector's jar, which runs on Spark 4.0 and 4.1 too (docs/spark.md), or use Spark "
                    "4.2.",
                )
            raise MissingPackageError(
                f"Spark runs {sys.executable}, which has no package {_MISSING}",
                remedy="Set PYSPARK_PYTHON (or spark.pyspark.python) to the Python that dspark-json is installed in.",
            )

        @classmethod
        def name(cls) -> str:
            """The name for ``format(...)``."""
            return "dspark-json"
