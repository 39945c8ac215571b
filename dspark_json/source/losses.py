"""Records that are gone before a stream has read them: an error, or a warning and a count (DESIGN §4)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.source.offsets import LanePosition, SpoolPosition
    from dspark_json.spool.access import LaneExtent

__all__ = ["Losses", "PlannerCounts"]

_log = logging.getLogger(__name__)

_REMEDY: Final = (
    "Keep more (DSPARK_RETENTION_MB of the server) or read more often; to go on without these records set "
    "failOnDataLoss=false, which counts them as lost_records."
)


@dataclass(slots=True)
class PlannerCounts:
    """What a planner has counted since it began."""

    lost_records: int = 0
    spools_replaced: int = 0
    endpoints_down: int = 0
    schema_updates: int = 0


class Losses:
    """Says of each loss once that there was one: raises ``DataLossError``, or warns and counts ``lost_records``."""

    def __init__(self, counts: PlannerCounts, *, fail: bool) -> None:
        """``fail``: ``failOnDataLoss``."""
        self.fail = fail
        self._counts = counts
        self._told: set[object] = set()

    def expired(self, spool_id: str, lane: str, begin: int, first: int) -> None:
        """The records from ``begin`` to below ``first`` were deleted by retention."""
        self._lost(
            f"records {begin} to {first - 1} of lane {lane} of spool {spool_id} were deleted by the server's retention "
            "before they were read",
            first - begin,
        )

    def replaced(self, spool_id: str, spool: SpoolPosition) -> None:
        """An address has another spool now: what was yet to be read of the old one is gone."""
        unread = sum(max(position.seen - position.next, 0) for position in spool.lanes.values())
        if unread:
            self._lost(
                f"{spool.endpoint} has another spool now; {unread} records of spool {spool_id} had yet to be read",
                unread,
            )
        _log.warning("%s has another spool now, %s is dropped: its folder was made anew", spool.endpoint, spool_id)
        self._counts.spools_replaced += 1

    def missing_lanes(
        self, spool_id: str, positions: Mapping[str, LanePosition], extents: Mapping[str, LaneExtent]
    ) -> None:
        """A lane that the spool had and has no more was removed, with what was yet to be read of it."""
        for lane, position in positions.items():
            unread = position.seen - position.next
            if lane in extents or unread <= 0 or (spool_id, lane, position) in self._told:
                continue
            self._lost(
                f"lane {lane} of spool {spool_id} is no longer there; {unread} records of it had yet to be read", unread
            )
            self._told.add((spool_id, lane, position))

    def tail(self, spool_id: str, lane: str, position: LanePosition, end: int) -> None:
        """A lane that ends before what was seen of it lost its tail in a crash of the host."""
        if end >= max(position.next, position.seen) or (spool_id, lane, position) in self._told:
            return
        unread = position.seen - max(position.next, end)
        if unread > 0:
            self._lost(
                f"lane {lane} of spool {spool_id} ends at {end} and was seen to end at {position.seen}: "
                f"{unread} records that had yet to be read are gone",
                unread,
            )
        if end < position.next:
            _log.warning(
                "lane %s of spool %s ends at %d and was read up to %d: the host lost its tail; the next %d records "
                "written to it get numbers that were read already, and are skipped",
                lane,
                spool_id,
                end,
                position.next,
                position.next - end,
            )
        self._told.add((spool_id, lane, position))

    def _lost(self, message: str, records: int) -> None:
        if self.fail:
            raise DataLossError(message, remedy=_REMEDY)
        self._counts.lost_records += records
        _log.warning("%s (lost_records %d in all; failOnDataLoss is false)", message, self._counts.lost_records)
