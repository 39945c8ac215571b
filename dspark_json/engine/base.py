"""What every parse engine takes and gives: records as spans of bytes in, one Arrow batch out (DESIGN §6)."""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar, get_args

from dspark_json.errors import InvalidOptionError
from dspark_json.schema.content_type import checked_content_type, content_type_in
from dspark_json.schema.envelope import row_schema
from dspark_json.schema.projection import project

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["ContentRepair", "Engine", "ParseMode", "ParsePlan", "ParseStats", "RecordSpans", "build_plan", "log_batch"]

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
    as a mismatch. ``content_type`` is the type of ``choices[].parsed``; ``None``: it is the JSON text.
    """

    columns: pa.Schema
    declared: pa.Schema
    content_type: pa.DataType | None
    repair: ContentRepair
    mode: ParseMode


@dataclass(slots=True)
class ParseStats:
    """Counts of one batch or, added up, of many.

    ``bytes`` are those of the lines, ``parse_ns`` is wall time. ``mismatches`` are values of another type than
    declared, ``invalid`` and ``truncated`` contents with that status, ``dropped`` rows left out by ``mode``
    DROPMALFORMED.
    """

    records: int = 0
    bytes: int = 0
    parse_ns: int = 0
    corrupt: int = 0
    mismatches: int = 0
    invalid: int = 0
    truncated: int = 0
    dropped: int = 0

    def add(self, other: ParseStats) -> None:
        """Adds another batch's counts to these."""
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


class Engine(Protocol):
    """A way from bytes to Arrow; all engines give the same rows."""

    @property
    def name(self) -> str: ...

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """One row a record, in order, with the columns of the plan.

        In mode DROPMALFORMED malformed rows are left out; in FAILFAST they raise ``MalformedRecordError``.
        """
        ...


def build_plan(
    columns: pa.Schema | None = None,
    *,
    content_type: pa.DataType | None = None,
    repair: str = "auto",
    mode: str = "PERMISSIVE",
) -> ParsePlan:
    """The plan for the columns asked for (``None``: all).

    Without a ``content_type`` the columns may give ``choices[].parsed`` any type that content can have. ``repair`` is
    ``auto`` or ``strict``, ``mode`` one of Spark's three; the case of both does not matter. Raises ``SchemaError`` for
    a column that the rows don't have, ``ContentSchemaError`` for a type that content can't have, and
    ``InvalidOptionError`` for another word.
    """
    if content_type is None and columns is not None:
        content_type = content_type_in(columns)
    declared = row_schema(None if content_type is None else checked_content_type(content_type))
    return ParsePlan(
        columns=declared if columns is None else project(declared, columns),
        declared=declared,
        content_type=content_type,
        repair=_one_of("contentRepair", repair.lower(), get_args(ContentRepair)),
        mode=_one_of("mode", mode.upper(), get_args(ParseMode)),
    )


def _one_of(option: str, word: str, allowed: tuple[_Word, ...]) -> _Word:
    for one in allowed:
        if word == one:
            return one
    close = difflib.get_close_matches(word, allowed, n=1, cutoff=0.0)[0]
    raise InvalidOptionError(
        f'"{word}" is not a value for "{option}": allowed are ' + ", ".join(f'"{one}"' for one in allowed),
        remedy=f'Did you mean "{close}"?',
    )


def log_batch(stats: ParseStats) -> None:
    """The DEBUG line of a batch: ``[DSpark] parsed 1243 bytes in 87 µs (1 records, mean 87 µs)``."""
    if _LOG.isEnabledFor(logging.DEBUG):
        micros = stats.parse_ns / 1000
        mean = micros / stats.records if stats.records else 0.0
        _LOG.debug(
            "[DSpark] parsed %d bytes in %.0f µs (%d records, mean %.1f µs)", stats.bytes, micros, stats.records, mean
        )
