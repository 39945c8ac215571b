"""Arrow fields that know where their value stands on the wire.

A field's metadata says two things, and nothing is there where the plain rule holds:

- ``dspark.wire``: a JSON array of the names the value may have on the wire, the first non-null one wins (DESIGN §5).
  Absent: the field's own name. An empty array: the reader makes the value, no name of the wire can set it.
- ``dspark.unit``: for timestamps, what the number on the wire counts: ``s`` or ``us`` since 1970 (UTC).
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

__all__ = ["BIGINT", "BOOLEAN", "DOUBLE", "INT", "STRING", "TIMESTAMP", "field", "timestamp_unit", "wire_names"]

STRING: Final = pa.string()
BIGINT: Final = pa.int64()
INT: Final = pa.int32()
DOUBLE: Final = pa.float64()
BOOLEAN: Final = pa.bool_()
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_WIRE: Final = b"dspark.wire"
_UNIT: Final = b"dspark.unit"


def field(name: str, kind: pa.DataType, *, wire: tuple[str, ...] | None = None, unit: str | None = None) -> pa.Field:
    """A nullable field; ``wire`` and ``unit`` as the module says (``None``: the plain rule)."""
    metadata: dict[bytes, bytes] = {}
    if wire is not None and wire != (name,):
        metadata[_WIRE] = json.dumps(wire, ensure_ascii=False).encode()
    if unit is not None:
        metadata[_UNIT] = unit.encode()
    return pa.field(name, kind, nullable=True, metadata=metadata or None)


def wire_names(of: pa.Field) -> tuple[str, ...]:
    """The names this field's value may have on the wire, in the order in which they are tried."""
    encoded = (of.metadata or {}).get(_WIRE)
    return (of.name,) if encoded is None else tuple(json.loads(encoded))


def timestamp_unit(of: pa.Field) -> str | None:
    """``"s"`` or ``"us"`` for a timestamp that stands as a number on the wire."""
    encoded = (of.metadata or {}).get(_UNIT)
    return None if encoded is None else encoded.decode()
