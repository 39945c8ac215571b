"""Names of content columns: those of the schema, made fit for Delta and Spark (DESIGN §5)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FieldNames", "column_names"]

FieldNames = Literal["safe", "exact"]

_REFUSED: Final = re.compile(r"[ ,;{}()\n\t=]")


def column_names(wire: Sequence[str], rule: FieldNames = "safe") -> list[str]:
    """The column names of one struct's fields, by their names on the wire.

    ``safe``: what Delta refuses becomes ``_``, and a name that equals an earlier sibling's but for case gets ``_2``,
    ``_3``, … ``exact``: as they are.
    """
    if rule == "exact":
        return list(wire)
    names: list[str] = []
    taken: set[str] = set()
    last_numbers: dict[str, int] = {}
    for name in wire:
        base = _REFUSED.sub("_", name)
        column, number = base, last_numbers.get(base.lower(), 1)
        while column.lower() in taken:
            number += 1
            column = f"{base}_{number}"
        taken.add(column.lower())
        last_numbers[base.lower()] = number
        names.append(column)
    return names
