"""Records to rows: the choice of the engine, and batches in exactly the schema that was asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.engine.base import Engine, ParsePlan, ParseStats
from dspark_json.engine.cudf import MIN_BATCH_BYTES
from dspark_json.engine.selection import DEFAULT_GPU_SHARE, Choice, choose
from dspark_json.source.device_reading import gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.source.device_reading import DeviceChunk
    from dspark_json.spool.reader import Chunk

__all__ = ["choose_engine", "row_batches"]

_log = logging.getLogger(__name__)
_choices: dict[str, Choice] = {}  # by parse_mode: what a machine has does not change


def choose_engine(parse_mode: str, gpu_share: int = DEFAULT_GPU_SHARE) -> Engine:
    """The engine for ``parse_mode`` (``auto``, ``cpu`` or ``gpu-accelerated``), said once a process with the reason.

    ``EngineUnavailableError`` where a GPU is required and can't be used, or where this installation has no native
    module: there is no silent fallback (DESIGN §7). ``gpu_share`` is in percent.
    """
    from dspark_json.engine.native import NativeEngine

    if parse_mode not in _choices:
        choice = choose(parse_mode, NativeEngine, gpu_share=gpu_share)
        _choices[parse_mode] = choice
        _log.info("engine %s parses: %s", choice.name, choice.reason)
    return _choices[parse_mode].make()


def row_batches(
    chunks: Iterable[Chunk | DeviceChunk], engine: Engine, plan: ParsePlan, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One batch a chunk, in exactly the schema ``wanted``: names, order, types and nullability.

    ``plan`` is the one for these columns. What it leaves out is counted and logged at the end.
    """
    total = ParseStats()
    for chunk in gather(chunks, MIN_BATCH_BYTES) if engine.name == "cudf" else chunks:
        batch, stats = engine.parse(chunk, plan)
        total.add(stats)
        yield _exactly(batch, wanted)
    if engine.name == "cudf":
        _log.info(
            "dspark_gpu_kernel_time_ms %.3f, dspark_gpu_fallback_records %d of %d",
            total.gpu_ns / 1e6,
            total.fallback,
            total.records,
        )
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
