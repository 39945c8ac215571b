"""The native engine: the same rows as the reference, by the Rust crate behind ``dspark_json._native`` (DESIGN §6).

Records are parsed where they lie in memory, without the interpreter's lock; the rows come back through Arrow's C data
interface. What neither a projected column shows nor ``mode`` needs is not looked at (DESIGN §5), so ``mismatches``,
``invalid`` and ``truncated`` count what was looked at.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans, log_batch, malformed_record, place_of
from dspark_json.errors import EngineFailedError, EngineUnavailableError

if TYPE_CHECKING:
    from dspark_json import _native

__all__ = ["NativeEngine"]

_PLANS_KEPT: Final = 32


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
        batch = pa.RecordBatch._import_from_c(made.address(), plan.columns)  # noqa: SLF001 - all others make the schema anew
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
            self._compiled = (plan, _compiled(*_content(plan)))
        return self._compiled[1]


def _content(plan: ParsePlan) -> tuple[Any, ...]:
    """All that a compiled plan depends on, to be compared: schemas are equal whatever their fields' metadata say."""
    return (
        plan.declared.serialize().to_pybytes(),
        plan.columns.serialize().to_pybytes(),
        plan.content_type is not None,
        plan.tool_type is not None,
        plan.tools,
        plan.answers_of,
        plan.repair == "strict",
        plan.mode,
        plan.corrupt_column,
        plan.rescued_column,
        plan.rescue_unknown,
    )


@lru_cache(maxsize=_PLANS_KEPT)
def _compiled(
    declared: bytes,
    columns: bytes,
    typed_content: bool,
    typed_arguments: bool,
    tools: frozenset[str] | None,
    answers_of: str | None,
    strict: bool,
    mode: str,
    corrupt_column: str,
    rescued_column: str,
    rescue_unknown: bool,
) -> _native.Plan:
    """The plan for the engine, made once for all splits of a query that this process reads."""
    from dspark_json import _native

    return _native.Plan(
        pa.ipc.read_schema(pa.py_buffer(declared)),
        pa.ipc.read_schema(pa.py_buffer(columns)),
        typed_content=typed_content,
        typed_arguments=typed_arguments,
        tools=None if tools is None else sorted(tools),
        answers_of=answers_of,
        strict=strict,
        mode=mode,
        corrupt_column=corrupt_column,
        rescued_column=rescued_column,
        rescue_unknown=rescue_unknown,
    )


def _failed(spans: RecordSpans, seq: int, why: str) -> EngineFailedError:
    return EngineFailedError(
        f"the native engine failed at {place_of(spans.spool_id, spans.lane, seq)}: {why}",
        remedy="Please report it with the record. Smaller batches (maxBytesPerTrigger) may help where a column is too "
        "large.",
    )
