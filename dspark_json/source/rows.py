"""Records to rows: the choice of the engine, and batches in exactly the schema that was asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.engine.base import Engine, ParsePlan, ParseStats
from dspark_json.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.spool.reader import Chunk

__all__ = ["choose_engine", "row_batches"]

_log = logging.getLogger(__name__)
_announced: set[str] = set()


def choose_engine(parse_mode: str) -> Engine:
    """The engine for ``parse_mode`` (``auto``, ``cpu`` or ``gpu-accelerated``), said once a process with the reason.

    ``EngineUnavailableError`` where a GPU is required, or where this installation has no native module: there is no
    silent fallback (DESIGN §7).
    """
    from dspark_json.engine.native import NativeEngine

    if parse_mode == "gpu-accelerated":
        raise EngineUnavailableError(
            "parse_mode is gpu-accelerated and no GPU engine is part of this version",
            remedy='Set parse_mode to "auto" or "cpu".',
        )
    engine = NativeEngine()
    if parse_mode not in _announced:
        _announced.add(parse_mode)
        _log.info("engine %s parses (parse_mode %s): it is the one for the CPU", engine.name, parse_mode)
    return engine


def row_batches(
    chunks: Iterable[Chunk], engine: Engine, plan: ParsePlan, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One batch a chunk, in exactly the schema ``wanted``: names, order, types and nullability.

    ``plan`` is the one for these columns. What it leaves out is counted and logged at the end.
    """
    total = ParseStats()
    for chunk in chunks:
        batch, stats = engine.parse(chunk, plan)
        total.add(stats)
        yield _exactly(batch, wanted)
    if total.filtered:
        _log.info("filtered_records %d of %d", total.filtered, total.records)
    if total.dropped:
        _log.warning("%d malformed records of %d are dropped: mode is DROPMALFORMED", total.dropped, total.records)


def _exactly(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The same values under another spelling of the schema (Arrow's and Spark's names for list items differ)."""
    if batch.schema.equals(wanted, check_metadata=True):
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
