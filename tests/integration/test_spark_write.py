"""Nothing can be written with the source, and whoever tries is told so by a named error, whatever is to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .conftest import JVM
from .spark_support import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SAID = r"DSPARK_JSON_SOURCE_ONLY: dspark-json is a source: nothing can be written with it\. Write to a table"


def test_a_batch_can_not_be_written_whatever_is_in_it(spark: SparkSession, tmp_path: Path, adapter: str) -> None:
    spool = str(tmp_path / "spool")
    write(tmp_path / "spool", 3)
    # With other modes than these Spark itself refuses the Python source by its name.
    modes = ["append", "overwrite", "error", "ignore"] if adapter == JVM else ["append"]
    answers = [spark.read.format(adapter).load(spool)] if adapter == JVM else []
    for frame in (spark.range(3), *answers):
        for mode in modes:
            with pytest.raises(Exception, match=SAID):
                frame.write.format(adapter).mode(mode).save(spool)
        if adapter == JVM:
            with pytest.raises(Exception, match=SAID):
                frame.write.format(adapter).save()


def test_a_stream_can_not_be_written(spark: SparkSession, tmp_path: Path, adapter: str) -> None:
    write(tmp_path / "spool", 3)
    answers = spark.readStream.format(adapter).load(str(tmp_path / "spool"))
    writer = answers.writeStream.format(adapter).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=SAID):
        writer.start(str(tmp_path / "spool")).awaitTermination(240)


def test_a_reader_is_still_told_what_is_wrong_with_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "spool", 3)
    with pytest.raises(Exception, match="DSPARK_JSON_SCHEMA: "):
        spark.read.format(JVM).schema("nobody STRING").load(str(tmp_path / "spool"))
    with pytest.raises(Exception, match="DSPARK_JSON_SCHEMA: "):
        spark.readStream.format(JVM).schema("nobody STRING").load(str(tmp_path / "spool"))
