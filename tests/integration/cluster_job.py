"""A streaming job as a user would submit it to a cluster: answers of some servers into Parquet files, for ever."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--endpoint", required=True)
parser.add_argument("--table", required=True)
parser.add_argument("--checkpoint", required=True)
arguments = parser.parse_args()
spark = SparkSession.builder.appName("answers").getOrCreate()
answers = spark.readStream.format("dspark-json").option("vllm_endpoint", arguments.endpoint)
answers = answers.option("endpointTimeoutSec", "5").option("minPartitions", "4")
rows = answers.load().selectExpr("id", "_dspark.spool_id", "_dspark.lane", "_dspark.seq", "choices", "usage")
writer = rows.writeStream.format("parquet").option("checkpointLocation", arguments.checkpoint)
writer.trigger(processingTime="300 milliseconds").start(arguments.table).awaitTermination()
