"""The reference engine: plain Python, the specification that the faster engines are held to (DESIGN §6).

Every record goes the same way: find the spans of its line, read the declared columns, read the texts inside them, then
note what found no column. One record never touches another.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dspark_json.engine.answers import (
    ArgumentsReader,
    Row,
    asked_for_json,
    calls_one_of,
    is_asked_for_with,
    is_complete,
    read_answers,
)
from dspark_json.engine.base import ParsePlan, ParseStats, RecordSpans, log_batch, malformed_record, place_of
from dspark_json.engine.content import ContentReader, ParseStatus
from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse, parse_prefix
from dspark_json.engine.rescue import Rescue
from dspark_json.engine.values import Shape, StructShape, read, read_struct, shape_of
from dspark_json.schema.envelope import RECORD_COLUMN
from dspark_json.schema.protocol import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ReferenceEngine"]

_RECORD_FIRST: Final = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"_dspark"[ \t\n\r]*:')
_LOST: Final = frozenset({ParseStatus.INVALID, ParseStatus.TRUNCATED})
_FAILED: Final = _LOST | {ParseStatus.MISMATCH}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One record, read: its row, the statuses of each choice, its mismatches."""

    row: Row
    choices: list[list[ParseStatus]]
    mismatches: int
    is_corrupt: bool = False

    @property
    def statuses(self) -> list[ParseStatus]:
        return [status for choice in self.choices for status in choice]

    @property
    def is_malformed(self) -> bool:
        """What mode DROPMALFORMED leaves out: a corrupt record, and a row of whose choices none could be read."""
        lost = [bool(choice) and _LOST.issuperset(choice) for choice in self.choices]
        return self.is_corrupt or (bool(lost) and all(lost))


class ReferenceEngine:
    """Records to rows, one after the other."""

    name = "reference"

    def __init__(self) -> None:
        self._compiled: tuple[ParsePlan, _RecordReader] | None = None

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """See ``Engine.parse``."""
        started = time.perf_counter_ns()
        reader = self._reader(plan)
        stats = ParseStats(records=len(spans), bytes=spans.ends[-1] if len(spans) else 0)
        rows: list[Row] = []
        for seq, appended_at, line in _lines(spans):
            position = {"spool_id": spans.spool_id, "lane": spans.lane, "seq": seq, "appended_at": appended_at}
            outcome = reader.outcome(line, position)
            if not _is_kept(outcome, plan):
                stats.filtered += 1
                continue
            _count(outcome, stats)
            if plan.mode == "FAILFAST":
                _fail_if_malformed(outcome)
            if plan.mode == "DROPMALFORMED" and outcome.is_malformed:
                stats.dropped += 1
            else:
                rows.append(outcome.row)
        batch = _batch(rows, plan.columns)
        stats.parse_ns = time.perf_counter_ns() - started
        log_batch(stats)
        return batch, stats

    def _reader(self, plan: ParsePlan) -> _RecordReader:
        if self._compiled is None or self._compiled[0] is not plan:
            self._compiled = (plan, _RecordReader(plan))
        return self._compiled[1]


class _RecordReader:
    """Reads lines by one plan."""

    def __init__(self, plan: ParsePlan) -> None:
        rows = shape_of(pa.struct(list(plan.declared)))
        assert isinstance(rows, StructShape)
        self._rows = rows
        self._record = next(member.shape for member in rows.members if member.name == RECORD_COLUMN)
        strict = plan.repair == "strict"
        content: Shape | None = None if plan.content_type is None else shape_of(plan.content_type)
        self._contents = ContentReader(content, strict)
        arguments: Shape | None = None if plan.tool_type is None else shape_of(plan.tool_type)
        self._arguments = ArgumentsReader(ContentReader(arguments, strict), arguments is not None, plan.tools)
        self._plan = plan

    def outcome(self, line: bytes, position: Row) -> _Outcome:
        """The row of a line without its line feed; ``position`` is what the reader knows of the record by itself."""
        try:
            root = parse(line).root
        except JsonSyntaxError:
            return self._corrupt(line, position)
        if root.kind != Kind.OBJECT:
            return self._corrupt(line, position)
        members = root.members(self._first_wins(root))
        rescue = Rescue(keeps_unknown=self._plan.rescue_unknown)
        row = read_struct(members, self._rows, None, rescue)
        record = (row[RECORD_COLUMN] or {}) | position  # type: ignore[operator]
        row[RECORD_COLUMN] = record
        if record.get("completed") is None:
            record["completed"] = is_complete(row, record, members)
        if row["error"] is None:
            row["error"] = record.get("error")
        statuses: list[list[ParseStatus]] = []
        if row["choices"] is not None:
            wanted = self._plan.content_type is not None or asked_for_json(record)
            statuses = read_answers(
                row, members["choices"], self._contents, self._arguments, status_wanted=wanted, rescue=rescue
            )
        rescue.bound_record(members)
        row[self._plan.rescued_column] = rescue.text()
        return _Outcome(row, statuses, rescue.mismatches)

    def _first_wins(self, root: Value) -> frozenset[str]:
        """The names whose first occurrence counts: what the hook put in front, a body can't forge (DESIGN §3)."""
        for name, value in root.occurrences():
            if name == RECORD_COLUMN:
                path = value.members().get("path") if value.kind == Kind.OBJECT else None
                if path is not None and path.kind == Kind.STRING and path.string() == RESPONSES:
                    return frozenset({RECORD_COLUMN, "choices"})
                break
        return frozenset({RECORD_COLUMN})

    def _corrupt(self, line: bytes, position: Row) -> _Outcome:
        """The row of a line that can't be read: all null but the line itself and what is left of ``_dspark``."""
        row: Row = {member.name: None for member in self._rows.members}
        row[RECORD_COLUMN] = self._what_is_left(line) | position
        row[self._plan.corrupt_column] = line.decode("utf-8", "replace")
        return _Outcome(row, [], 0, is_corrupt=True)

    def _what_is_left(self, line: bytes) -> Row:
        start = _RECORD_FIRST.match(line)
        if start is None:
            return {}
        try:
            value = parse_prefix(line, start.end()).root
        except JsonSyntaxError:
            return {}
        record: Any = read(value, self._record, None, Rescue())
        return record or {}


def _lines(spans: RecordSpans) -> Iterator[tuple[int, int, bytes]]:
    """(number, appended_at, line without its line feed) of each record."""
    start = 0
    for i in range(len(spans)):
        end = spans.ends[i]
        line = bytes(spans.buffer[start:end])
        yield spans.first_seq + i, spans.appended_at[i], line.removesuffix(b"\n")
        start = end


def _is_kept(outcome: _Outcome, plan: ParsePlan) -> bool:
    """Whether the filters of the plan keep a record; one that can't be read is kept where that can't be told."""
    record = outcome.row[RECORD_COLUMN]
    if plan.answers_of is not None and not is_asked_for_with(record, plan.answers_of):
        return outcome.is_corrupt and "schema" not in record
    return plan.tools is None or outcome.is_corrupt or calls_one_of(outcome.row, plan.tools)


def _count(outcome: _Outcome, stats: ParseStats) -> None:
    stats.corrupt += outcome.is_corrupt
    stats.mismatches += outcome.mismatches
    stats.invalid += outcome.statuses.count(ParseStatus.INVALID)
    stats.truncated += outcome.statuses.count(ParseStatus.TRUNCATED)


def _fail_if_malformed(outcome: _Outcome) -> None:
    record = outcome.row[RECORD_COLUMN]
    failed = [status for status in outcome.statuses if status in _FAILED]
    if not outcome.is_corrupt and not failed:
        return
    place = place_of(record["spool_id"], record["lane"], record["seq"])
    raise malformed_record(place, None if outcome.is_corrupt else f"{max(failed)}")


def _batch(rows: list[Row], columns: pa.Schema) -> pa.RecordBatch:
    if len(columns) == 0:
        # A batch without columns still has to say how many rows it has.
        return pa.RecordBatch.from_pydict({"row": pa.nulls(len(rows))}).select([])
    arrays = [pa.array([row[column.name] for row in rows], type=column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
