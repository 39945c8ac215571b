"""JSON values to column values, by the table of DESIGN §6.

Column values are what pyarrow builds arrays from: ``dict`` for STRUCT, a list of pairs for MAP, ``list`` for ARRAY,
``int`` microseconds for TIMESTAMP. ``null`` fits every type.
"""

from __future__ import annotations

import decimal
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.engine.json_spans import Kind, Value
from dspark_json.engine.rescue import Path, Rescue
from dspark_json.schema.fields import timestamp_unit, wire_names

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ListShape", "MapShape", "Member", "ScalarShape", "Shape", "StructShape", "read", "read_struct", "shape_of"]

MISMATCH: Final = object()


@dataclass(frozen=True, slots=True)
class ScalarShape:
    """A type without parts; ``take`` gives the column value of a non-null JSON value, or ``MISMATCH``."""

    take: Callable[[Value], object]


@dataclass(frozen=True, slots=True)
class ListShape:
    """ARRAY."""

    item: Shape


@dataclass(frozen=True, slots=True)
class MapShape:
    """MAP with STRING keys."""

    value: Shape


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a STRUCT: the column's name, and the names it may have on the wire (none: the reader makes it)."""

    name: str
    wire: tuple[str, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class StructShape:
    """STRUCT; ``known`` are the names of the wire that have a column, ``made`` the columns that the reader makes."""

    members: tuple[Member, ...]
    known: frozenset[str]
    made: frozenset[str]


Shape = ScalarShape | ListShape | MapShape | StructShape


def shape_of(kind: pa.DataType, unit: str | None = None) -> Shape:
    """The shape that reads values of an Arrow type; ``unit`` is the one of a timestamp's numbers."""
    if pa.types.is_struct(kind):
        members = tuple(
            Member(f.name, wire_names(f), shape_of(f.type, timestamp_unit(f)))
            for f in (kind.field(i) for i in range(kind.num_fields))
        )
        known = frozenset(name for member in members for name in member.wire)
        return StructShape(members, known, frozenset(member.name for member in members if not member.wire))
    if pa.types.is_map(kind):
        return MapShape(shape_of(kind.item_type))
    if pa.types.is_list(kind):
        return ListShape(shape_of(kind.value_type))
    if pa.types.is_timestamp(kind):
        return ScalarShape(_microseconds if unit == "us" else _seconds)
    return ScalarShape(_SCALARS[kind])


def read(value: Value, shape: Shape, path: Path | None, rescue: Rescue) -> object:
    """The column value of a JSON value; what does not fit is null, and kept by ``rescue``."""
    if value.is_null:
        return None
    if isinstance(shape, ScalarShape):
        taken = shape.take(value)
        if taken is not MISMATCH:
            return taken
    elif isinstance(shape, StructShape):
        if value.kind == Kind.OBJECT:
            return read_struct(value.members(), shape, path, rescue)
    elif isinstance(shape, MapShape):
        if value.kind == Kind.OBJECT:
            return [(name, read(v, shape.value, Path(path, name), rescue)) for name, v in value.members().items()]
    elif value.kind == Kind.ARRAY:
        if isinstance(shape.item, ScalarShape):
            return _scalars(value, shape.item, path, rescue)
        return [read(item, shape.item, Path(path, i), rescue) for i, item in enumerate(value.items())]
    rescue.mismatch(path, value)
    return None


def _scalars(array: Value, shape: ScalarShape, path: Path | None, rescue: Rescue) -> list[object]:
    """The column value of an array of scalars; as ``read``, but places are worked out only where they are needed."""
    column: list[object] = []
    for i, item in enumerate(array.items()):
        taken = None if item.is_null else shape.take(item)
        if taken is MISMATCH:
            rescue.mismatch(Path(path, i), item)
            taken = None
        column.append(taken)
    return column


def read_struct(found: dict[str, Value], shape: StructShape, path: Path | None, rescue: Rescue) -> dict[str, object]:
    """The column values of an object's members; those without a column are kept by ``rescue``."""
    row: dict[str, object] = {}
    for member in shape.members:
        name = _first_non_null(found, member.wire)
        row[member.name] = None if name is None else read(found[name], member.shape, Path(path, name), rescue)
    for name, value in found.items():
        if name not in shape.known:
            # The record's own columns hold no paths, and options rename them.
            is_shadowed = path is not None and name in shape.made
            rescue.unknown(Path(path, name, is_shadowed), value)
    return row


def _first_non_null(found: dict[str, Value], names: tuple[str, ...]) -> str | None:
    for name in names:
        if name in found and not found[name].is_null:
            return name
    return None


_NUMBER_PARTS: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]+))?")
_SHORT_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
# Above this many digits an exponent is beyond any text that fits into memory.
_LONGEST_EXPONENT: Final = 18
_BIGINT_DIGITS: Final = 19


def _integral(value: Value, low: int, high: int) -> object:
    """The integer that a number is (``1``, ``1.0``, ``1e3``), if within bounds; a huge one is never made."""
    if value.kind != Kind.NUMBER:
        return MISMATCH
    text = value.raw()
    if _SHORT_INTEGER.fullmatch(text):
        number = int(text)
        return number if low <= number <= high else MISMATCH
    parts = _NUMBER_PARTS.fullmatch(text)
    assert parts is not None
    minus, whole, fraction, exponent_sign, exponent_digits = parts.groups(default="")
    significant = (whole + fraction).lstrip("0")
    if not significant:
        return 0
    if len(exponent_digits) > _LONGEST_EXPONENT:
        return MISMATCH
    exponent = int(f"{exponent_sign}{exponent_digits or 0}") - len(fraction)
    digits = significant.rstrip("0")
    exponent += len(significant) - len(digits)
    if exponent < 0 or len(digits) + exponent > _BIGINT_DIGITS:
        return MISMATCH
    number = int(minus + digits) * 10**exponent
    return number if low <= number <= high else MISMATCH


def _bigint(value: Value) -> object:
    return _integral(value, -(2**63), 2**63 - 1)


def _int(value: Value) -> object:
    return _integral(value, -(2**31), 2**31 - 1)


def _double(value: Value) -> object:
    if value.kind != Kind.NUMBER:
        return MISMATCH
    number = float(value.raw())
    return number if math.isfinite(number) else MISMATCH


def _boolean(value: Value) -> object:
    if value.kind == Kind.TRUE:
        return True
    return False if value.kind == Kind.FALSE else MISMATCH


def _string(value: Value) -> str:
    return value.string() if value.kind == Kind.STRING else value.raw()


# The years 1 to 9999, which is what Spark's TIMESTAMP and Python's datetime share.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
# Below this a fraction of a second is no microsecond, and its exponent may be beyond what Decimal takes.
_NO_TIME: Final = 1e-7
_DECIMALS: Final = decimal.Context(prec=40, rounding=decimal.ROUND_HALF_EVEN)


def _seconds(value: Value) -> object:
    """Unix seconds, perhaps with a fraction, to microseconds (to the nearest one)."""
    if value.kind != Kind.NUMBER:
        return MISMATCH
    text = value.raw()
    about = float(text)
    if not _FIRST_SECOND <= about <= _LAST_SECOND:
        return MISMATCH
    if abs(about) < _NO_TIME:
        return 0
    return int(_DECIMALS.multiply(decimal.Decimal(text), decimal.Decimal(1_000_000)).to_integral_value())


def _microseconds(value: Value) -> object:
    return _integral(value, _FIRST_SECOND * 1_000_000, _LAST_SECOND * 1_000_000 + 999_999)


_SCALARS: Final[dict[pa.DataType, Callable[[Value], object]]] = {
    pa.string(): _string,
    pa.int64(): _bigint,
    pa.int32(): _int,
    pa.float64(): _double,
    pa.bool_(): _boolean,
}
