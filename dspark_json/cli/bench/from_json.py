"""Spark's ``from_json`` on one core, to compare with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli.bench.parsers import Pass
from dspark_json.cli.bench.spark_session import jvm_pid
from dspark_json.cli.bench.wire_types import record_columns
from dspark_json.schema.ddl import columns_to_ddl
from dspark_json.schema.envelope import CORRUPT_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from dspark_json.cli.bench.answers import AnswerFile

_TICKS_PER_SEC: Final = os.sysconf("SC_CLK_TCK")


class FromJsonParser:
    """``from_json`` of the lines, and of the contents, in a JVM of its own; rows go to Spark's ``noop`` sink.

    CPU is that of the whole JVM. What Spark takes to read the lines alone, measured each time, is taken off: the
    other parsers have the bytes in memory.
    """

    name = "from_json"

    def __init__(self, spark: SparkSession, content_type: pa.DataType) -> None:
        self._spark = spark
        self._pid = jvm_pid(spark)
        self._answer = f"{columns_to_ddl(record_columns())}, {CORRUPT_COLUMN} STRING"
        self._content = columns_to_ddl(content_type)

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """See ``Parser.run``."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, expr, from_json

        lines = self._spark.read.text(str(file.path))
        reading = self._cpu_of(lines)
        rows = lines.select(from_json("value", self._answer, {"columnNameOfCorruptRecord": CORRUPT_COLUMN}).alias("a"))
        counts = [count("a.id").alias("rows")]
        if content:
            rows = rows.select("a", from_json(expr("a.choices[0].message.content"), self._content).alias("parsed"))
            counts.append(count("parsed.order_id").alias("typed"))
        seen = Observation()
        cpu_s = self._cpu_of(rows.observe(seen, *counts)) - reading
        return Pass(cpu_s, file.bytes, seen.get["rows"], seen.get.get("typed"), reading)

    def _cpu_of(self, rows: DataFrame) -> float:
        before = self._cpu_s()
        rows.write.format("noop").mode("overwrite").save()
        return self._cpu_s() - before

    def _cpu_s(self) -> float:
        # After the name of the command, in brackets: the state, then numbers; the 12th and 13th are user and system.
        numbers = Path(f"/proc/{self._pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / _TICKS_PER_SEC
