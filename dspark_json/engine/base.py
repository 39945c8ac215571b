"""What every parse engine takes and gives: records as spans of bytes in, one Arrow batch out (DESIGN §6)."""

from __future__ import annotations

import collections
import difflib
import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, get_args

import pyarrow as pa

from dspark_json.errors import InvalidOptionError, MalformedRecordError
from dspark_json.schema.content_type import checked_content_type, content_type_in
from dspark_json.schema.envelope import CORRUPT_COLUMN, RESCUED_COLUMN, row_schema
from dspark_json.schema.profiles import with_profiles
from dspark_json.schema.projection import project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark_json.schema.profiles import Profile

__all__ = [
    "ContentRepair",
    "Engine",
    "ParseMode",
    "ParsePlan",
    "ParseStats",
    "RecordSpans",
    "build_plan",
    "log_batch",
    "malformed_record",
    "place_of",
]

ParseMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
ContentRepair = Literal["auto", "strict"]

_LOG: Final = logging.getLogger("dspark_json")
_Word = TypeVar("_Word", bound=str)


class RecordSpans(Protocol):
    """Records of one lane as they lie in memory.

    Record ``i`` has the number ``first_seq + i``, is ``buffer[ends[i - 1]:ends[i]]`` (the first one begins at 0), ends
    with a line feed and was appended at ``appended_at[i]`` (microseconds since 1970).
    """

    @property
    def spool_id(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def buffer(self) -> memoryview: ...
    @property
    def ends(self) -> Sequence[int]: ...
    @property
    def appended_at(self) -> Sequence[int]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """What to make of the records; made by ``build_plan``.

    ``columns`` is what to produce, a projection of ``declared``: the whole rows, which say what counts as unknown and
    as a mismatch. ``content_type`` is the type of ``choices[].parsed``, ``tool_type`` that of
    ``function.parsed_arguments``; ``None``: it is the JSON text.

    Two filters say which answers become rows: ``answers_of`` (a name, or six or more digits of a hash) those asked for
    with that schema, ``tools`` those that call one of these tools, whose calls alone have ``parsed_arguments``;
    ``None``: all. A record that can't be read is kept where it can't be told.

    ``rescue_unknown`` is false where fields without a column are not kept. ``check_constraints``: choices have
    ``violations``, which no engine makes but ``source.checking`` around it.
    """

    columns: pa.Schema
    declared: pa.Schema
    content_type: pa.DataType | None
    tool_type: pa.DataType | None
    tools: frozenset[str] | None
    answers_of: str | None
    repair: ContentRepair
    mode: ParseMode
    corrupt_column: str
    rescued_column: str
    rescue_unknown: bool
    check_constraints: bool = False


@dataclass(slots=True)
class ParseStats:
    """Counts of one batch or, added up, of many.

    ``bytes`` are those of the lines, ``parse_ns`` is wall time. ``filtered`` are records that the filters left out:
    no other count but the first two has them. ``mismatches`` are values of another type than declared, ``invalid`` and
    ``truncated`` contents (and arguments of a tool that has a type) with that status, ``dropped`` rows left out by
    ``mode`` DROPMALFORMED. ``fallback`` are records that the GPU engine handed to the native one, ``gpu_ns`` is the
    time that the GPU was at work for.
    """

    records: int = 0
    bytes: int = 0
    parse_ns: int = 0
    corrupt: int = 0
    mismatches: int = 0
    invalid: int = 0
    truncated: int = 0
    dropped: int = 0
    filtered: int = 0
    fallback: int = 0
    gpu_ns: int = 0

    def add(self, other: ParseStats) -> None:
        """Adds another batch's counts to these."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


class Engine(Protocol):
    """A way from bytes to Arrow; all engines give the same rows."""

    @property
    def name(self) -> str: ...

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """One row a record, in order, with the columns of the plan, but for those that its filters leave out.

        In mode DROPMALFORMED malformed rows are left out too; in FAILFAST they raise ``MalformedRecordError``.
        """
        ...


def build_plan(
    columns: pa.Schema | None = None,
    *,
    content_type: pa.DataType | None = None,
    tool_type: pa.DataType | None = None,
    tools: frozenset[str] | None = None,
    answers_of: str | None = None,
    profiles: Sequence[Profile] = (),
    repair: str = "auto",
    mode: str = "PERMISSIVE",
    corrupt_column: str = CORRUPT_COLUMN,
    rescued_column: str = RESCUED_COLUMN,
    rescue_unknown: bool = True,
    check_constraints: bool = False,
) -> ParsePlan:
    """The plan for the columns asked for (``None``: all).

    Without a ``content_type`` the columns may give ``choices[].parsed`` any type that content can have. ``profiles``
    add fields to the rows. ``repair`` is ``auto`` or ``strict``, ``mode`` one of Spark's three; the case of both does
    not matter. ``corrupt_column`` and ``rescued_column`` are names for the two columns; the rest is as in
    ``ParsePlan``. Raises ``SchemaError`` for a column that the rows don't have, ``ContentSchemaError`` for a type that
    content can't have, and ``InvalidOptionError`` for another word, a name that another column has, or a profile's
    field that can't be one.
    """
    if content_type is None and columns is not None:
        content_type = content_type_in(columns)
    for kind in (content_type, tool_type):
        if kind is not None:
            checked_content_type(kind)
    names = {CORRUPT_COLUMN: corrupt_column, RESCUED_COLUMN: rescued_column}
    rows = row_schema(content_type, tool_type, violations=check_constraints)
    declared = _renamed(with_profiles(rows, profiles), names)
    return ParsePlan(
        columns=declared if columns is None else project(declared, columns),
        declared=declared,
        content_type=content_type,
        tool_type=tool_type,
        tools=tools,
        answers_of=answers_of,
        repair=_one_of("contentRepair", repair.lower(), get_args(ContentRepair)),
        mode=_one_of("mode", mode.upper(), get_args(ParseMode)),
        corrupt_column=corrupt_column,
        rescued_column=rescued_column,
        rescue_unknown=rescue_unknown,
        check_constraints=check_constraints,
    )


def _renamed(rows: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    columns = [column.with_name(names.get(column.name, column.name)) for column in rows]
    taken = collections.Counter(column.name.lower() for column in columns)
    for before, after in names.items():
        if taken[after.lower()] > 1:
            raise InvalidOptionError(
                f'"{after}" can\'t be the name of {before}: another column has it',
                remedy="Choose another name in columnNameOfCorruptRecord or rescuedDataColumn.",
            )
    return pa.schema(columns, metadata=rows.metadata)


def _one_of(option: str, word: str, allowed: tuple[_Word, ...]) -> _Word:
    for one in allowed:
        if word == one:
            return one
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.0)[0]
    raise InvalidOptionError(
        f'"{word}" is not a value for "{option}": allowed are ' + ", ".join(f'"{one}"' for one in allowed),
        remedy=f'Did you mean "{close}"?',
    )


def place_of(spool_id: str, lane: str, seq: int) -> str:
    """A record as errors name it."""
    return f"record {seq} of lane {lane} of spool {spool_id}"


def malformed_record(place: str, status: str | None) -> MalformedRecordError:
    """The error of mode FAILFAST; ``status`` is the content's ``parse_status``, None for a line that is no object."""
    what = "is no JSON object" if status is None else f"has a content whose parse_status is {status}"
    return MalformedRecordError(
        f"{place} {what}, and mode is FAILFAST",
        remedy="Read with mode PERMISSIVE to see it, or DROPMALFORMED to go on without what can't be read.",
    )


def log_batch(stats: ParseStats) -> None:
    """The DEBUG line of a batch: ``[DSpark] parsed 1243 bytes in 87 µs (1 records, mean 87 µs)``."""
    if _LOG.isEnabledFor(logging.DEBUG):
        micros = stats.parse_ns / 1000
        mean = micros / stats.records if stats.records else 0.0
        _LOG.debug(
            "[DSpark] parsed %d bytes in %.0f µs (%d records, mean %.1f µs)%s%s",
            stats.bytes,
            micros,
            stats.records,
            mean,
            f", filtered_records {stats.filtered}" if stats.filtered else "",
            f", dspark_gpu_kernel_time_ms {stats.gpu_ns / 1e6:.3f}, dspark_gpu_fallback_records {stats.fallback}"
            if stats.gpu_ns
            else "",
        )
