"""Texts into values on a GPU, before the columns leave it (DESIGN §7): the conversions of ``engine.conversions``.

A text is converted only if the conversion's pattern matches it, so that nothing rests on how cuDF's functions take
what is not plain. On what is plain they are exact, as libcudf's sources say: ``to_integers`` adds up digits that can't
overflow (``string_to_int.cuh``), ``to_fixed_point`` does so in units of 10^-7 (``fixed_point.cuh``), and a division of
doubles is the nearest one on any GPU. ``to_floats`` is not used: it multiplies by powers of ten that ``exp10`` rounds
(``string_to_float.cuh``). A number can't be cast to a timestamp (``cast_ops.cu``), but the same memory may be seen as
one.

Written against pylibcudf 26.10; not yet run on a GPU. ``engine.selftest`` holds it to the native engine's numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dspark_json.engine.conversions import (
    CONVERSIONS,
    DECIMALS,
    DIGITS,
    LEFT,
    TO_BIGINT,
    TO_BOOLEAN,
    TO_DOUBLE,
    TO_INT,
    VALUE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.conversions import Conversion
    from dspark_json.engine.text_fields import TextField

__all__ = ["CudfConversions"]


class CudfConversions:
    """Converts the columns of a batch."""

    def __init__(self, pylibcudf: Any) -> None:
        """``pylibcudf`` is the module."""
        self._plc = pylibcudf
        program = pylibcudf.strings.regex_program.RegexProgram.create
        flags = pylibcudf.strings.regex_flags.RegexFlags.DEFAULT
        patterns = {pattern for one in CONVERSIONS for pattern in (one.pattern, one.digits) if pattern is not None}
        self._programs = {pattern: program(pattern, flags) for pattern in patterns}

    def table(
        self, columns: Sequence[Any], names: Sequence[tuple[str, list[Any]]], fields: Sequence[TextField]
    ) -> pa.Table:
        """The columns on the host. ``names`` are those of the columns and their children, as the JSON reader says."""
        known = {one.name: one for one in fields}
        made = [self._column(one, name, known.get(name[0])) for one, name in zip(columns, names, strict=True)]
        return pa.table(self._plc.Table([one for one, _ in made]).to_arrow(metadata=[one for _, one in made]))

    def _column(self, column: Any, name: tuple[str, list[Any]], field: TextField | None) -> tuple[Any, Any]:
        """A column with its texts converted, as far as the field says so, and its metadata."""
        kinds, kind = self._plc.TypeId, column.type().id()
        title, inside = name
        if field is not None and field.conversion is not None and kind == kinds.STRING:
            return self._converted(column, title, field.conversion)
        fields: Sequence[TextField] = ()
        if field is not None and field.members is not None and kind == kinds.STRUCT:
            fields = field.members
        elif field is not None and field.item is not None and kind == kinds.LIST:
            fields = (field.item,)
        if not fields:
            return column, self._metadata(name)
        known = {one.name: one for one in fields}
        # The names of a list's children are those of its offsets, and of its items: "element", as the item's field.
        made = [self._column(one, it, known.get(it[0])) for one, it in zip(column.children(), inside, strict=True)]
        return self._like(column, [one for one, _ in made]), self._named(title, [one for _, one in made])

    def _converted(self, texts: Any, title: str, conversion: Conversion) -> tuple[Any, Any]:
        """A column of texts as one of values; or of its parts, where some are left over."""
        plc = self._plc
        if texts.null_count() == texts.size():
            return texts, self._named(title)
        proved = plc.strings.contains.matches_re(texts, self._programs[conversion.pattern])
        mask, without = plc.transform.bools_to_mask(proved)  # what is null is false there
        values = self._values(texts, conversion).with_mask(mask, without)
        zone = getattr(conversion.type, "tz", "")
        if without == texts.null_count():
            return values, self._named(title, zone=zone)
        nothing = plc.Scalar.from_py(None, texts.type())
        parts, left = [(VALUE, values)], plc.copying.copy_if_else(nothing, texts, proved)
        if conversion.digits is not None:
            numbers = plc.strings.contains.matches_re(left, self._programs[conversion.digits])
            parts.append((DIGITS, plc.copying.copy_if_else(left, nothing, numbers)))
            left = plc.copying.copy_if_else(nothing, left, numbers)
        if left.null_count() < left.size():
            parts.append((LEFT, left))
        column = self._like(texts, [one for _, one in parts], plc.TypeId.STRUCT)
        return column, self._named(title, [self._named(name, zone=zone * (name == VALUE)) for name, _ in parts])

    def _values(self, texts: Any, conversion: Conversion) -> Any:
        """All texts as values; what those are that do not match the pattern does not matter."""
        plc = self._plc
        kinds, convert = plc.TypeId, plc.strings.convert
        if conversion == TO_BOOLEAN:
            return convert.convert_booleans.to_booleans(texts, plc.Scalar.from_py("true"))
        if conversion == TO_DOUBLE:
            units = convert.convert_fixed_point.to_fixed_point(texts, plc.DataType(kinds.DECIMAL64, -DECIMALS))
            whole = self._seen_as(units, kinds.INT64)
            one = plc.Scalar.from_py(float(10**DECIMALS))
            true_div = plc.binaryop.BinaryOperator.TRUE_DIV
            return plc.binaryop.binary_operation(whole, one, true_div, plc.DataType(kinds.FLOAT64))
        integers = convert.convert_integers.to_integers
        if conversion == TO_INT:
            return integers(texts, plc.DataType(kinds.INT32))
        numbers = integers(texts, plc.DataType(kinds.INT64))
        if conversion == TO_BIGINT:
            return numbers
        if conversion.unit == "us":
            return self._seen_as(numbers, kinds.TIMESTAMP_MICROSECONDS)
        seconds = self._seen_as(numbers, kinds.TIMESTAMP_SECONDS)
        return plc.unary.cast(seconds, plc.DataType(kinds.TIMESTAMP_MICROSECONDS))

    def _seen_as(self, column: Any, kind: Any) -> Any:
        """The same 64 bits for each value, as another type; nothing is copied."""
        plc, size = self._plc, column.size()
        return plc.Column(plc.DataType(kind), size, column.data(), column.null_mask(), column.null_count(), 0, [])

    def _like(self, column: Any, children: Sequence[Any], kind: Any = None) -> Any:
        """A column of columns, these, null where the given one is; of its type unless another is given."""
        plc, size = self._plc, column.size()
        kind = column.type() if kind is None else plc.DataType(kind)
        return plc.Column(kind, size, None, column.null_mask(), column.null_count(), 0, children)

    def _metadata(self, name: tuple[str, list[Any]]) -> Any:
        title, inside = name
        return self._named(title, [self._metadata(one) for one in inside])

    def _named(self, title: str, children: Sequence[Any] = (), zone: str = "") -> Any:
        return self._plc.interop.ColumnMetadata(name=title, timezone=zone, children_meta=list(children))
