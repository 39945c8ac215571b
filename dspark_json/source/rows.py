"""Records to rows: the choice of the engine, and batches in exactly the schema that was asked for."""

from __future__ import annotations

import collections
import itertools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.engine.base import Engine, ParsePlan, ParseStats
from dspark_json.errors import EngineUnavailableError
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["choose_engine", "row_batches"]

_log = logging.getLogger(__name__)
_announced: set[str] = set()

_PIECE_BYTES: Final = 1 << 20  # below that, handing a piece to another thread is not worth it


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
    chunks: Iterable[Chunk],
    engine: Engine,
    plan: ParsePlan,
    wanted: pa.Schema,
    *,
    threads: int = 1,
    totals: ParseStats | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches in the order of the records, in exactly the schema ``wanted``: names, order, types and nullability.

    ``plan`` is the one for these columns. ``threads`` parse at once, and so many chunks are in memory. ``totals`` has
    the counts of the batches given so far; what was left out is logged at the end.
    """
    total = totals if totals is not None else ParseStats()
    parsed = _parsed(chunks, engine, plan) if threads == 1 else _parsed_at_once(chunks, engine, plan, threads)
    for batch, stats in parsed:
        total.add(stats)
        yield _exactly(batch, wanted)
    if total.filtered:
        _log.info("filtered_records %d of %d", total.filtered, total.records)
    if total.dropped:
        _log.warning("%d malformed records of %d are dropped: mode is DROPMALFORMED", total.dropped, total.records)


_Parsed = tuple[pa.RecordBatch, ParseStats]


def _parsed(chunks: Iterable[Chunk], engine: Engine, plan: ParsePlan) -> Iterator[_Parsed]:
    for chunk in chunks:
        yield engine.parse(chunk, plan)


def _parsed_at_once(chunks: Iterable[Chunk], engine: Engine, plan: ParsePlan, threads: int) -> Iterator[_Parsed]:
    under_way: collections.deque[Future[_Parsed]] = collections.deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="dspark-json-parse") as pool:
        try:
            for chunk in chunks:
                for piece in _pieces(chunk, threads):
                    under_way.append(pool.submit(engine.parse, piece, plan))
                    if len(under_way) == threads:
                        yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _pieces(chunk: Chunk, most: int) -> Iterator[Chunk]:
    """A chunk's records in order, in pieces of about one size."""
    count = max(1, min(most, len(chunk), chunk.buffer.nbytes // _PIECE_BYTES))
    bounds = [len(chunk) * k // count for k in range(count + 1)]
    for start, stop in itertools.pairwise(bounds):
        begin = chunk.ends[start - 1] if start else 0
        yield Chunk(
            chunk.spool_id,
            chunk.lane,
            chunk.first_seq + start,
            chunk.buffer[begin : chunk.ends[stop - 1]],
            [end - begin for end in chunk.ends[start:stop]],
            chunk.appended_at[start:stop],
        )


def _exactly(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The same values under another spelling of the schema (Arrow's and Spark's names for list items differ)."""
    if batch.schema.equals(wanted, check_metadata=True):
        return batch
    if not wanted.names:  # rows without columns, for count(): a batch made of no arrays would have none
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
