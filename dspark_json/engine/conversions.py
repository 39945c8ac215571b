"""What a text reader turns into values itself: the plainest forms of each type, and no others (DESIGN §7).

A conversion is a pattern and a type. Of the texts of a column those that match are given as values, which are exactly
what the text says; all others stay texts, and ``engine.plain`` decides about them. The patterns keep to what a GPU
converts exactly: integers that can't overflow, doubles that one division of two exact numbers gives, which IEEE 754
rounds to the nearest double. Of the other doubles it says at least which are numbers that need no closer look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, TIMESTAMP

__all__ = [
    "CONVERSIONS",
    "DECIMALS",
    "DIGITS",
    "LEFT",
    "TO_BIGINT",
    "TO_BOOLEAN",
    "TO_DOUBLE",
    "TO_INT",
    "VALUE",
    "Conversion",
    "Parts",
    "conversion_to",
    "parts",
]

# The members of a column of which some texts were converted, and some were not.
VALUE: Final = "value"
DIGITS: Final = "digits"
LEFT: Final = "left"
DECIMALS: Final = 7
"""The most decimals of a double that is converted. With 8 digits before them a number is a whole one, below 2^53, of
units of 10^-7: both that and 10^7 are doubles."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Texts that match ``pattern`` become values of ``type``. ``unit`` is the one of a timestamp's numbers.

    Others that match ``digits`` stay texts, but any parser reads them exactly. The patterns keep to what Python's
    ``re`` and cuDF's regular expressions understand alike.
    """

    type: pa.DataType
    pattern: str
    digits: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reader gave for a column of scalars, each part null where another has the value; None: nothing."""

    values: pa.Array | None = None
    digits: pa.Array | None = None
    left: pa.Array | None = None


TO_INT: Final = Conversion(INT, r"^-?(0|[1-9][0-9]{0,8})$")
TO_BIGINT: Final = Conversion(BIGINT, r"^-?(0|[1-9][0-9]{0,17})$")
# What can neither overflow nor have more digits than any parser takes exactly.
_NUMBER: Final = r"^-?[0-9]{1,17}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?$"
# No zero has a sign: it would be lost. So below 1 a negative number must end with a digit that is not 0.
TO_DOUBLE: Final = Conversion(
    DOUBLE,
    r"^(-?[1-9][0-9]{0,7}(\.[0-9]{1,7})?|0(\.[0-9]{1,7})?|-0\.[0-9]{0,6}[1-9])$",
    digits=_NUMBER,
)
TO_BOOLEAN: Final = Conversion(BOOLEAN, r"^(true|false)$")
# Years up to 5138: what is beyond is either later than 9999 or need not be fast.
_SECONDS: Final = Conversion(TIMESTAMP, r"^(0|[1-9][0-9]{0,10})$", unit="s")
_MICROS: Final = Conversion(TIMESTAMP, r"^(0|[1-9][0-9]{0,16})$", unit="us")
CONVERSIONS: Final = (TO_INT, TO_BIGINT, TO_DOUBLE, TO_BOOLEAN, _SECONDS, _MICROS)


def conversion_to(kind: pa.DataType, unit: str | None = None) -> Conversion | None:
    """The conversion to a type of column; None for strings. A timestamp without a unit counts seconds."""
    if pa.types.is_timestamp(kind):
        return _MICROS if unit == "us" else _SECONDS
    return next((one for one in CONVERSIONS if one.type == kind), None)


def parts(column: pa.Array) -> Parts:
    """The parts of a column; texts alone are all ``left``, values alone all ``values``."""
    if pa.types.is_struct(column.type):
        names = [column.type.field(i).name for i in range(column.type.num_fields)]
        return Parts(*(column.field(one) if one in names else None for one in (VALUE, DIGITS, LEFT)))
    return Parts(left=column) if pa.types.is_string(column.type) else Parts(values=column)
