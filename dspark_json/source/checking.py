"""``checkConstraints``: an engine around another one, which adds ``choices[].violations`` to its rows.

The schema is the one of the record's own request, as the hook kept it (``_dspark.request``), not the registry's: that
one has the types that answers share, and requests with one type may differ in their constraints.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.content import ContentReader
from dspark_json.engine.rescue import Rescue
from dspark_json.schema.constraints import Constraints, require_checker
from dspark_json.schema.envelope import RECORD_COLUMN, VIOLATIONS_FIELD
from dspark_json.schema.projection import project
from dspark_json.schema.requested import parsed_setting, requested_schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dspark_json.engine.base import Engine, ParsePlan, ParseStats, RecordSpans

__all__ = ["checking"]

_CHOICES: Final = "choices"
_SETTINGS: Final = ("response_format", "structured_outputs", "guided_json")
# What is looked at, by columns and fields.
_NEEDED: Final[Mapping[str, Any]] = {
    _CHOICES: {"message": {"content": None}, "text": None, "parse_status": None},
    RECORD_COLUMN: {"request": dict.fromkeys(_SETTINGS)},
}
_AS_WRITTEN: Final = frozenset({"ok"})
_REPAIRED: Final = frozenset({"leading_text", "fenced", "control_chars", "trailing_text", "mismatch"})
_SCHEMAS_KEPT: Final = 32  # some MB each, where clients send large ones
_READER: Final = ContentReader(None)


def checking(engine: Engine, plan: ParsePlan) -> tuple[Engine, ParsePlan]:
    """The engine and the plan to parse with, for a plan whose rows have ``violations``.

    Where they are not among the columns that are asked for, nothing is checked. Raises ``MissingPackageError`` where
    the package that checks is not installed.
    """
    inner = replace(plan, declared=_without(plan.declared), columns=_without(plan.columns), check_constraints=False)
    if not _has_violations(plan.columns):
        return engine, inner
    require_checker()
    wanted = pa.schema(_merged(inner.columns, _needed(inner.declared, _NEEDED)))
    return _CheckingEngine(engine, plan.columns), replace(inner, columns=project(inner.declared, wanted))


class _CheckingEngine:
    """Makes rows with another engine, which gives what is needed beside them."""

    def __init__(self, engine: Engine, columns: pa.Schema) -> None:
        self._engine = engine
        self._columns = columns
        self.name = engine.name

    def parse(self, spans: RecordSpans, plan: ParsePlan) -> tuple[pa.RecordBatch, ParseStats]:
        """See ``Engine.parse``."""
        batch, stats = self._engine.parse(spans, plan)
        arrays = {name: batch.column(name) for name in batch.schema.names}
        arrays[_CHOICES] = _with_violations(arrays[_CHOICES], _asked(arrays[RECORD_COLUMN]))
        made = [_shaped(arrays[field.name], field.type) for field in self._columns]
        return pa.RecordBatch.from_arrays(made, schema=self._columns), stats


def _asked(record: pa.StructArray) -> list[Constraints | None]:
    """What each record's request asked for; each text is looked at once, however many records have it."""
    columns = [pc.struct_field(record, ["request", name]).dictionary_encode() for name in _SETTINGS]
    texts = [column.dictionary.to_pylist() for column in columns]
    found: dict[tuple[int | None, ...], Constraints | None] = {}
    asked = []
    for places in zip(*(column.indices.to_pylist() for column in columns), strict=True):
        if places not in found:
            given = (None if at is None else known[at] for known, at in zip(texts, places, strict=True))
            found[places] = _constraints(*given)
        asked.append(found[places])
    return asked


def _with_violations(choices: pa.ListArray, asked: Sequence[Constraints | None]) -> pa.ListArray:
    """The choices with one more field, ``violations``."""
    values = choices.values
    statuses = pc.struct_field(values, "parse_status").to_pylist()
    contents = pc.struct_field(values, ["message", "content"]).to_pylist()
    texts = pc.struct_field(values, "text").to_pylist()
    found: list[list[str] | None] = [None] * len(values)
    offsets = choices.offsets.to_pylist()
    for row, constraints in enumerate(asked):
        for i in range(offsets[row], offsets[row + 1]) if constraints is not None else ():
            text = _json_text(statuses[i], texts[i] if contents[i] is None else contents[i])
            if text is not None and constraints is not None:
                found[i] = constraints.violations(text)
    fields = [*values.type, pa.field(VIOLATIONS_FIELD, pa.list_(pa.string()))]
    parts = [*(values.field(i) for i in range(values.type.num_fields)), pa.array(found, fields[-1].type)]
    made = pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    return pa.ListArray.from_arrays(choices.offsets, made, mask=choices.is_null() if choices.null_count else None)


def _json_text(status: str | None, content: object) -> bytes | None:
    """The JSON text of the value that a content is; None where it is none."""
    if not isinstance(content, str):
        return None
    if status in _AS_WRITTEN:
        return content.encode()
    if status not in _REPAIRED:
        return None
    raw, _ = _READER.read(content, cut_short=False, path=None, rescue=Rescue())
    return b"null" if raw is None else str(raw).encode()


@functools.lru_cache(maxsize=_SCHEMAS_KEPT)
def _constraints(*settings: str | None) -> Constraints | None:
    """The constraints of the schema that a request asked for; None where it asked for none."""
    given = {name: parsed_setting(text) for name, text in zip(_SETTINGS, settings, strict=True) if text is not None}
    asked = requested_schemas(given).content
    return None if asked is None else Constraints(asked.schema)


def _has_violations(columns: pa.Schema) -> bool:
    at = columns.get_field_index(_CHOICES)
    return at >= 0 and any(field.name == VIOLATIONS_FIELD for field in columns.field(at).type.value_type)


def _without(columns: pa.Schema) -> pa.Schema:
    """The columns without ``violations``, and without ``choices`` where nothing is left of it."""
    if not _has_violations(columns):
        return columns
    at = columns.get_field_index(_CHOICES)
    choices = columns.field(at)
    kept = [field for field in choices.type.value_type if field.name != VIOLATIONS_FIELD]
    if not kept:
        return columns.remove(at)
    return columns.set(at, choices.with_type(pa.list_(choices.type.value_field.with_type(pa.struct(kept)))))


def _needed(declared: Iterable[pa.Field], names: Mapping[str, Any]) -> Iterator[pa.Field]:
    """The fields of these names, with their types."""
    for field in declared:
        if field.name in names:
            inner = names[field.name]
            yield field if inner is None else field.with_type(_needed_type(field.type, inner))


def _needed_type(declared: pa.DataType, names: Mapping[str, Any]) -> pa.DataType:
    if pa.types.is_list(declared):
        return pa.list_(_needed_type(declared.value_type, names))
    return pa.struct(list(_needed(declared, names))) if pa.types.is_struct(declared) else declared


def _merged(left: Iterable[pa.Field], right: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields of both, those of the first one in its order before what only the second one has."""
    fields = {field.name: field for field in left}
    for field in right:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else known.with_type(_merged_type(known.type, field.type))
    return list(fields.values())


def _merged_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(_merged_type(left.value_type, right.value_type))
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        return pa.struct(_merged(left, right))
    return left


def _shaped(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The fields of an array that a type names, at every level and in its order."""
    if array.type.equals(wanted, check_metadata=True):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(wanted):
        fields = list(wanted)
        parts = [_shaped(array.field(array.type.get_field_index(field.name)), field.type) for field in fields]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_list(wanted):
        return pa.ListArray.from_arrays(array.offsets, _shaped(array.values, wanted.value_type), type=wanted, mask=mask)
    return array.cast(wanted)
