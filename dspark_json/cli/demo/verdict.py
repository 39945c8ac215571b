"""Whether the table holds what the clients got: each answer once, none missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

RowKey = tuple[str, str, int]
"""The unique key of a row: spool_id, lane, seq."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The demo's counts.

    ``records`` were written to the spool meanwhile; ``duplicates`` counts rows beyond the first with the same key or
    the same answer id; ``missing`` counts answers that a client got whole and the table lacks; ``failed`` counts
    requests without a whole answer. With ``alone`` nobody else asked the server.
    """

    requests: int
    records: int
    delta_rows: int
    duplicates: int
    missing: int
    failed: int
    seconds: float
    alone: bool

    @classmethod
    def of(
        cls,
        rows: Sequence[tuple[RowKey, str | None]],
        received: Collection[str],
        *,
        requests: int,
        records: int,
        seconds: float,
        alone: bool,
    ) -> Verdict:
        """Compare the table's ``rows`` (key, answer id) with the ids ``received`` whole by clients."""
        keys = Counter(key for key, _ in rows)
        ids = Counter(answer_id for _, answer_id in rows if answer_id is not None)
        twice = max(len(rows) - len(keys), ids.total() - len(ids))
        return cls(
            requests=requests,
            records=records,
            delta_rows=len(rows),
            duplicates=twice,
            missing=len(set(received) - ids.keys()),
            failed=requests - len(received),
            seconds=round(seconds, 2),
            alone=alone,
        )

    @property
    def agrees(self) -> bool:
        """Whether the counts are as they must be; others may have asked the server too unless it was the demo's."""
        if self.duplicates or self.missing or self.failed:
            return False
        if self.alone:
            return self.requests == self.records == self.delta_rows
        return self.delta_rows >= self.requests

    def document(self) -> dict[str, Any]:
        """The counts as one JSON object."""
        return {
            "requests": self.requests,
            "records": self.records,
            "delta_rows": self.delta_rows,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "seconds": self.seconds,
        }

    def sentence(self) -> str:
        """The counts for people."""
        text = (
            f"{self.requests} requests, {self.records} records, {self.delta_rows} rows in Delta, "
            f"duplicates {self.duplicates}, missing {self.missing}, {self.seconds:.1f} s"
        )
        return f"{text}, {self.failed} requests failed" if self.failed else text
