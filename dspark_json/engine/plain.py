"""Columns out of text, for values that are plain: those about which the text alone proves what the rows are.

A value is plain where every member that its text has is one that was asked for, once, and null or of its type in its
plainest form. That no member is missing, unknown or there twice follows from counting: the text has as many members
that are not null as the columns have values (``prove``). Whatever is not plain is for the native engine, whose rows
are the rule; so nothing here repairs, rounds or guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.conversions import conversion_to, parts
from dspark_json.engine.text_reader import MEMBER, NULL_MEMBER, OPENING
from dspark_json.schema.fields import timestamp_unit, wire_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.text_fields import TextField
    from dspark_json.engine.text_reader import TextBatch

__all__ = ["MOST_OPENINGS", "Built", "Proof", "any_in_lists", "build", "member", "nothing", "per_list", "prove", "true"]

MOST_OPENINGS: Final = 100  # openings in the text of a value that is kept as text; the grammar's limit is 128 levels
_LAST_SECOND: Final = 253_402_300_799
_STRING: Final = pa.scalar(None, pa.string())

# One digit more than ``conversions`` takes at once, up to the last second of the year 9999.
_SECONDS: Final = r"^(0|[1-9][0-9]{0,11})$"
_MICROS: Final = r"^(0|[1-9][0-9]{0,16})$"


@dataclass(frozen=True, slots=True)
class Built:
    """A column, and for each of its values whether it is not plain."""

    column: pa.Array
    bad: pa.Array


@dataclass(frozen=True, slots=True)
class Proof:
    """For each value of a batch: ``plain``, whether its text has no member but those that the columns have a value of,
    and nulls; ``astray``, whether values were seen, but not as many as there are (``engine.repeated``)."""

    plain: pa.Array
    astray: pa.Array


def prove(batch: TextBatch, members: Sequence[TextField]) -> Proof:
    """Count. A value that has nothing but nulls is not plain: a text that is not JSON looks the same."""
    seen = _seen(batch.rows, members)
    there = pc.subtract(batch.members.cast(pa.int64()), batch.nulls.cast(pa.int64()))
    equal, some = pc.equal(seen, there), pc.greater(seen, 0)
    return Proof(pc.and_(pc.and_(equal, some), pc.invert(batch.odd)), pc.and_(some, pc.invert(equal)))


def member(rows: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """A member of a struct as the reader gave it; nulls of ``kind`` where it gave none."""
    index = rows.type.get_field_index(name) if pa.types.is_struct(rows.type) else -1
    return pa.nulls(len(rows), kind) if index < 0 else pc.struct_field(rows, [index])


def build(rows: pa.Array, wanted: pa.Field, declared: pa.Field) -> Built:
    """The column ``wanted``, a projection of ``declared``, out of the struct of text that it is a member of."""
    there = [member(rows, name, pa.null()) for name in wire_names(declared)]
    parts = [_column(texts, wanted, declared) for texts in there if texts.null_count < len(texts)]
    if not parts:
        return Built(pa.nulls(len(rows), wanted.type), nothing(len(rows)))
    built = parts[0]
    for other in parts[1:]:  # the first that is not null; which of them was not plain does not matter
        built = Built(pc.if_else(pc.is_valid(built.column), built.column, other.column), pc.or_(built.bad, other.bad))
    return built


def nothing(length: int) -> pa.Array:
    """False, so many times."""
    return pa.repeat(pa.scalar(value=False), length)


def per_list(lists: pa.Array, values: pa.Array) -> pa.Array:
    """The sum over each list of numbers that belong to its items."""
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(values.cast(pa.int64()))])
    offsets = lists.offsets
    upper, lower = sums.take(offsets.slice(1)), sums.take(offsets.slice(0, len(lists)))
    return pc.subtract(upper, lower)


def any_in_lists(lists: pa.Array, values: pa.Array) -> pa.Array:
    """For each list whether one of its items has a true value."""
    return pc.greater(per_list(lists, values), 0)


def _seen(rows: pa.Array, members: Sequence[TextField]) -> pa.Array:
    """How many members that are not null the columns have, those inside values that are kept as text included."""
    everywhere = 0
    total = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    for one in members:
        column = member(rows, one.name, pa.null())
        if column.null_count == len(column):
            continue
        if column.null_count:
            total = pc.add(total, pc.is_valid(column).cast(pa.int64()))
        else:
            everywhere += 1
        inside = _seen_inside(column, one)
        total = total if inside is None else pc.add(total, inside)
    return pc.add(total, everywhere)


def _seen_inside(column: pa.Array, one: TextField) -> pa.Array | None:
    """The members inside the values of a column; None where there are none in any."""
    if one.members is not None and pa.types.is_struct(column.type):
        return _seen(column, one.members)
    if one.item is not None and pa.types.is_list(column.type):
        inside = _seen_inside(column.values, one.item)
        return None if inside is None else per_list(column, inside)
    texts = None if one.members is not None or one.item is not None else parts(column).left
    if texts is None or pc.all(pc.starts_with(texts, '"')).as_py():
        return None
    raw = _is_container(texts)
    if not pc.any(raw).as_py():
        return None
    texts = pc.if_else(raw, texts, pa.scalar("", pa.string()))
    found = pc.subtract(
        pc.count_substring_regex(texts, pattern=MEMBER), pc.count_substring_regex(texts, pattern=NULL_MEMBER)
    )
    return pc.fill_null(found.cast(pa.int64()), 0)


def _is_container(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.or_(pc.starts_with(texts, "{"), pc.starts_with(texts, "[")), fill_value=False)


def _column(texts: pa.Array, wanted: pa.Field, declared: pa.Field) -> Built:
    kind = wanted.type
    length = len(texts)
    if texts.null_count == length:
        return Built(pa.nulls(length, kind), nothing(length))
    if pa.types.is_struct(kind):
        return _struct(texts, wanted, declared)
    if pa.types.is_list(kind):
        return _list(texts, wanted, declared)
    given = parts(texts)
    if pa.types.is_map(kind) or (given.values is not None and given.values.type != kind):
        return Built(pa.nulls(length, kind), pc.is_valid(texts))
    columns = [] if given.values is None else [given.values]
    if given.digits is not None:
        columns.append(given.digits.cast(kind))
    bad = nothing(length)
    if given.left is not None:
        column, good = _scalar(given.left, kind, timestamp_unit(declared))
        columns.append(column)
        bad = pc.and_(pc.is_valid(given.left), pc.invert(good))
    return Built(columns[0] if len(columns) == 1 else pc.coalesce(*columns), bad)


def _struct(texts: pa.Array, wanted: pa.Field, declared: pa.Field) -> Built:
    length = len(texts)
    if not pa.types.is_struct(texts.type):
        return Built(pa.nulls(length, wanted.type), pc.is_valid(texts))
    fields = [wanted.type.field(i) for i in range(wanted.type.num_fields)]
    built = [build(texts, one, declared.type.field(one.name)) for one in fields]
    bad = nothing(length)
    for one in built:
        bad = pc.or_(bad, one.bad)
    # Members that are not wanted are not looked into: what is wrong with them shows in no column.
    column = pa.StructArray.from_arrays([one.column for one in built], fields=fields, mask=pc.is_null(texts))
    return Built(column, bad)


def _list(texts: pa.Array, wanted: pa.Field, declared: pa.Field) -> Built:
    length = len(texts)
    if not pa.types.is_list(texts.type):
        return Built(pa.nulls(length, wanted.type), pc.is_valid(texts))
    item = _column(texts.values, wanted.type.value_field, declared.type.value_field)
    bad = item.bad
    if pa.types.is_nested(wanted.type.value_type):
        bad = pc.or_(bad, pc.is_null(texts.values))  # a null, or something that is none of these
    column = pa.ListArray.from_arrays(texts.offsets, item.column, type=wanted.type, mask=pc.is_null(texts))
    return Built(column, any_in_lists(texts, bad))


def _scalar(texts: pa.Array, kind: pa.DataType, unit: str | None) -> tuple[pa.Array, pa.Array]:
    """A column out of text, and where that was plain; the rest is null."""
    if pa.types.is_string(kind):
        quoted = pc.starts_with(texts, '"')
        column = pc.utf8_slice_codeunits(texts, 1, -1)
        if pc.all(quoted).as_py():
            return column, true(quoted)
        raw = pc.if_else(quoted, _STRING, texts)
        openings = pc.count_substring_regex(raw, pattern=OPENING)
        # A tab may stand for a line feed, which would have to be kept as written.
        whole = pc.and_(pc.less_equal(openings, MOST_OPENINGS), pc.invert(pc.match_substring(raw, "\t")))
        return pc.if_else(quoted, column, texts), true(pc.or_kleene(quoted, whole))
    if pa.types.is_boolean(kind):
        return pc.equal(texts, "true"), true(pc.or_(pc.equal(texts, "true"), pc.equal(texts, "false")))
    if pa.types.is_timestamp(kind):
        return _timestamp(texts, kind, _MICROS if unit == "us" else _SECONDS, 1 if unit == "us" else 1_000_000)
    conversion = conversion_to(kind)
    assert conversion is not None, "all types but strings have one"
    good = true(pc.match_substring_regex(texts, pattern=conversion.digits or conversion.pattern))
    return pc.if_else(good, texts, _STRING).cast(kind), good


def _timestamp(texts: pa.Array, kind: pa.DataType, pattern: str, factor: int) -> tuple[pa.Array, pa.Array]:
    good = true(pc.match_substring_regex(texts, pattern=pattern))
    numbers = pc.if_else(good, texts, _STRING).cast(pa.int64())
    within = pc.less_equal(numbers, _LAST_SECOND * (1_000_000 // factor))
    good = pc.and_(good, true(within))
    micros = pc.multiply(pc.if_else(good, numbers, pa.scalar(None, pa.int64())), factor)
    return micros.cast(kind), good


def true(mask: pa.Array) -> pa.Array:
    """A mask with false where it is null."""
    return pc.fill_null(mask, fill_value=False)
