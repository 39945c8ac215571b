"""A streaming job as a user would write it: answers into a Delta table, until killed, or, with --drain, all there is.

Run as a process of its own by the tests that kill it.
"""

from __future__ import annotations

import argparse

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from dspark_json import configure_spark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--ivy", required=True)
    parser.add_argument("--adapter", choices=["jvm", "python"], required=True)
    parser.add_argument("--drain", action="store_true")
    arguments = parser.parse_args()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.ivy", arguments.ivy)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    with_delta = configure_spark_with_delta_pip(builder)
    spark = (configure_spark(with_delta) if arguments.adapter == "jvm" else with_delta).getOrCreate()
    answers = (
        spark.readStream.format("dspark-json")
        .option("vllm_endpoint", arguments.endpoint)
        .option("maxRecordsPerTrigger", "100000" if arguments.drain else "40")
        .load()
        .selectExpr("id", "_dspark.spool_id", "_dspark.lane", "_dspark.seq", "choices", "usage")
    )
    writer = answers.writeStream.format("delta").option("checkpointLocation", arguments.checkpoint)
    trigger = {"availableNow": True} if arguments.drain else {"processingTime": "200 milliseconds"}
    writer.trigger(**trigger).start(arguments.table).awaitTermination()


if __name__ == "__main__":
    main()
