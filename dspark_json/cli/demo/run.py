"""One run of the demo: clients on one side, the query on the other."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.demo.clients import send_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.cli.demo.clients import Receipt
    from dspark_json.cli.demo.screen import Report
    from dspark_json.spool.reader import SpoolAccess, SpoolOffsets

_POLL_SEC: Final = 0.3
_RECORD_SEC: Final = 5.0  # an answer's record is in the spool long before
_STALL_SEC: Final = 90.0  # a micro-batch on a busy small machine takes some seconds


class DemoRun:
    """Requests on one side, the query on the other, until every record is a row."""

    def __init__(self, rows_written: Callable[[], int], access: SpoolAccess, before: SpoolOffsets) -> None:
        """``rows_written`` tells how many rows the query has written; ``before`` is where the spool ended before."""
        self._rows_written = rows_written
        self._access = access
        self._before = before

    def records(self) -> int:
        """How many records were written since the start."""
        known = self._before.lanes
        return sum(
            extent.next - (known[lane].next if lane in known else extent.first)
            for lane, extent in self._access.offsets().lanes.items()
        )

    def until_all_in_table(
        self, address: str, requests: list[dict[str, Any]], clients: int, report: Report
    ) -> list[Receipt]:
        """Send the requests; return the receipts once every record is a row, or nothing moves any more.

        Records that are fewer than the whole answers are waited for some seconds, no longer: they don't come.
        """
        return asyncio.run(self._send_and_watch(address, requests, clients, report))

    async def _send_and_watch(
        self, address: str, requests: list[dict[str, Any]], clients: int, report: Report
    ) -> list[Receipt]:
        received = whole = 0

        def count(receipt: Receipt) -> None:
            nonlocal received, whole
            received += 1
            whole += receipt.answer_id is not None

        asking = asyncio.create_task(send_all(address, requests, clients, count))
        try:
            rows = records = 0
            moved = recorded = time.monotonic()
            while True:
                before, rows = rows, await asyncio.to_thread(self._rows_written)
                report(received, rows)
                if not asking.done():
                    moved = recorded = time.monotonic()
                else:
                    records_before, records = records, await asyncio.to_thread(self.records)
                    now = time.monotonic()
                    moved = now if rows > before else moved
                    recorded = now if records > records_before else recorded
                    awaited = records if now - recorded > _RECORD_SEC else max(whole, records)
                    if rows >= awaited or now - moved > _STALL_SEC:
                        break
                await asyncio.sleep(_POLL_SEC)
            return await asking
        finally:
            asking.cancel()
