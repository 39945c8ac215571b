"""The native engine: the same rows as the reference, by the Rust crate behind ``dspark_json._native`` (DESIGN §6).

Records are parsed where they lie in memory, without the interpreter's lock; the rows come back through Arrow's C data
interface. What neither a projected column shows nor ``mode`` needs is not looked at (DESIGN §5), so ``mismatches``,
``invalid`` and ``truncated`` count what was looked at.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans, log_batch, malformed_record, place_of
from dspark_json.errors import EngineFailedError, EngineUnavailableError

if TYPE_CHECKING:
    from dspark_json import _native

__all__ = ["NativeEngine"]


class NativeEngine:
    """Records to rows in one pass over their bytes; safe from any thread."""

    name = "native"

    def __init__(self) -> None:
        """Raises ``EngineUnavailableError`` where this installation has no native module."""
        try:
            from dspark_json import _native
        except ImportError as error:
            raise EngineUnavailableError(
                f"the native engine is not part of this installation ({error})",
                remedy="Install a wheel, or build from source with a Rust compiler (rustup.rs): pip install .",
            ) from error
        self._native = _native
        self._compiled: tuple[ParsePlan, Any] | None = None

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """See ``Engine.parse``."""
        started = time.perf_counter_ns()
        try:
            made, counts = self._plan(plan).parse(
                spans.buffer, spans.ends, spans.appended_at, spans.first_seq, spans.spool_id, spans.lane
            )
        except self._native.MalformedError as error:
            seq, status = error.args
            raise malformed_record(place_of(spans.spool_id, spans.lane, seq), status) from None
        except self._native.EngineError as error:
            raise _failed(spans, *error.args) from None
        batch = pa.record_batch(made)
        stats = ParseStats(
            records=counts.records,
            bytes=counts.bytes,
            parse_ns=time.perf_counter_ns() - started,
            corrupt=counts.corrupt,
            mismatches=counts.mismatches,
            invalid=counts.invalid,
            truncated=counts.truncated,
            dropped=counts.dropped,
            filtered=counts.filtered,
        )
        log_batch(stats)
        return batch, stats

    def _plan(self, plan: ParsePlan) -> _native.Plan:
        if self._compiled is None or self._compiled[0] is not plan:
            self._compiled = (plan, self._compile(plan))
        return self._compiled[1]

    def _compile(self, plan: ParsePlan) -> _native.Plan:
        return self._native.Plan(
            plan.declared,
            plan.columns,
            typed_content=plan.content_type is not None,
            typed_arguments=plan.tool_type is not None,
            tools=None if plan.tools is None else sorted(plan.tools),
            answers_of=plan.answers_of,
            strict=plan.repair == "strict",
            mode=plan.mode,
            corrupt_column=plan.corrupt_column,
            rescued_column=plan.rescued_column,
            rescue_unknown=plan.rescue_unknown,
        )


def _failed(spans: RecordSpans, seq: int, why: str) -> EngineFailedError:
    return EngineFailedError(
        f"the native engine failed at {place_of(spans.spool_id, spans.lane, seq)}: {why}",
        remedy="Please report it with the record. Smaller batches (maxBytesPerTrigger) may help where a column is too "
        "large.",
    )
