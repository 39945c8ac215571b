"""The Python adapter: ``format("dspark-json")`` as a Python data source of Spark, streaming and batch.

The only file that imports pyspark. It turns Spark's calls into those of ``Query``, the planner and ``TaskReader``, and
their values into Spark's; the worker does the same for the JVM connector.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dspark_json.errors import DSparkJsonError, InvalidOptionError, SourceOnlyError
from dspark_json.source.admission import ReadLimits
from dspark_json.source.query import Query
from dspark_json.source.read_task import ReadTask, TaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dspark_json.source.planner import Planner, Value
    from dspark_json.source.row_type import RowType
    from dspark_json.source.splits import Split

__all__ = ["DSparkJsonDataSource"]


class DSparkJsonDataSource(DataSource):
    """The answers of vLLM servers as rows; ``docs/options.md`` has the options.

    The types of the rows are resolved here, once: Spark pickles this object after it is made, and readers of the data
    frame, in whatever process, come out of that pickle.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with _errors_first_hand():
            if "provider" in self.options:  # among the properties of a table, and only there
                raise InvalidOptionError(
                    "a table can't be made of the Python source: Spark hands it none of a table's options",
                    remedy="Use CREATE TEMPORARY VIEW name USING `dspark-json` OPTIONS (vllm_endpoint '…'), spark.read "
                    "or spark.readStream, or add the connector's jar (docs/spark.md); give the key as "
                    "vllm_api_key_file or DSPARK_API_KEY, not in SQL.",
                )
            if "checkpointlocation" in self.options:  # a sink is made with it, before its writer is asked for
                raise _source_only(" On readStream leave checkpointLocation out: it belongs to writeStream.")
            self._row_type = Query.resolve(self.options).row_type

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "dspark-json"

    def schema(self) -> StructType:
        """The declared rows."""
        with _errors_first_hand():
            return from_arrow_schema(self._row_type.plan().declared)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of everything that is kept."""
        with _errors_first_hand():
            return BatchReader(Query.of(self.options, self._row_type), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream reader; never raises, because Spark's stream runner loses an error that is raised here."""
        return StreamReader(dict(self.options), schema, self._row_type)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """Refuse: ``df.write``."""
        with _errors_first_hand():
            raise _source_only()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, N802 - Spark's name
        """Refuse: ``df.writeStream``."""
        with _errors_first_hand():
            raise _source_only()


def _source_only(hint: str = "") -> SourceOnlyError:
    """The error for a sink; the connector's is the same (``DSparkJsonException.java``)."""
    return SourceOnlyError(
        "dspark-json is a source: nothing can be written with it",
        remedy='Write to a table, such as format("delta"). '
        "Answers come into a spool by the server's hook, or from files by `dspark-json import`." + hint,
    )


class SplitPartition(InputPartition):
    """A split, as Spark carries it to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


def _task(query: Query, schema: StructType) -> ReadTask:
    """What tasks need. Spark pickles it to the executors, the key with it."""
    return query.task(to_arrow_schema(schema, timezone="UTC"))


def _rows(task: ReadTask, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a split."""
    split = partition.value
    if split is None:  # Spark's stand-in for "no partitions"
        return
    with _errors_first_hand():
        yield from TaskReader(task).batches(split)


class BatchReader(DataSourceReader):
    """Reads everything that is kept when the query is planned, from ``startingOffsets`` or ``startingTimestamp`` on."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self._query = query
        self._task = _task(query, schema)

    def partitions(self) -> list[InputPartition]:
        """The splits, fixed now."""
        with _errors_first_hand():
            return [SplitPartition(split) for split in self._query.batch_splits()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        return _rows(self._task, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver's Python process, reads them in the tasks'."""

    def __init__(self, options: Mapping[str, str], schema: StructType, row_type: RowType) -> None:
        self._options = options
        self._schema = schema
        self._row_type = row_type
        self._prepared: tuple[Query, ReadTask] | None = None
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, object]:
        # Tasks plan nothing; what they need is made here, in the driver, whose files and environment hold the key.
        self._prepare()
        return {**self.__dict__, "_planner": None}

    def _prepare(self) -> tuple[Query, ReadTask]:
        """Check options and schema, once."""
        if self._prepared is None:
            with _errors_first_hand():
                query = Query.of(self._options, self._row_type)
                self._prepared = query, _task(query, self._schema)
        return self._prepared

    def initialOffset(self) -> Value:  # noqa: N802 - Spark's name, as all below
        """Where a new stream begins."""
        with _errors_first_hand():
            return self._plan().initial()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run at what exists now."""
        with _errors_first_hand():
            self._plan().fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options, as far as Spark has a word for it."""
        limits = self._prepare()[0].settings.limits
        if limits.max_records is not None:
            return ReadMaxRows(limits.max_records)
        return ReadAllAvailable() if limits.max_bytes is None else ReadMaxBytes(limits.max_bytes)

    def latestOffset(self, start: Value, limit: ReadLimit) -> Value:  # noqa: N802
        """The end of the next micro-batch; ``start`` itself where nothing is new."""
        with _errors_first_hand():
            return self._plan().latest(start, self._prepare()[0].limits(_limits(limit)))

    def reportLatestOffset(self) -> Value | None:  # noqa: N802
        """The end of all lanes, for progress reports."""
        return self._plan().report()

    def partitions(self, start: Value, end: Value) -> list[InputPartition]:
        """The splits of a micro-batch."""
        with _errors_first_hand():
            return [SplitPartition(split) for split in self._plan().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        return _rows(self._prepare()[1], partition)

    def _plan(self) -> Planner:
        if self._planner is None:
            query, _ = self._prepare()
            self._planner = query.stream_planner()
            query.announce("python")
        return self._planner


def _limits(limit: ReadLimit) -> ReadLimits | None:
    """Spark's limit; None for all there is."""
    if isinstance(limit, ReadMaxRows):
        return ReadLimits(max_records=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return ReadLimits(max_bytes=limit.max_bytes)
    return None


@contextlib.contextmanager
def _errors_first_hand() -> Iterator[None]:
    """Let an error of ours reach the user by its own text.

    Spark shows a Python process's traceback as the message, unless this variable is set (it stands for
    ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``). The process ends with the error, so nothing else is
    hidden by it.
    """
    try:
        yield
    except DSparkJsonError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
