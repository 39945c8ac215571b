"""A captured answer as the spool keeps it: two pieces of JSON text, joined into one line."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One answer before it has a number.

    ``meta`` is the members of ``_dspark`` after ``seq`` and ``lane`` as JSON text without braces, such as
    ``b'"request_id":"x","status":200'``; ``body`` is what stands between the outer braces of the response object.
    Both are UTF-8 and may be empty.
    """

    meta: bytes
    body: bytes

    def line(self, seq: int, lane: str) -> bytes:
        """The record as one line of a segment, with its line feed (DESIGN §3).

        ``_dspark`` comes first so that a body with a member of that name can't forge it. Line breaks, which JSON has
        only between tokens, become blanks.
        """
        meta = b"," + self.meta if self.meta else b""
        body = b"" if not self.body or self.body.isspace() else b"," + self.body
        line = b'{"_dspark":{"seq":%d,"lane":"%s"%s}%s}' % (seq, lane.encode(), meta, body)
        return line.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
