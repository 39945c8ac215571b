"""Records to what the monitor counts of them, by the engine that parses the rows (DESIGN §5, §6).

Contents are judged by the type of the schema that the request asked for: records are sorted by it first, and those of
each schema are parsed once, with its type. Where a schema is not registered or has no type, a content is judged as
JSON, and its answer is counted as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dspark_json.engine.base import ParsePlan, build_plan
from dspark_json.errors import ContentSchemaError
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.tally import Answer
from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP
from dspark_json.source.rows import choose_engine
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from dspark_json.engine.base import RecordSpans
    from dspark_json.schema.registry import RegisteredSchema

__all__ = ["NO_SCHEMA", "AnswerReader"]

NO_SCHEMA: Final = "-"
_UNKNOWN_MODEL: Final = "-"
_FIRST_ERROR_STATUS: Final = 400
_MOST_PLANS: Final = 1_000
_HASH_SHOWN: Final = 12

_SCHEMA: Final = pa.struct([("name", STRING), ("hash", STRING)])
_HASHES: Final = pa.schema([("_dspark", pa.struct([("schema", _SCHEMA)]))])
_COLUMNS: Final = pa.schema(
    [
        ("model", STRING),
        ("choices", pa.list_(pa.struct([("parse_status", STRING)]))),
        ("usage", pa.struct([("completion_tokens", BIGINT)])),
        (
            "metrics",
            pa.struct(
                [
                    (
                        "speculative_decoding",
                        pa.struct(
                            [
                                ("num_accepted_draft_tokens", BIGINT),
                                ("num_draft_tokens", BIGINT),
                                ("num_spec_steps", BIGINT),
                            ]
                        ),
                    )
                ]
            ),
        ),
        ("error", pa.struct([("message", STRING), ("type", STRING), ("code", STRING)])),
        (
            "_dspark",
            pa.struct(
                [
                    ("appended_at", TIMESTAMP),
                    ("model", STRING),
                    ("status", INT),
                    ("duration_ms", DOUBLE),
                    ("completed", BOOLEAN),
                    ("schema", _SCHEMA),
                ]
            ),
        ),
    ]
)

Lookup = Callable[[str], "RegisteredSchema | None"]
"""Gives a registered schema by its hash."""


class AnswerReader:
    """Reads chunks of records; keeps a plan for each schema it has met."""

    def __init__(self) -> None:
        """Raises ``EngineUnavailableError`` where this installation has no native engine."""
        self._engine = choose_engine("cpu")
        self._hashes = build_plan(_HASHES)
        self._untyped = build_plan(_COLUMNS)
        self._plans: dict[str, ParsePlan] = {}

    def answers(self, chunk: RecordSpans, lookup: Lookup) -> Iterator[Answer]:
        """The answers of a chunk; ``lookup`` is asked about a hash until it gives its schema, its errors are raised."""
        for wanted, part in self._by_schema(chunk):
            plan = self._plan(wanted, lookup)
            batch, _ = self._engine.parse(part, plan)
            untyped = wanted is not None and plan is self._untyped
            for row, at_us in zip(batch.to_pylist(), part.appended_at, strict=True):
                yield _answer(row, at_us, untyped=untyped)

    def _by_schema(self, chunk: RecordSpans) -> Iterator[tuple[str | None, RecordSpans]]:
        batch, _ = self._engine.parse(chunk, self._hashes)
        places: dict[str | None, list[int]] = {}
        for i, row in enumerate(batch.to_pylist()):
            places.setdefault(((row["_dspark"] or {}).get("schema") or {}).get("hash"), []).append(i)
        if len(places) == 1:
            yield next(iter(places)), chunk
            return
        for wanted, numbers in places.items():
            yield wanted, _picked(chunk, numbers)

    def _plan(self, wanted: str | None, lookup: Lookup) -> ParsePlan:
        if wanted is None:
            return self._untyped
        plan = self._plans.get(wanted)
        if plan is None:
            schema = lookup(wanted)
            if schema is None:
                return self._untyped
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[wanted] = _typed(schema, self._untyped)
        return plan


def _typed(schema: RegisteredSchema, untyped: ParsePlan) -> ParsePlan:
    try:
        return build_plan(_COLUMNS, content_type=schema.arrow_type())
    except ContentSchemaError:
        return untyped


def _picked(chunk: RecordSpans, numbers: list[int]) -> Chunk:
    """Some records of a chunk as one of their own."""
    lines = [chunk.buffer[chunk.ends[i - 1] if i else 0 : chunk.ends[i]] for i in numbers]
    ends: list[int] = []
    for line in lines:
        ends.append((ends[-1] if ends else 0) + len(line))
    appended_at = [chunk.appended_at[i] for i in numbers]
    return Chunk(chunk.spool_id, chunk.lane, chunk.first_seq, memoryview(b"".join(lines)), ends, appended_at)


def _answer(row: Mapping[str, Any], at_us: int, *, untyped: bool) -> Answer:
    record = row["_dspark"] or {}
    status, schema = record.get("status"), record.get("schema") or {}
    name, digits = schema.get("name"), (schema.get("hash") or "")[:_HASH_SHOWN]
    statuses = (choice["parse_status"] for choice in row["choices"] or () if choice is not None)
    duration_ms = record.get("duration_ms")
    return Answer(
        at_us=at_us,
        model=row["model"] or record.get("model") or _UNKNOWN_MODEL,
        schema=name or digits or NO_SCHEMA,
        failed=row["error"] is not None or (status is not None and status >= _FIRST_ERROR_STATUS),
        tokens=(row["usage"] or {}).get("completion_tokens"),
        statuses=tuple(one for one in statuses if one is not None),
        untyped=untyped,
        latency_s=duration_ms / 1000 if record.get("completed") and duration_ms is not None else None,
        speculation=_speculation((row["metrics"] or {}).get("speculative_decoding")),
    )


def _speculation(told: Mapping[str, Any] | None) -> Speculation | None:
    if told is None:
        return None
    accepted, drafted, steps = (
        told["num_accepted_draft_tokens"],
        told["num_draft_tokens"],
        told["num_spec_steps"],
    )
    if accepted is None or drafted is None or steps is None:
        return None
    return Speculation(accepted, drafted, steps)
