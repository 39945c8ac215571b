"""A user's schema as a projection by name of the declared rows (DESIGN §5)."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.errors import SchemaError
from dspark_json.schema.ddl import to_ddl

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["project"]


def project(declared: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The fields of ``declared`` that ``wanted`` names, in its order, at every level.

    Nullability and metadata of ``wanted`` don't matter; the result has those of ``declared``. Raises ``SchemaError``
    for a name that is not declared, one that is asked for twice, and for another type than the declared one.
    """
    return pa.schema(_fields(declared, wanted, ""), metadata=declared.metadata)


def _fields(declared: Iterable[pa.Field], wanted: Iterable[pa.Field], place: str) -> list[pa.Field]:
    by_name = {field.name: field for field in declared}
    chosen: dict[str, pa.Field] = {}
    for field in wanted:
        path = f"{place}.{field.name}" if place else field.name
        if field.name not in by_name:
            raise _unknown(path, field.name, list(by_name), place)
        if field.name in chosen:
            raise SchemaError(f'the schema names "{path}" twice', remedy="Drop one of them.")
        one = by_name[field.name]
        chosen[field.name] = one.with_type(_type(one.type, field.type, path))
    return list(chosen.values())


def _type(declared: pa.DataType, wanted: pa.DataType, path: str) -> pa.DataType:
    if pa.types.is_struct(declared) and pa.types.is_struct(wanted):
        if wanted.num_fields == 0:
            raise SchemaError(f'"{path}" has no fields in the schema given', remedy=f"Declared is {to_ddl(declared)}.")
        return pa.struct(_fields(_children(declared), _children(wanted), path))
    if pa.types.is_map(declared) and pa.types.is_map(wanted):
        key = _type(declared.key_type, wanted.key_type, f"{path}.key")
        return pa.map_(key, _type(declared.item_type, wanted.item_type, f"{path}.value"))
    if pa.types.is_list(declared) and pa.types.is_list(wanted):
        return pa.list_(declared.value_field.with_type(_type(declared.value_type, wanted.value_type, f"{path}[]")))
    if _same_scalar(declared, wanted):
        return declared
    raise SchemaError(
        f'"{path}" is {_named(wanted)} in the schema given, but the rows have it as {to_ddl(declared)}',
        remedy="Declare that type, or leave the column out.",
    )


def _children(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]


def _same_scalar(declared: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(declared):
        # Spark writes a TIMESTAMP with its session's time zone; all of them mean an instant.
        return pa.types.is_timestamp(wanted) and wanted.unit == declared.unit and wanted.tz is not None
    return bool(declared == wanted)


def _named(kind: pa.DataType) -> str:
    try:
        return to_ddl(kind)
    except SchemaError:
        return str(kind)


def _unknown(path: str, name: str, known: list[str], place: str) -> SchemaError:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    suggestion = f'Did you mean "{close[0]}"? ' if close else ""
    where = f'"{place}" has' if place else "The rows have"
    return SchemaError(f'the rows have no "{path}"', remedy=f"{suggestion}{where}: {', '.join(known)}.")
