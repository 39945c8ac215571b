"""Batch reads as a user would submit them to a cluster; what became of each goes to a file.

``cluster_reads.py READS RESULTS``: ``READS`` is a JSON list of {format, options}; ``RESULTS`` gets a list of the number
of rows, or the error's text, of each. The connector and the Python source, under a name of its own, are both there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dspark_json.source.datasource import DSparkJsonDataSource


class PythonSource(DSparkJsonDataSource):
    """The Python source beside the connector."""

    @classmethod
    def name(cls) -> str:
        return "dspark-json-python"


spark = SparkSession.builder.appName("reads").getOrCreate()
spark.dataSource.register(PythonSource)
results: list[int | str] = []
for read in json.loads(sys.argv[1]):
    try:
        rows = spark.read.format(read["format"]).options(**read["options"]).load()
        results.append(len({(row["lane"], row["seq"]) for row in rows.select("_dspark.*").collect()}))
    except (PySparkException, Py4JError) as error:
        results.append(str(error))
Path(sys.argv[2]).write_text(json.dumps(results))
spark.stop()
