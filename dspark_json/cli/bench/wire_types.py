"""The columns of a record as it stands in a spool, in the types that other parsers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.schema.envelope import row_schema
from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, STRING, timestamp_unit, wire_names

if TYPE_CHECKING:
    from collections.abc import Callable

_DUCKDB: Final = {STRING: "VARCHAR", BIGINT: "BIGINT", INT: "INTEGER", DOUBLE: "DOUBLE", BOOLEAN: "BOOLEAN"}


def record_columns() -> list[pa.Field]:
    """The declared columns that a record fills: without what the reader adds.

    Times in microseconds are numbers: other parsers take the number of a timestamp for seconds.
    """
    return [_on_the_wire(column) for column in row_schema() if wire_names(column)]


def without_timestamps(column: pa.Field) -> pa.Field:
    """The same with numbers in place of timestamps, which stand as such in JSON."""
    return column.with_type(_mapped(column.type, lambda kind: BIGINT if pa.types.is_timestamp(kind) else None))


def without_maps(column: pa.Field) -> pa.Field:
    """The same with null in place of maps; they are null in all measured answers."""
    return column.with_type(_mapped(column.type, lambda kind: pa.null() if pa.types.is_map(kind) else None))


def duckdb_type(kind: pa.DataType) -> str:
    """A type without timestamps as DuckDB writes it."""
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f'"{field.name}" {duckdb_type(field.type)}' for field in kind) + ")"
    if pa.types.is_list(kind):
        return duckdb_type(kind.value_type) + "[]"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    return _DUCKDB[kind]


def _on_the_wire(column: pa.Field) -> pa.Field:
    if timestamp_unit(column) == "us":
        return pa.field(column.name, BIGINT)

    def kept(kind: pa.DataType) -> pa.DataType | None:
        if not pa.types.is_struct(kind):
            return None
        return pa.struct([_on_the_wire(field) for field in kind if wire_names(field)])

    return pa.field(column.name, _mapped(column.type, kept))


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType | None]) -> pa.DataType:
    """The type with each part replaced by what ``change`` makes of it, from the outside in; None: look inside."""
    changed = change(kind)
    if changed is not None:
        return changed
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _mapped(field.type, change)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_mapped(kind.value_type, change))
    if pa.types.is_map(kind):
        return pa.map_(_mapped(kind.key_type, change), _mapped(kind.item_type, change))
    return kind
