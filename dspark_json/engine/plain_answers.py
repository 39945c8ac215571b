"""The rows of plain records: their columns, what the reader makes of their contents, which of them the filters keep.

The counterpart of ``engine.answers`` for whole batches. A record about which anything here is in doubt is marked, and
left to the native engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.plain import (
    MOST_OPENINGS,
    Built,
    Proof,
    any_in_lists,
    build,
    member,
    nothing,
    per_list,
    prove,
    true,
)
from dspark_json.engine.repeated import has_list_once, has_null_alone
from dspark_json.engine.text_fields import TextField, text_fields
from dspark_json.engine.text_reader import BatchRefusedError
from dspark_json.schema.envelope import RECORD_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json.engine.base import ParsePlan, RecordSpans
    from dspark_json.engine.text_reader import TextBatch, TextReader

__all__ = ["MOST_LEFT_OVER", "PlainRows", "plain_rows", "replaced"]

MOST_LEFT_OVER: Final = 0.25  # of the records; above, taking the batch apart costs more than it saves

_BLANK: Final = r"^[ \t\n\r]*$"
# Text of which not even the beginning is JSON, nor anything that is taken off before the value.
_PROSE: Final = r"^([A-Za-eg-mo-su-z#*(]|t[^r]|f[^a]|n[^u])"
_END_OF_THINK: Final = "</think>"
_STRING: Final = pa.scalar(None, pa.string())
_SPACE: Final = " \t\n\r"
# A call's arguments are read too; plain choices have no calls, but whether they have shows here.
_MADE_OF_CONTENTS: Final = frozenset({"parsed", "parse_status", "message"})


@dataclass(frozen=True, slots=True)
class PlainRows:
    """One row a record; ``plain`` says which of them count, ``kept`` which of those the filters keep.

    ``invalid`` is the number of contents with that status in each record.
    """

    batch: pa.RecordBatch
    plain: pa.Array
    kept: pa.Array
    invalid: pa.Array


@dataclass(slots=True)
class _Choices:
    """What the choices of a batch hold in common, for every choice of every record, one after the other."""

    lists: pa.Array
    texts: pa.Array
    status_wanted: pa.Array
    bad: pa.Array


def plain_rows(reader: TextReader, spans: RecordSpans, plan: ParsePlan, data: memoryview | int) -> PlainRows:
    """The rows of a batch, whose lines are ``data`` (``TextReader.read``). Raises ``BatchRefusedError``."""
    members = text_fields(plan.declared)
    batch = reader.read(data, spans.ends, members)
    rows = batch.rows
    record = member(rows, RECORD_COLUMN, pa.null())
    proof = prove(batch, members)
    _refuse_astray(proof, lambda i: bytes(spans.buffer[spans.ends[i - 1] if i else 0 : spans.ends[i]]))
    bad = pc.or_(pc.invert(proof.plain), _doubtful(rows, record))
    wanted_status = _status_wanted(record, plan)
    if plan.content_type is None:
        # Settings that may ask for JSON; to know, one would have to look into them.
        request = member(record, "request", pa.null())
        for name in ("guided_json", "response_format", "structured_outputs"):
            asks = pc.is_valid(member(request, name, pa.null()))
            bad = pc.or_(bad, pc.and_(asks, pc.invert(wanted_status)))
    made: dict[str, pa.Array] = {}
    invalid = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    choices = member(rows, "choices", pa.null())
    if pa.types.is_list(choices.type) and _shows_contents(plan):
        answers = _answers(_Choices(choices, choices.values, wanted_status, bad), plan, reader)
        made, invalid, bad = answers.made, answers.invalid, pc.or_(bad, answers.bad)
    columns = []
    for wanted in plan.columns:
        built = _column(rows, wanted, plan, spans, made)
        columns.append(built.column)
        bad = pc.or_(bad, built.bad)
    if plan.rescued_column in plan.columns.names and plan.columns is not plan.declared:
        for declared in plan.declared:  # a mismatch shows there, whatever else is projected
            bad = pc.or_(bad, build(rows, declared, declared).bad)
    kept = _kept(record, plan, len(rows))
    return PlainRows(_record_batch(columns, plan.columns, len(rows)), pc.invert(bad), kept, invalid)


def _shows_contents(plan: ParsePlan) -> bool:
    """Whether anything that is projected, or the mode, depends on what is in the contents."""
    if plan.mode != "PERMISSIVE" or plan.rescued_column in plan.columns.names:
        return True
    if "choices" not in plan.columns.names:
        return False
    choice = plan.columns.field("choices").type.value_type
    names = {choice.field(i).name for i in range(choice.num_fields)}
    return bool(names & _MADE_OF_CONTENTS)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_pydict({"row": pa.nulls(length)}).select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _doubtful(rows: pa.Array, record: pa.Array) -> pa.Array:
    """Records whose rows depend on more than their columns: without ``_dspark`` or a verdict, or with its error."""
    completed = member(record, "completed", pa.null())
    error = member(record, "error", pa.null())
    return pc.or_(
        pc.or_(pc.is_null(record), pc.is_null(completed)),
        pc.and_(pc.is_valid(error), pc.is_null(member(rows, "error", pa.null()))),
    )


def _status_wanted(record: pa.Array, plan: ParsePlan) -> pa.Array:
    if plan.content_type is not None:
        return pc.invert(nothing(len(record)))
    return pc.is_valid(member(record, "schema", pa.null()))


def _kept(record: pa.Array, plan: ParsePlan, length: int) -> pa.Array:
    """Which plain records the filters keep; none of them has a tool's call."""
    if plan.tools is not None:
        return nothing(length)
    if plan.answers_of is None:
        return pc.invert(nothing(length))
    schema = member(record, "schema", pa.null())
    name, digest = (pc.utf8_slice_codeunits(_text(member(schema, one, pa.null())), 1, -1) for one in ("name", "hash"))
    found = pc.equal(name, plan.answers_of)
    prefix = plan.answers_of.lower()
    if 6 <= len(prefix) <= 64 and set(prefix) <= set("0123456789abcdef"):
        found = pc.or_kleene(found, pc.starts_with(digest, prefix))
    return pc.fill_null(found, fill_value=False)


def _text(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else pa.nulls(len(column), pa.string())


# -- contents ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answers:
    """``made``: the columns that the reader makes, for each choice; ``bad`` and ``invalid``: for each record."""

    made: dict[str, pa.Array]
    bad: pa.Array
    invalid: pa.Array


def _answers(choices: _Choices, plan: ParsePlan, reader: TextReader) -> _Answers:
    texts = choices.texts
    message = member(texts, "message", pa.null())
    calls = member(message, "tool_calls", pa.null())
    bad = nothing(len(texts))
    if pa.types.is_list(calls.type):
        bad = pc.fill_null(pc.greater(pc.list_value_length(calls), 0), fill_value=False)
    in_message = _text(member(message, "content", pa.null()))
    content = pc.if_else(pc.is_valid(in_message), in_message, _text(member(texts, "text", pa.null())))
    bad = pc.or_(bad, true(pc.invert(pc.starts_with(content, '"'))))  # a value that is no string counts as its text
    content = pc.utf8_slice_codeunits(content, 1, -1)
    absent = pc.is_null(content)
    blank = true(pc.match_substring_regex(content, pattern=_BLANK))
    tried = pc.invert(pc.or_(absent, blank))
    if plan.content_type is None:
        prose = true(pc.match_substring_regex(content, pattern=_PROSE))
        if pc.any(prose).as_py():
            prose = pc.and_(prose, true(pc.invert(pc.match_substring(content, _END_OF_THINK))))
        parsed, found = _as_text(content, pc.and_(tried, pc.invert(prose)), reader)
        fits, rest = pc.or_(prose, found), pc.if_else(prose, "invalid", "ok")
    else:
        parsed, fits = _typed(content, tried, plan.content_type, reader)
        rest = pa.scalar("ok")
    bad = pc.or_(bad, pc.invert(pc.or_(pc.or_(absent, blank), fits)))
    status = pc.if_else(absent, "missing", pc.if_else(blank, "empty", rest))
    wanted = choices.status_wanted.take(pc.list_parent_indices(choices.lists)) if len(texts) else nothing(0)
    made = {"parsed": parsed, "parse_status": pc.if_else(wanted, status, _STRING)}
    invalid = pc.and_(pc.equal(status, "invalid"), wanted)
    if plan.mode != "PERMISSIVE":
        bad = pc.or_(bad, invalid)  # the row may not be one
    return _Answers(made, any_in_lists(choices.lists, bad), per_list(choices.lists, invalid))


def _typed(content: pa.Array, tried: pa.Array, kind: pa.DataType, reader: TextReader) -> tuple[pa.Array, pa.Array]:
    """Contents as values of the type, and which of them are plain."""
    fields = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    members = text_fields(fields)
    if not members or not len(content):
        return pa.nulls(len(content), kind), nothing(len(content))
    lines = pc.if_else(tried, _one_line(content), "{}")
    batch = _read(lines, members, reader)
    built = [build(batch.rows, field, field) for field in fields]
    proof = prove(batch, members)
    _refuse_astray(proof, lambda i: lines[i].as_py())
    good = pc.and_(pc.and_(tried, proof.plain), _null_once(lines, batch, proof))
    for part in built:
        good = pc.and_(good, pc.invert(part.bad))
    return pa.StructArray.from_arrays([part.column for part in built], fields=fields, mask=pc.invert(good)), good


def _null_once(lines: pa.Array, batch: TextBatch, proof: Proof) -> pa.Array:
    """False for plain values that have a null and some name twice: the null may be what counts, and no count says so.

    Contents only. The answer around them is written by a server, out of objects that have each name once.
    """
    asked = pc.and_(proof.plain, pc.greater(batch.nulls, 0))
    once = [has_null_alone(text) for text in lines.filter(asked).to_pylist()]
    return pc.replace_with_mask(pc.invert(nothing(len(lines))), asked, pa.array(once, pa.bool_()))


def _refuse_astray(proof: Proof, text: Callable[[int], str | bytes]) -> None:
    """Raise ``BatchRefusedError`` where values of a text may stand in the rows of another."""
    astray = pc.indices_nonzero(proof.astray).to_pylist()
    if len(astray) > MOST_LEFT_OVER * len(proof.plain):
        raise BatchRefusedError("too many of its values have members that are not asked for")
    if not all(has_list_once(text(i)) for i in astray):
        raise BatchRefusedError("one of its values has a list twice, and its items may stand in another")


def _as_text(content: pa.Array, tried: pa.Array, reader: TextReader) -> tuple[pa.Array, pa.Array]:
    """Contents that are one JSON value each, as their text, and which of them are.

    A content is put into an object of its own. If that has a member which is written as the whole content is, then the
    content is one value: nothing in it closed the object or began another member.
    """
    if not len(content):
        return content, nothing(0)
    one_line = _one_line(content)
    lines = pc.binary_join_element_wise('{"v":', pc.if_else(tried, one_line, "null"), "}", "")
    batch = _read(lines, (TextField("v"),), reader)
    text = member(batch.rows, "v", pa.string())
    good = pc.and_(tried, true(pc.equal(text, pc.utf8_trim(one_line, _SPACE))))
    good = pc.and_(good, pc.less_equal(batch.openings, MOST_OPENINGS + 1))  # the object around it is one of them
    return pc.if_else(good, pc.utf8_trim(content, _SPACE), _STRING), good


def _one_line(content: pa.Array) -> pa.Array:
    """Contents with tabs for line feeds: both are space between tokens, and neither may be inside a string."""
    return pc.replace_substring(content, "\n", "\t")


def _read(texts: pa.Array, members: Sequence[TextField], reader: TextReader) -> TextBatch:
    """Read texts, one a line."""
    ends, data = _buffers(pc.binary_join_element_wise(texts, "", "\n"))
    return reader.read(data, ends, members)


def _buffers(lines: pa.Array) -> tuple[list[int], memoryview]:
    """The ends of texts, and the texts, one behind the other."""
    offsets = memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    data = memoryview(lines.buffers()[2] or b"").cast("B")
    first = offsets[0]
    return [end - first for end in offsets[1:]], data[first : offsets[-1]]


# -- columns -----------------------------------------------------------------------------------------------------------


def _column(rows: pa.Array, wanted: pa.Field, plan: ParsePlan, spans: RecordSpans, made: dict[str, pa.Array]) -> Built:
    declared = plan.declared.field(wanted.name)
    built = build(rows, wanted, declared)
    if wanted.name == RECORD_COLUMN:
        return Built(_with_position(built.column, wanted, spans), built.bad)
    if wanted.name == "choices" and len(built.column) > built.column.null_count:
        return Built(_with_made(built.column, wanted, made), built.bad)
    return built


def _with_position(column: pa.Array, wanted: pa.Field, spans: RecordSpans) -> pa.Array:
    """``_dspark`` with what the reader knows of each record by itself."""
    length = len(column)
    known = {
        "spool_id": pa.repeat(pa.scalar(spans.spool_id), length),
        "lane": pa.repeat(pa.scalar(spans.lane), length),
        "seq": pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), length), start=spans.first_seq - 1),
        "appended_at": pa.array(list(spans.appended_at), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
    }
    return replaced(column, wanted.type, known, mask=None)


def _with_made(column: pa.Array, wanted: pa.Field, made: dict[str, pa.Array]) -> pa.Array:
    items = replaced(column.values, wanted.type.value_type, made, mask=pc.is_null(column.values))
    return pa.ListArray.from_arrays(column.offsets, items, type=wanted.type, mask=pc.is_null(column))


def replaced(column: pa.Array, kind: pa.DataType, by: dict[str, pa.Array], mask: pa.Array | None) -> pa.Array:
    """A struct with some of its columns replaced."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    parts = [by.get(one.name, part) for one, part in zip(fields, column.flatten(), strict=True)]
    cast = [part if part.type == one.type else part.cast(one.type) for part, one in zip(parts, fields, strict=True)]
    return pa.StructArray.from_arrays(cast, fields=fields, mask=mask)
