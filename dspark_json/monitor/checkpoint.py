"""How far a stream of Spark has come, from its checkpoint folder (Spark: ``OffsetSeqLog``, ``CommitLog``).

``commits/N`` says that micro-batch N is written; ``offsets/N`` is where it ended: a version line, a line of metadata,
and a line for each source of the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.errors import InvalidOptionError, OffsetError
from dspark_json.source.offsets import Offset, parse_offset
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["committed"]

_REMEDY: Final = "Give the stream's checkpointLocation, a folder that this process can read."
_HEAD_LINES: Final = 2
_TRIES: Final = 3  # Spark deletes old entries while we look


def committed(checkpoint: Path) -> Offset | None:
    """Where the last micro-batch that was written ended; None before the first.

    A query of several sources of this kind has their offsets together. Raises ``InvalidOptionError`` where the folder
    is no checkpoint of a stream with such a source.
    """
    for _ in range(_TRIES):
        try:
            batches = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
            if not batches:
                return None
            lines = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = reason(error) if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidOptionError(f'the checkpoint "{checkpoint}" can\'t be read: {why}', remedy=_REMEDY) from None
        found = [offset for line in lines[_HEAD_LINES:] if (offset := _offset(line)) is not None]
        if not found:
            break
        return Offset({spool_id: spool for one in found for spool_id, spool in one.spools.items()})
    if (checkpoint / "offsets").is_dir():
        if not (checkpoint / "commits").is_dir():
            return None
        raise InvalidOptionError(f'the checkpoint "{checkpoint}" holds no offset of this source', remedy=_REMEDY)
    raise InvalidOptionError(f'"{checkpoint}" is not the checkpoint of a stream: it has no offsets', remedy=_REMEDY)


def _offset(line: str) -> Offset | None:
    """The offset in a line, unless it is another source's."""
    try:
        return parse_offset(line)
    except OffsetError:
        return None
