"""The GPU engine: plain records are read on the GPU, the others by the native engine (DESIGN §7).

The rows are the native engine's, record by record: what ``engine.plain`` can't prove is handed to it, and counted
(``fallback``). Not yet measured on a GPU.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans, log_batch
from dspark_json.engine.plain_answers import MOST_LEFT_OVER, PlainRows, plain_rows, read_records
from dspark_json.engine.text_reader import BatchRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.base import Engine
    from dspark_json.engine.text_fields import TextField
    from dspark_json.engine.text_reader import TextBatch, TextReader

__all__ = ["MIN_BATCH_BYTES", "CudfEngine"]

_log = logging.getLogger(__name__)

MIN_BATCH_BYTES: Final = 16 << 20


class CudfEngine:
    """Records to rows, on a GPU as far as they are plain; not for several threads at once."""

    name = "cudf"

    def __init__(self, reader: TextReader, native: Engine, min_bytes: int = 0) -> None:
        """``native`` parses what is not plain, and all batches below ``min_bytes``."""
        self._reader = _Timed(reader)
        self._native = native
        self._min_bytes = min_bytes
        self._told = False

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """See ``Engine.parse``. Spans with a ``device_pointer`` are read where they lie in the GPU's memory."""
        size = spans.ends[-1] if len(spans) else 0
        if size < self._min_bytes or not len(spans):
            return self._left_over(spans, plan)
        started = time.perf_counter_ns()
        self._reader.took_ns = 0
        pointer: int | None = getattr(spans, "device_pointer", None)
        data = spans.buffer[:size] if pointer is None else pointer
        try:
            rows = plain_rows(read_records(self._reader, spans, plan, data), spans, plan, self._reader)
        except BatchRefusedError as refusal:
            self._tell(refusal, spans)
            batch, stats = self._left_over(spans, plan)
        else:
            batch, stats = self._together(rows, spans, plan)
        stats.gpu_ns = self._reader.took_ns
        stats.parse_ns = time.perf_counter_ns() - started
        log_batch(stats)
        return batch, stats

    def _together(self, rows: PlainRows, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """The plain rows and, in their places, those of the native engine."""
        plain, kept = rows.plain.to_pylist(), rows.kept.to_pylist()
        if plain.count(False) > MOST_LEFT_OVER * len(plain):
            return self._left_over(spans, plan)
        total = ParseStats()
        parts: list[pa.RecordBatch] = []
        for start, stop in _runs(plain):
            if plain[start]:
                parts.append(_kept_rows(rows, kept, start, stop))
                total.add(_counts(rows, spans, kept, start, stop))
            else:
                batch, stats = self._left_over(_Part.of(spans, start, stop), plan)
                parts.append(batch)
                total.add(stats)
        whole = [part for part in parts if part.num_rows] or parts[:1]
        return _concatenated(whole, plan.columns), total

    def _left_over(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """What the native engine makes of records, counted."""
        batch, stats = self._native.parse(spans, plan)
        stats.fallback = len(spans)
        return batch, stats

    def _tell(self, refusal: BatchRefusedError, spans: RecordSpans) -> None:
        """Say it once loudly; the count of records that fell back says how often it was."""
        _log.log(
            logging.DEBUG if self._told else logging.WARNING,
            "the native engine parses %d record(s) of lane %s from %d on, the GPU engine can't: %s",
            len(spans),
            spans.lane,
            spans.first_seq,
            refusal,
        )
        self._told = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Some consecutive records of others."""

    spool_id: str
    lane: str
    first_seq: int
    buffer: memoryview
    ends: Sequence[int]
    appended_at: Sequence[int]

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def of(cls, spans: RecordSpans, start: int, stop: int) -> _Part:
        begin = spans.ends[start - 1] if start else 0
        ends = [end - begin for end in spans.ends[start:stop]]
        buffer = spans.buffer[begin : begin + ends[-1]]
        return cls(spans.spool_id, spans.lane, spans.first_seq + start, buffer, ends, spans.appended_at[start:stop])


class _Timed:
    """A reader that says how long it was at work, in ns."""

    def __init__(self, reader: TextReader) -> None:
        self.took_ns = 0
        self._reader = reader

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        started = time.perf_counter_ns()
        try:
            return self._reader.read(data, ends, members)
        finally:
            self.took_ns += time.perf_counter_ns() - started


def _runs(plain: Sequence[bool]) -> list[tuple[int, int]]:
    """The ranges of equal values."""
    bounds = [0, *(i for i in range(1, len(plain)) if plain[i] != plain[i - 1]), len(plain)]
    return list(pairwise(bounds))


def _kept_rows(rows: PlainRows, kept: Sequence[bool], start: int, stop: int) -> pa.RecordBatch:
    batch = rows.batch.slice(start, stop - start)
    return batch if all(kept[start:stop]) else batch.filter(rows.kept.slice(start, stop - start))


def _counts(rows: PlainRows, spans: RecordSpans, kept: Sequence[bool], start: int, stop: int) -> ParseStats:
    begin = spans.ends[start - 1] if start else 0
    invalid = rows.invalid.slice(start, stop - start).to_pylist()
    return ParseStats(
        records=stop - start,
        bytes=spans.ends[stop - 1] - begin,
        invalid=sum(count for count, stays in zip(invalid, kept[start:stop], strict=True) if stays),
        filtered=kept[start:stop].count(False),
    )


def _concatenated(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if not len(schema):
        return pa.RecordBatch.from_pydict({"row": pa.nulls(sum(part.num_rows for part in parts))}).select([])
    columns = [pa.concat_arrays([part.column(i) for part in parts]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
