"""The rows as a reader of text sees them: structs and lists as they are, every value in them as its text (DESIGN §7).

A GPU's JSON reader is asked for text only, with the quotes of strings kept: its own numbers wrap and round, and without
the quotes ``1`` and ``"1"`` would look the same. Texts of which a pattern proves what they are it turns into values
afterwards (``engine.conversions``); what becomes of the others is decided in ``engine.plain``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.engine.conversions import conversion_to
from dspark_json.schema.fields import timestamp_unit, wire_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dspark_json.engine.conversions import Conversion

__all__ = ["TextField", "text_fields", "text_type"]


@dataclass(frozen=True, slots=True)
class TextField:
    """A member on the wire; ``members`` of an object, ``item`` of an array, neither for what is read as text.

    ``conversion`` says which of the texts are given as values; None: they all stay texts.
    """

    name: str
    members: tuple[TextField, ...] | None = None
    item: TextField | None = None
    conversion: Conversion | None = None


def text_fields(fields: Iterable[pa.Field]) -> tuple[TextField, ...]:
    """The members that these fields may have on the wire; those with a MAP in them are left out (no reader has it)."""
    found: list[TextField] = []
    for one in fields:
        for name in wire_names(one):
            member = _text_field(name, one.type, timestamp_unit(one))
            if member is not None:
                found.append(member)
    return tuple(found)


def text_type(member: TextField) -> pa.DataType:
    """The Arrow type that a reader gives for a member of which it converts nothing."""
    if member.members is not None:
        return pa.struct([pa.field(one.name, text_type(one)) for one in member.members])
    return pa.string() if member.item is None else pa.list_(text_type(member.item))


def _text_field(name: str, kind: pa.DataType, unit: str | None) -> TextField | None:
    if pa.types.is_struct(kind):
        members = text_fields(kind.field(i) for i in range(kind.num_fields))
        return TextField(name, members=members) if members else None
    if pa.types.is_list(kind):
        item = _text_field("element", kind.value_type, timestamp_unit(kind.value_field))
        return None if item is None else TextField(name, item=item)
    return None if pa.types.is_map(kind) else TextField(name, conversion=conversion_to(kind, unit))
