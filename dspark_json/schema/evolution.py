"""How a content type changes: new fields of a new schema, and the types that a user prefers for some (DESIGN §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.fields import field, wire_names
from dspark_json.schema.names import column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.schema.names import FieldNames

__all__ = ["Hint", "extended", "with_hints"]

# A path inside the content type, and the type that stands there.
Hint = tuple[tuple[str, ...], pa.DataType]

_ITEM_STEP = "element"
_VALUE_STEP = "value"


def extended(current: pa.DataType, newer: pa.DataType) -> pa.DataType:
    """``current`` with the fields that only ``newer`` has, each at the end of its struct.

    Both name their fields as the wire does. What ``current`` has keeps its type: a table's column can't change it, so
    a value of another type is a mismatch, and rescued.
    """
    if pa.types.is_struct(current) and pa.types.is_struct(newer):
        old, new = _children(current), _children(newer)
        offered = {one.name: one.type for one in new}
        known = {one.name for one in old}
        grown = [one.with_type(extended(one.type, offered.get(one.name, one.type))) for one in old]
        return pa.struct([*grown, *(one for one in new if one.name not in known)])
    if pa.types.is_map(current) and pa.types.is_map(newer):
        return pa.map_(current.key_type, extended(current.item_type, newer.item_type))
    if pa.types.is_list(current) and pa.types.is_list(newer):
        return pa.list_(extended(current.value_type, newer.value_type))
    return current


def with_hints(kind: pa.DataType, hints: Sequence[Hint], names: FieldNames) -> pa.DataType:
    """The type with other types at some places; a field that it does not have is added at the end of its struct.

    A step of a path is a field's column name or name on the wire, ``element`` for what an array holds and ``value``
    for what a map holds, as in Spark. Raises ``ContentSchemaError`` for a path that leads nowhere.
    """
    for path, wanted in hints:
        kind = _hinted(kind, path, wanted, names, ".".join(path))
    return kind


def _hinted(
    kind: pa.DataType, path: tuple[str, ...], wanted: pa.DataType, names: FieldNames, shown: str
) -> pa.DataType:
    if not path:
        return wanted
    step, rest = path[0], path[1:]
    if pa.types.is_map(kind) and step == _VALUE_STEP:
        return pa.map_(kind.key_type, _hinted(kind.item_type, rest, wanted, names, shown))
    if pa.types.is_list(kind) and step == _ITEM_STEP:
        return pa.list_(_hinted(kind.value_type, rest, wanted, names, shown))
    if not pa.types.is_struct(kind):
        raise ContentSchemaError(
            f'the hint for "{shown}" leads nowhere: "{step}" is not inside a STRUCT',
            remedy='The way into an ARRAY is "element", into a MAP "value".',
        )
    children = _children(kind)
    for place, child in enumerate(children):
        if step == child.name or wire_names(child) == (step,):
            children[place] = child.with_type(_hinted(child.type, rest, wanted, names, shown))
            return pa.struct(children)
    if rest:
        have = ", ".join(child.name for child in children)
        raise ContentSchemaError(
            f'the hint for "{shown}" leads nowhere: there is no "{step}"', remedy=f"The fields there are: {have}."
        )
    column = column_names([*(child.name for child in children), step], names)[-1]
    return pa.struct([*children, field(column, wanted, wire=(step,))])


def _children(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]
