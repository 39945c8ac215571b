"""What the GPU engine asks of a JSON reader, and the patterns by which it counts in raw text (DESIGN §7).

The patterns keep to what Python's ``re`` and cuDF's regular expressions understand alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dspark_json.engine.text_fields import TextField

__all__ = ["MEMBER", "NULL_MEMBER", "ODD", "OPENING", "BatchRefusedError", "TextBatch", "TextReader"]

# A member of an object: a quote that no backslash stands before, and a colon. Never fewer than there are, where ODD
# finds nothing; more where a string begins with a colon.
MEMBER: Final = r'[^\\]"[ \t\r\n]*:'
# A member that is null; never one that MEMBER does not count, where ODD finds nothing.
NULL_MEMBER: Final = r'[^\\]"[ \t\r\n]*:[ \t\r\n]*null'
# What opens an object or an array, or looks like it in a string.
OPENING: Final = r"[\[{]"
# Text about which the counts say nothing, or whose strings readers may understand differently: a member's name that
# ends with a backslash, a string that begins with ":null", surrogates and NUL behind \u.
ODD: Final = (
    r'\\\\"[ \t\r\n]*:'
    r'|[:,\[{][ \t\r\n]*"[ \t\r\n]*:[ \t\r\n]*null'
    r"|\\u([dD][89abcdefABCDEF]|0000)"
)


class BatchRefusedError(Exception):
    """The reader can't take this batch, whatever may be said of others: it is for the native engine, as a whole."""


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Values that a reader read, one row each.

    ``rows`` has the members asked for, strings with their quotes but without their escapes, other values as written
    (``text_type``); a line that is not one JSON object, and nothing else, is null in all members.

    Where a field has a ``conversion``, texts that match its pattern, and no others, are given as values instead. A
    column of nothing but such texts (and nulls) has the conversion's type; one of which some are left over is a struct
    with a ``VALUE`` of that type, a text ``DIGITS`` that matches the other pattern, and any other text ``LEFT``, just
    one of them there where it is not null; a member of which there is none may be missing. A column without any value
    may stay one of texts.

    ``members``, ``nulls`` and ``openings`` count ``MEMBER``, ``NULL_MEMBER`` and ``OPENING`` in each line's text,
    ``odd`` says whether ``ODD`` is in it.
    """

    rows: pa.StructArray
    members: pa.Array
    nulls: pa.Array
    openings: pa.Array
    odd: pa.Array


class TextReader(Protocol):
    """Reads JSON objects as text; the one seam between the engine and a GPU."""

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        """Read lines, one value each; a line feed is at their ends and nowhere else.

        ``data`` is the host's memory (format ``B``), or the address of a GPU's; line i ends at ``ends[i]``, its line
        feed included.
        Raises ``BatchRefusedError``, and ``EngineFailedError`` for a batch that is too large.
        """
        ...
