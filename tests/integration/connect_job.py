"""What a client of Spark Connect gets of a spool, as one line of JSON: rows, a stream into a table, an error.

Run as a process of its own: a Python process has either Connect sessions or classic ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from dspark_json import configure_spark


def main() -> None:
    spool, scratch = (Path(argument) for argument in sys.argv[1:])
    settings = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = configure_spark(builder).getOrCreate()
    try:
        assert isinstance(spark, ConnectSession)
        rows = spark.read.format("dspark-json").load(str(spool))
        query = (
            spark.readStream.format("dspark-json")
            .option("maxRecordsPerTrigger", "8")
            .load(str(spool))
            .selectExpr("id", "usage.total_tokens", "_dspark.seq")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(scratch / "table"))
        )
        assert query.awaitTermination(120)
        progress = query.lastProgress
        assert progress is not None
        print(
            json.dumps(
                {
                    "schema": rows.schema.json(),
                    "rows": sorted(row[0] for row in rows.selectExpr("to_json(struct(*))").collect()),
                    "stream": sorted(row["id"] for row in spark.read.parquet(str(scratch / "table")).collect()),
                    "batches": sum(path.name.isdigit() for path in (scratch / "checkpoint" / "commits").iterdir()),
                    "adapter": progress["sources"][0]["metrics"]["adapter"],
                    "arrow_bytes": int(progress["sources"][0]["metrics"]["arrow_bytes"]),
                    "error": _error(spark, spool),
                }
            )
        )
    finally:
        spark.stop()


def _error(spark: SparkSession, spool: Path) -> str:
    try:
        spark.read.format("dspark-json").option("maxRecordPerTrigger", "8").load(str(spool)).collect()
    except Exception as error:  # noqa: BLE001 - its text is what is asked for
        return str(error)
    return ""


if __name__ == "__main__":
    main()
