"""Records to rows: the choice of the engine, and batches in exactly the schema that was asked for."""

from __future__ import annotations

import collections
import itertools
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.base import Engine, ParsePlan, ParseStats
from dspark_json.engine.cudf import MIN_BATCH_BYTES
from dspark_json.engine.selection import DEFAULT_GPU_SHARE, Choice, choose
from dspark_json.source.checking import checking
from dspark_json.source.device_reading import gather
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.source.device_reading import DeviceChunk

__all__ = ["choose_engine", "row_batches"]

_log = logging.getLogger(__name__)
_choices: dict[str, Choice] = {}  # by parse_mode: what a machine has does not change

_CHOICES: Final = "choices"
_PIECE_BYTES: Final = 1 << 20  # below that, handing a piece to another thread is not worth it


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
    chunks: Iterable[Chunk | DeviceChunk],
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
    if plan.check_constraints:
        engine, plan = checking(engine, plan)
    if engine.name == "cudf":  # one read of large batches at a time: its threads are the device's
        parsed = _parsed(gather(chunks, MIN_BATCH_BYTES), engine, plan)
    elif threads == 1:
        parsed = _parsed(chunks, engine, plan)
    else:
        parsed = _parsed_at_once(chunks, engine, plan, threads)
    for batch, stats in parsed:
        total.add(stats)
        yield _exactly(_without_empty_choices(batch), wanted)
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


_Parsed = tuple[pa.RecordBatch, ParseStats]


def _parsed(chunks: Iterable[Chunk | DeviceChunk], engine: Engine, plan: ParsePlan) -> Iterator[_Parsed]:
    for chunk in chunks:
        yield engine.parse(chunk, plan)


def _parsed_at_once(
    chunks: Iterable[Chunk | DeviceChunk], engine: Engine, plan: ParsePlan, threads: int
) -> Iterator[_Parsed]:
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


def _pieces(chunk: Chunk | DeviceChunk, most: int) -> Iterator[Chunk]:
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


def _without_empty_choices(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``choices`` is null where an answer has none.

    Clients leave before the first word, servers fail in mid-stream: ``choices[0]`` of an empty array is an error in
    Spark (ANSI mode), which would end a query for one such answer; of a null it is null.
    """
    at = batch.schema.get_field_index(_CHOICES)
    if at < 0 or not pa.types.is_list(batch.column(at).type):
        return batch
    choices = batch.column(at)
    is_empty = pc.equal(pc.list_value_length(choices), 0)
    if not pc.any(is_empty).as_py():
        return batch
    is_null = pc.fill_null(is_empty, fill_value=True)
    made = pa.ListArray.from_arrays(choices.offsets, choices.values, type=choices.type, mask=is_null)
    return batch.set_column(at, batch.schema.field(at), made)


def _exactly(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The same values under another spelling of the schema (Arrow's and Spark's names for list items differ)."""
    if batch.schema.equals(wanted, check_metadata=True):
        return batch
    if not wanted.names:  # rows without columns, for count(): a batch made of no arrays would have none
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
