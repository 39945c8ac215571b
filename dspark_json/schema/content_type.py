"""What a content type may be, and where a user's schema declares one (DESIGN §5, §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_FIELDS", "MAX_LEVELS", "checked_content_type", "content_type_in"]

MAX_FIELDS: Final = 5_000
# Arrow's readers give up at 64 levels; a content type stands up to seven levels deep in a row.
MAX_LEVELS: Final = 50

_SCALARS: Final = (STRING, BIGINT, INT, DOUBLE, BOOLEAN)


def content_type_in(wanted: pa.Schema) -> pa.DataType | None:
    """The type that a user's schema gives ``choices[].parsed``, if it is another one than STRING."""
    index = wanted.get_field_index("choices")
    choices = wanted.field(index).type if index >= 0 else None
    if choices is None or not pa.types.is_list(choices) or not pa.types.is_struct(choices.value_type):
        return None
    parsed = choices.value_type.get_field_index("parsed")
    if parsed < 0 or choices.value_type.field(parsed).type == STRING:
        return None
    return choices.value_type.field(parsed).type


def checked_content_type(kind: pa.DataType) -> pa.DataType:
    """The type itself, if the parsing rules say how to make it; raises ``ContentSchemaError`` if they don't."""
    fields = 0
    for place, level, part in _parts(kind, "parsed", 1):
        fields += part.num_fields if pa.types.is_struct(part) else 0
        if level > MAX_LEVELS:
            raise ContentSchemaError(f"the content schema is nested deeper than {MAX_LEVELS} levels")
        if fields > MAX_FIELDS:
            raise ContentSchemaError(f"the content schema has more than {MAX_FIELDS:,} fields")
        if pa.types.is_map(part):
            if part.key_type != STRING:
                raise ContentSchemaError(
                    f'"{place}" is a MAP whose keys are not STRING', remedy="JSON's names are strings."
                )
        elif pa.types.is_struct(part):
            if part.num_fields == 0:
                raise ContentSchemaError(
                    f'"{place}" is a STRUCT without fields', remedy="Declare STRING: its JSON text."
                )
        elif not pa.types.is_list(part) and part not in _SCALARS:
            raise ContentSchemaError(
                f'"{place}" is of a type that JSON text can\'t be parsed to ({_spark_name(part)})',
                remedy="Types are STRING, BIGINT, INT, DOUBLE, BOOLEAN, STRUCT, ARRAY and MAP<STRING, …>; "
                "declare STRING and cast the column.",
            )
    return kind


def _spark_name(kind: pa.DataType) -> str:
    """The name that a user of Spark knows a refused type by."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_date(kind):
        return "DATE"
    return str(kind).upper()


def _parts(kind: pa.DataType, place: str, level: int) -> Iterator[tuple[str, int, pa.DataType]]:
    yield place, level, kind
    if level > MAX_LEVELS:
        return
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _parts(kind.field(i).type, f"{place}.{kind.field(i).name}", level + 1)
    elif pa.types.is_map(kind):
        yield from _parts(kind.item_type, f"{place}.value", level + 2)
    elif pa.types.is_list(kind):
        yield from _parts(kind.value_type, f"{place}[]", level + 1)
