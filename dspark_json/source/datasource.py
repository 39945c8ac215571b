"""The Spark adapter: ``format("dspark-json")`` as a Python data source, streaming and batch.

The only file that imports pyspark. It turns Spark's calls into those of the planner, the reading and the engine, and
their values into Spark's.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dspark_json.errors import DSparkJsonError, InvalidOptionError
from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner, Value
from dspark_json.source.settings import ReaderSettings, reader_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from dspark_json.source.row_type import RowType
    from dspark_json.source.splits import Split

__all__ = ["DSparkJsonDataSource"]

_log = logging.getLogger(__name__)


class DSparkJsonDataSource(DataSource):
    """The answers of vLLM servers as rows; ``docs/options.md`` has the options.

    The types of the rows are resolved here, once: Spark pickles this object after it is made, and readers of the data
    frame, in whatever process, come out of that pickle.
    """

    def __init__(self, options: dict[str, str]) -> None:
        from dspark_json.source.registered import ask_for_schemas
        from dspark_json.source.row_type import resolve_row_type
        from dspark_json.source.rows import choose_engine

        super().__init__(options)
        with _errors_first_hand():
            if "provider" in self.options:  # among the properties of a table, and only there
                raise InvalidOptionError(
                    "a table can't be made of this source: Spark hands a table's options to no Python data source",
                    remedy="Use CREATE TEMPORARY VIEW name USING `dspark-json` OPTIONS (vllm_endpoint '…'), or "
                    "spark.read and spark.readStream; give the key as vllm_api_key_file or DSPARK_API_KEY, not in SQL.",
                )
            settings = reader_settings(self.options)
            choose_engine(settings.parse_mode, settings.gpu_share)
            self._row_type = resolve_row_type(settings.types, lambda: ask_for_schemas(settings))

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
            return BatchReader(reader_settings(self.options), schema, self._row_type)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream reader; never raises, because Spark's stream runner loses an error that is raised here."""
        return StreamReader(dict(self.options), schema, self._row_type)


class SplitPartition(InputPartition):
    """A split, as Spark carries it to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class RowReading:
    """What a task needs to turn a split into rows. Spark pickles it to the executors, the key with it."""

    def __init__(self, settings: ReaderSettings, schema: StructType, row_type: RowType) -> None:
        from dspark_json.source.rows import choose_engine

        self._settings = settings
        self._wanted = to_arrow_schema(schema, timezone="UTC")
        self._plan = row_type.plan(self._wanted)
        choose_engine(settings.parse_mode, settings.gpu_share)

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        from dspark_json.source.reading import read_split
        from dspark_json.source.rows import choose_engine, row_batches

        split = partition.value
        if split is None:  # Spark's stand-in for "no partitions"
            return
        with _errors_first_hand():
            engine = choose_engine(self._settings.parse_mode, self._settings.gpu_share)
            chunks = read_split(
                split,
                key=self._settings.key,
                timeout_s=self._settings.timeout_s,
                fail_on_data_loss=self._settings.fail_on_data_loss,
                from_ring=engine.name == "cudf",
            )
            yield from row_batches(chunks, engine, self._plan, self._wanted)


class BatchReader(DataSourceReader):
    """Reads everything that is kept when the query is planned, from ``startingOffsets`` or ``startingTimestamp`` on."""

    def __init__(self, settings: ReaderSettings, schema: StructType, row_type: RowType) -> None:
        if settings.starting == "latest" and settings.starting_timestamp is None:
            raise InvalidOptionError(
                'startingOffsets "latest" leaves nothing to read in a batch', remedy='Use "earliest", or a stream.'
            )
        self._settings = settings
        self._reading = RowReading(settings, schema, row_type)

    def partitions(self) -> list[InputPartition]:
        """The splits, fixed now."""
        with _errors_first_hand():
            planner = Planner(self._settings)
            return [SplitPartition(split) for split in planner.plan(planner.initial(), planner.everything())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        return self._reading.batches(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver's Python process, reads them in the tasks'."""

    def __init__(self, options: Mapping[str, str], schema: StructType, row_type: RowType) -> None:
        self._options = options
        self._schema = schema
        self._row_type = row_type
        self._prepared: tuple[ReaderSettings, RowReading] | None = None
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, object]:
        # Tasks plan nothing; what they need is made here, in the driver, whose files and environment hold the key.
        self._prepare()
        return {**self.__dict__, "_planner": None}

    def _prepare(self) -> tuple[ReaderSettings, RowReading]:
        """Check options and schema, once."""
        if self._prepared is None:
            with _errors_first_hand():
                settings = reader_settings(self._options)
                self._prepared = settings, RowReading(settings, self._schema, self._row_type)
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
        limits = self._prepare()[0].limits
        if limits.max_records is not None:
            return ReadMaxRows(limits.max_records)
        return ReadAllAvailable() if limits.max_bytes is None else ReadMaxBytes(limits.max_bytes)

    def latestOffset(self, start: Value, limit: ReadLimit) -> Value:  # noqa: N802
        """The end of the next micro-batch; ``start`` itself where nothing is new."""
        with _errors_first_hand():
            return self._plan().latest(start, self._limits(limit))

    def reportLatestOffset(self) -> Value | None:  # noqa: N802
        """The end of all lanes, for progress reports."""
        return self._plan().report()

    def partitions(self, start: Value, end: Value) -> list[InputPartition]:
        """The splits of a micro-batch."""
        with _errors_first_hand():
            return [SplitPartition(split) for split in self._plan().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        return self._prepare()[1].batches(partition)

    def _plan(self) -> Planner:
        if self._planner is None:
            settings, _ = self._prepare()
            self._planner = Planner(settings, self._row_type)
            _log.info(
                "adapter python plans %s (key %s)",
                ", ".join(settings.addresses),
                "given" if settings.key is not None else "none",
            )
        return self._planner

    def _limits(self, limit: ReadLimit) -> ReadLimits:
        """Spark's limit, and our other one beside it: Spark hands back only the one that it was told."""
        own = self._prepare()[0].limits
        if isinstance(limit, ReadMaxRows):
            return ReadLimits(limit.max_rows, own.max_bytes)
        if isinstance(limit, ReadMaxBytes):
            return ReadLimits(own.max_records, limit.max_bytes)
        return ReadLimits()


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
