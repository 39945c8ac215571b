"""The streams to compare: the same answers as typed columns, by this source and by what Spark has for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.cli.bench.spark_session import PYTHON_SOURCE
from dspark_json.cli.bench.wire_types import record_columns
from dspark_json.schema.ddl import columns_to_ddl, to_ddl
from dspark_json.schema.envelope import row_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dspark_json.cli.bench.spark_answers import SparkAnswers

COLUMNS: Final = ("all", "three", "content")
BASELINE: Final = "from_json"
FILES: Final = "json_files"
ADAPTERS: Final = ("jvm", "python", FILES)

_SOURCES: Final = {"jvm": "dspark-json", "python": PYTHON_SOURCE}
_THREE: Final = ("id", "created", "usage")
_PARSED: Final = "choices[0].parsed AS parsed"
_CONTENT: Final = "choices[0].message.content"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A way from answers to columns; ``narrow``: its schema was cut by hand to what is selected."""

    adapter: str
    columns: str
    narrow: bool = False

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.adapter}, narrow schema" if self.narrow else self.adapter


def pipelines(columns: str, adapters: tuple[str, ...]) -> list[Pipeline]:
    """Those of ``adapters`` that make these columns, and the baseline."""
    both = (False,) if columns == "all" else (False, True)
    # The Python source reads what its schema says, whatever is selected; files of JSON are read by what is selected.
    schemas = {"jvm": both, "python": both[-1:], FILES: (False,), BASELINE: both}
    return [Pipeline(adapter, columns, narrow) for adapter in (*adapters, BASELINE) for narrow in schemas[adapter]]


def stream(spark: SparkSession, pipeline: Pipeline, answers: SparkAnswers, cores: int) -> DataFrame:
    """The rows of a pipeline, in the micro-batches of ``answers``.

    ``all``: all columns of an answer and its content as a value. This source makes ``choices[].parsed`` of each choice
    beside ``parse_status``, ``_rescued_data`` and times of ``_dspark`` as timestamps; the others a column ``parsed`` of
    the first choice, and nothing of the rest. ``three``: ``id``, ``created``, ``usage``. ``content``: ``id`` and the
    value. ``created`` is a timestamp in all of them.
    """
    if pipeline.adapter in _SOURCES:
        return _ours(spark, pipeline, answers, cores)
    return _sparks(spark, pipeline, answers)


def _ours(spark: SparkSession, pipeline: Pipeline, answers: SparkAnswers, cores: int) -> DataFrame:
    reader = (
        spark.readStream.format(_SOURCES[pipeline.adapter])
        .option("contentSchema", to_ddl(answers.content_type))
        .option("maxRecordsPerTrigger", answers.batch_records)
        .option("minPartitions", cores)
    )
    if pipeline.narrow:
        reader = reader.schema(_narrow_rows(pipeline.columns, answers.content_type))
    rows = reader.load(str(answers.spool))
    if pipeline.columns == "three":
        return rows.select(*_THREE)
    return rows.selectExpr("id", _PARSED) if pipeline.columns == "content" else rows


def _narrow_rows(columns: str, content_type: pa.DataType) -> str:
    if columns == "content":
        choice = pa.struct([pa.field("parsed", content_type)])
        return columns_to_ddl([row_schema().field("id"), pa.field("choices", pa.list_(choice))])
    return columns_to_ddl([row_schema().field(name) for name in _THREE])


def _sparks(spark: SparkSession, pipeline: Pipeline, answers: SparkAnswers) -> DataFrame:
    from pyspark.sql.functions import expr, from_json

    schema = columns_to_ddl(_record_columns(pipeline) if pipeline.narrow else record_columns())
    lines = str(answers.lines)
    if pipeline.adapter == FILES:
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(lines)
    else:
        texts = spark.readStream.option("maxFilesPerTrigger", 1).text(lines)
        rows = texts.select(from_json("value", schema).alias("a")).select("a.*")
    if pipeline.columns == "three":
        return rows.select(*_THREE)
    parsed = from_json(expr(_CONTENT), columns_to_ddl(answers.content_type)).alias("parsed")
    return rows.select("id" if pipeline.columns == "content" else "*", parsed)


def _record_columns(pipeline: Pipeline) -> list[pa.Field]:
    """What of a record a schema cut by hand has."""
    columns = {column.name: column for column in record_columns()}
    if pipeline.columns == "three":
        return [columns[name] for name in _THREE]
    message = pa.struct([pa.field("message", pa.struct([pa.field("content", pa.string())]))])
    return [columns["id"], pa.field("choices", pa.list_(message))]
