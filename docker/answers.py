"""The job of the Spark image: the answers of servers, or of a spool's folder, into a Delta table, for ever.

Settings are environment variables: ``SOURCE`` (a folder, or addresses as for ``vllm_endpoint``), ``TABLE`` (the table's
folder; its checkpoint is beside it), ``OPTIONS`` (more options of the reader, as JSON), ``TRIGGER`` (``5 seconds``, or
``once`` to end when all that is there has been read). ``DSPARK_API_KEY`` is the hook's key, for servers.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

from dspark_json import configure_spark


def wait_for_spool(folder: Path) -> None:
    """A server beside this one makes its spool when it starts, which may be later."""
    while not (folder / "spool.json").exists():
        print(f"waiting for a server to make its spool in {folder}", flush=True)
        time.sleep(5)


def main() -> None:
    """Run the query until it ends or fails."""
    source, table = os.environ["SOURCE"], os.environ["TABLE"]
    trigger = os.environ.get("TRIGGER", "5 seconds")
    if source.startswith("/"):
        wait_for_spool(Path(source))
    spark = configure_spark(SparkSession.builder.appName("dspark-json answers"), delta=True).getOrCreate()
    reader = spark.readStream.format("dspark-json").options(**json.loads(os.environ.get("OPTIONS") or "{}"))
    rows = reader.load(source) if source.startswith("/") else reader.option("vllm_endpoint", source).load()
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table}.checkpoint")
    writer = writer.trigger(availableNow=True) if trigger == "once" else writer.trigger(processingTime=trigger)
    writer.start(table).awaitTermination()


if __name__ == "__main__":
    main()
