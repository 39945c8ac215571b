"""A text reader without a GPU, to the letter of ``TextReader``: what the GPU engine is tested on everywhere.

It notes the calls made, and does what cuDF's reader is documented to do: members that were not asked for are left out,
of duplicates the last one counts, a value of another kind than asked for is null (but any is a text), a row that is not
JSON is null in all members. Texts that match the pattern of their field's conversion it gives as values, by way of
Python's own numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.conversions import DIGITS, LEFT, VALUE
from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse
from dspark_json.engine.text_fields import TextField, text_type
from dspark_json.engine.text_reader import MEMBER, NULL_MEMBER, ODD, OPENING, TextBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.engine.conversions import Conversion


@dataclass
class HostTextReader:
    """Reads text with the parser of the reference engine."""

    calls: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        assert not isinstance(data, int)
        assert data.format == "B"  # what a GPU's buffer is made of
        self.calls.append((len(ends), tuple(one.name for one in members)))
        begin, lines = 0, []
        for end in ends:
            one = bytes(data[begin:end])
            assert one.endswith(b"\n")
            assert one.count(b"\n") == 1
            lines.append(one[:-1])
            begin = end
        texts = [line.decode() for line in lines]
        rows = [_row(line, members) for line in lines]
        kind = pa.struct([pa.field(one.name, text_type(one)) for one in members])
        return TextBatch(
            rows=_struct(pa.array(rows, kind), members),
            members=pa.array([len(re.findall(MEMBER, text)) for text in texts], pa.int32()),
            nulls=pa.array([len(re.findall(NULL_MEMBER, text)) for text in texts], pa.int32()),
            openings=pa.array([len(re.findall(OPENING, text)) for text in texts], pa.int32()),
            odd=pa.array([re.search(ODD, text) is not None for text in texts], pa.bool_()),
        )


def _row(line: bytes, members: Sequence[TextField]) -> dict[str, Any]:
    try:
        root = parse(line).root
    except JsonSyntaxError:
        return {}
    return _object(root, members) if root.kind == Kind.OBJECT else {}


def _object(value: Value, members: Sequence[TextField]) -> dict[str, Any]:
    found = value.members()
    return {one.name: _value(found[one.name], one) for one in members if one.name in found}


def _value(value: Value, wanted: TextField) -> Any:
    if value.is_null:
        return None
    if wanted.members is not None:
        return _object(value, wanted.members) if value.kind == Kind.OBJECT else None
    if wanted.item is not None:
        return [_value(item, wanted.item) for item in value.items()] if value.kind == Kind.ARRAY else None
    return f'"{value.string()}"' if value.kind == Kind.STRING else value.raw()


def _struct(column: pa.StructArray, members: Sequence[TextField]) -> pa.StructArray:
    made = [_converted(part, one) for part, one in zip(column.flatten(), members, strict=True)]
    return pa.StructArray.from_arrays(made, names=[one.name for one in members], mask=pc.is_null(column))


def _converted(column: pa.Array, wanted: TextField) -> pa.Array:
    if wanted.members is not None:
        return _struct(column, wanted.members)
    if wanted.item is not None:
        items = _converted(column.values, wanted.item)
        return pa.ListArray.from_arrays(column.offsets, items, mask=pc.is_null(column))
    if wanted.conversion is None or column.null_count == len(column):
        return column
    texts, conversion = column.to_pylist(), wanted.conversion
    parts: dict[str, list[Any]] = {name: [None] * len(texts) for name in (VALUE, DIGITS, LEFT)}
    for i, text in enumerate(texts):
        if text is None:
            continue
        if re.search(conversion.pattern, text):
            parts[VALUE][i] = converted(text, conversion)
        else:
            parts[DIGITS if conversion.digits and re.search(conversion.digits, text) else LEFT][i] = text
    values = pa.array(parts.pop(VALUE), conversion.type)
    others = {name: part for name, part in parts.items() if part.count(None) < len(part)}
    if not others:
        return values
    columns = [values, *(pa.array(part, pa.string()) for part in others.values())]
    return pa.StructArray.from_arrays(columns, names=[VALUE, *others], mask=pc.is_null(column))


def converted(text: str, conversion: Conversion) -> Any:
    """What a text is that matches the pattern of a conversion."""
    if pa.types.is_boolean(conversion.type):
        return text == "true"
    if pa.types.is_floating(conversion.type):
        return float(text)
    return int(text) * (1_000_000 if conversion.unit == "s" else 1)
