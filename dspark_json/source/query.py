"""One query over the servers' answers, from its options to planner and tasks: the one path of both Spark adapters."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark_json.errors import InvalidOptionError
from dspark_json.schema.constraints import require_checker
from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner
from dspark_json.source.read_task import ReadTask
from dspark_json.source.registered import ask_for_schemas
from dspark_json.source.row_type import RowType, resolve_row_type
from dspark_json.source.rows import choose_engine
from dspark_json.source.settings import ReaderSettings, reader_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dspark_json.source.splits import Split

__all__ = ["Query"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """What a query was asked to do, and its rows."""

    settings: ReaderSettings
    row_type: RowType

    @classmethod
    def resolve(cls, options: Mapping[str, str]) -> Query:
        """Check the options and resolve the rows' types, which may ask the servers; every error of these two."""
        settings = reader_settings(options)
        choose_engine(settings.parse_mode, settings.gpu_share)
        if settings.types.check_constraints:
            require_checker()
        return cls(settings, resolve_row_type(settings.types, lambda: ask_for_schemas(settings)))

    @classmethod
    def of(cls, options: Mapping[str, str], row_type: RowType) -> Query:
        """A query whose rows were resolved before, by ``resolve`` and from the same options."""
        return cls(reader_settings(options), row_type)

    def schema(self) -> pa.Schema:
        """The declared rows."""
        return self.row_type.plan().declared

    def task(self, wanted: pa.Schema, *, given: pa.Schema | None = None) -> ReadTask:
        """What tasks need to make rows of exactly the schema ``wanted``, a projection of the rows.

        ``given`` is the schema of the data frame, where Spark has pruned ``wanted`` from it. Raises ``SchemaError`` and
        ``ContentSchemaError`` as ``RowType.plan``, and ``EngineUnavailableError``.
        """
        settings = self.settings
        choose_engine(settings.parse_mode, settings.gpu_share)
        row_type = self.row_type.typed_by(wanted if given is None else given)
        return ReadTask(
            row_type.plan(wanted),
            wanted,
            settings.key,
            settings.timeout_s,
            settings.fail_on_data_loss,
            settings.parse_mode,
            settings.gpu_share,
            settings.parse_threads,
        )

    def batch_splits(self) -> list[Split]:
        """The splits of a batch read: all that is kept now, from where the options say on."""
        if self.settings.starting == "latest" and self.settings.starting_timestamp is None:
            raise InvalidOptionError(
                'startingOffsets "latest" leaves nothing to read in a batch', remedy='Use "earliest", or a stream.'
            )
        planner = Planner(self.settings)
        return planner.plan(planner.initial(), planner.everything())

    def stream_planner(self) -> Planner:
        """The planner of a stream, which watches the servers' schemas too."""
        return Planner(self.settings, self.row_type)

    def limits(self, asked: ReadLimits | None) -> ReadLimits:
        """What Spark asks for (None: all there is), with the option's other limit: it may hand back only one of two."""
        if asked is None:
            return ReadLimits()
        own = self.settings.limits
        return ReadLimits(
            own.max_records if asked.max_records is None else asked.max_records,
            own.max_bytes if asked.max_bytes is None else asked.max_bytes,
        )

    def announce(self, adapter: str) -> None:
        """Log which of Spark's two ways to this package plans a stream."""
        addresses = ", ".join(self.settings.addresses)
        _log.info(
            "adapter %s plans %s (key %s)", adapter, addresses, "given" if self.settings.key is not None else "none"
        )
