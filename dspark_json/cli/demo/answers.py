"""The answers of the demo as values: the columns that a schema of the requests gives, and how each parse went."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# What the demo's requests ask for with response_format.
SCHEMAS: Final = ("order", "risk")

_STATUS: Final = "parse_status"
_MOST_COLUMNS: Final = 6


@dataclass(frozen=True, slots=True)
class TypedAnswers:
    """The answers asked for with one schema.

    ``columns`` are the first ones of ``parsed``, ``rows`` some of their values as text, ``statuses`` how many choices
    have which ``parse_status``.
    """

    schema: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    statuses: Mapping[str, int]

    @property
    def title(self) -> str:
        """The schema, and the counts in one line."""
        counts = ", ".join(f"{status} {count}" for status, count in sorted(self.statuses.items(), key=lambda s: -s[1]))
        return f"{self.schema}: {_STATUS} {counts or 'of no answer'}"


def typed_answers(spark: SparkSession, schema: str, options: Mapping[str, str], count: int) -> TypedAnswers:
    """Read a spool in a batch, the answers asked for with ``schema`` alone; ``count`` of them are shown."""
    rows = spark.read.format("dspark-json").options(**options, responseSchema=schema).load()
    choices = rows.selectExpr("inline(choices)").select(_STATUS, "parsed").persist()
    # A running server may have seen other schemas of this name, whose common type is no STRUCT.
    is_struct = choices.schema["parsed"].dataType.typeName() == "struct"
    parsed = choices.where("parsed is not null").select("parsed.*" if is_struct else "parsed")
    try:
        statuses = {row[0]: row[1] for row in choices.groupBy(_STATUS).count().collect()}
        values = parsed.limit(count).collect()
    finally:
        choices.unpersist()
    shown = [tuple(map(_text, row[:_MOST_COLUMNS])) for row in values]
    return TypedAnswers(schema, tuple(parsed.columns[:_MOST_COLUMNS]), tuple(shown), statuses)


def _text(value: Any) -> str:
    """A value as people read it: text as it is, structs and arrays as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value
