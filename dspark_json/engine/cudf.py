"""The GPU engine: plain records are read on the GPU, the others by the native engine (DESIGN §7).

The rows are the native engine's, record by record: what ``engine.plain`` can't prove is handed to it, and counted
(``fallback``). Not yet measured on a GPU.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans, log_batch
from dspark_json.engine.plain_answers import MOST_LEFT_OVER, PlainRows, plain_rows, replaced
from dspark_json.engine.text_reader import BatchRefusedError
from dspark_json.errors import EngineFailedError
from dspark_json.schema.envelope import RECORD_COLUMN

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
            rows = plain_rows(self._reader, spans, plan, data)
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
        plain = rows.plain.to_pylist()
        if plain.count(False) > MOST_LEFT_OVER * len(plain):
            return self._left_over(spans, plan)
        if plan.mode == "PERMISSIVE" and plan.answers_of is None and plan.tools is None:
            try:
                return self._one_row_each(rows, plain, spans, plan)
            except EngineFailedError:
                pass  # it is raised again below, where records have their numbers
        return self._by_runs(rows, plain, spans, plan)

    def _one_row_each(
        self, rows: PlainRows, plain: Sequence[bool], spans: RecordSpans, plan: ParsePlan
    ) -> tuple[pa.RecordBatch, ParseStats]:
        """Where no row is left out: all that is not plain in one call, and then every row to its place."""
        left = [i for i, good in enumerate(plain) if not good]
        if not left:
            return rows.batch, _counts_of_all(rows, spans, 0, 0)
        part = _Part.gathered(spans, left)
        batch, stats = self._left_over(part, plan)
        numbers = pa.array([spans.first_seq + i for i in left], pa.int64())
        place = list(range(len(plain)))
        for at, i in enumerate(left):
            place[i] = len(plain) + at
        order = pa.array(place, pa.int64())
        columns = []
        for field, ours, native in zip(plan.columns, rows.batch.columns, batch.columns, strict=True):
            if ours.null_count == len(ours) and native.null_count == len(native):
                columns.append(ours)  # as most are
                continue
            theirs = native
            if field.name == RECORD_COLUMN:
                theirs = replaced(native, field.type, {"seq": numbers}, mask=native.is_null())
            columns.append(pa.concat_arrays([ours, theirs]).take(order))
        stats.add(_counts_of_all(rows, spans, len(part), part.ends[-1]))
        if not columns:
            return rows.batch, stats
        return pa.RecordBatch.from_arrays(columns, schema=plan.columns), stats

    def _by_runs(
        self, rows: PlainRows, plain: Sequence[bool], spans: RecordSpans, plan: ParsePlan
    ) -> tuple[pa.RecordBatch, ParseStats]:
        """Where rows may be left out, or an error has to name a record: each run of records by its own engine."""
        kept = rows.kept.to_pylist()
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
    """Some records of others."""

    spool_id: str
    lane: str
    first_seq: int
    buffer: memoryview
    ends: Sequence[int]
    appended_at: Sequence[int]

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def gathered(cls, spans: RecordSpans, which: Sequence[int]) -> _Part:
        """Records from here and there, numbered as if they followed one another."""
        lines = [spans.buffer[spans.ends[i - 1] if i else 0 : spans.ends[i]] for i in which]
        ends = list(accumulate(map(len, lines)))
        moments = [spans.appended_at[i] for i in which]
        return cls(spans.spool_id, spans.lane, spans.first_seq, memoryview(b"".join(lines)), ends, moments)

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


def _counts_of_all(rows: PlainRows, spans: RecordSpans, left: int, left_bytes: int) -> ParseStats:
    """The counts of the plain records, where as many others are left over, and no row is left out."""
    invalid = pc.sum(pc.if_else(rows.plain, rows.invalid, 0)).as_py() or 0
    return ParseStats(records=len(spans) - left, bytes=spans.ends[-1] - left_bytes, invalid=invalid)


def _concatenated(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    if not len(schema):
        return pa.RecordBatch.from_pydict({"row": pa.nulls(sum(part.num_rows for part in parts))}).select([])
    columns = [pa.concat_arrays([part.column(i) for part in parts]) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
