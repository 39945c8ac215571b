"""Decides what a micro-batch reads: where a stream begins, how far it goes now, which pieces tasks read (DESIGN §4).

Knows no Spark: offsets go in and come out as the dictionaries of ``offsets.Offset.value``.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.errors import (
    DataLossError,
    EndpointUnreachableError,
    OffsetError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.source.admission import ReadLimits, Waiting, admit
from dspark_json.source.discovery import Discovery, FoundSpool, Survey
from dspark_json.source.offsets import LanePosition, Offset, SpoolPosition, parse_offset, parse_starting_offset
from dspark_json.source.schema_watch import SchemaWatch
from dspark_json.source.splits import LaneRange, Split, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.source.row_type import RowType
    from dspark_json.source.settings import ReaderSettings
    from dspark_json.spool.reader import LaneExtent

__all__ = ["Planner", "PlannerCounts"]

_log = logging.getLogger(__name__)

_WARN_EVERY_S: Final = 60.0
_LOOKS: Final = 3
_MOVED: Final = (RecordsExpiredError, SpoolReplacedError, SpoolNotFoundError, EndpointUnreachableError)
_LOSS_REMEDY: Final = (
    "Keep more (DSPARK_RETENTION_MB of the server) or read more often; to go on without these records set "
    "failOnDataLoss=false, which counts them as lost_records."
)

Value = dict[str, Any]


@dataclass(slots=True)
class PlannerCounts:
    """What a planner has counted since it began."""

    lost_records: int = 0
    spools_replaced: int = 0
    endpoints_down: int = 0
    schema_updates: int = 0


@dataclass(frozen=True, slots=True)
class _Lane:
    """A lane that exists now, and the position in it."""

    found: FoundSpool
    name: str
    position: LanePosition
    extent: LaneExtent

    @property
    def spool_id(self) -> str:
        return self.found.offsets.spool_id

    @property
    def mean_bytes(self) -> float:
        return _mean_bytes(self.extent)


class Planner:
    """Plans one stream (or one batch read). Called by one thread at a time; asks the servers, reads no records."""

    def __init__(self, settings: ReaderSettings, row_type: RowType | None = None) -> None:
        """``row_type``: the rows of a stream, whose schemas are watched; None for a batch read."""
        self.counts = PlannerCounts()
        self._settings = settings
        self._discovery = Discovery(
            settings.addresses, local=settings.local, key=settings.key, timeout_s=settings.timeout_s
        )
        watched = row_type is not None and row_type.settings.has_filter
        self._watch = SchemaWatch(row_type, self._discovery.schemas) if row_type is not None and watched else None
        self._initial: Value | None = None
        self._survey: Survey | None = None
        self._target: dict[tuple[str, str], int] | None = None
        self._warned: dict[object, float] = {}
        self._told: set[object] = set()

    # -- where a stream begins ---------------------------------------------------------------------------------------

    def initial(self) -> Value:
        """The offset a new stream begins at; every endpoint must answer.

        The same value for the life of the planner: Spark asks more than once for its first micro-batch.
        """
        if self._initial is None:
            survey = self._discovery.look({}, first=True)
            for error in survey.down.values():
                raise error
            self._survey = survey
            self._say_start(survey)
            self._initial = self._beginning(survey).value()
        return self._initial

    def _beginning(self, survey: Survey) -> Offset:
        named = Offset()
        if self._settings.starting_timestamp is None and self._settings.starting.startswith("{"):
            named = parse_starting_offset(self._settings.starting)
            _check_named(named, survey)
        spools = {}
        for spool_id, found in survey.spools.items():
            lanes = {}
            for lane, extent in found.offsets.lanes.items():
                position = named.position(spool_id, lane)
                begin = position.next if position is not None else self._lane_beginning(found, lane, extent)
                # With "latest" nothing is seen yet: the first micro-batch, which is empty, brings `seen` up and so
                # writes the beginning into the checkpoint. Without it, a stream that is killed in its first
                # micro-batch with records would begin again at a later "latest".
                lanes[lane] = LanePosition(begin, 0 if self._begins_latest else extent.next)
            spools[spool_id] = SpoolPosition(found.address, lanes)
        return Offset(spools)

    @property
    def _begins_latest(self) -> bool:
        return self._settings.starting_timestamp is None and self._settings.starting == "latest"

    def _lane_beginning(self, found: FoundSpool, lane: str, extent: LaneExtent) -> int:
        if self._settings.starting_timestamp is not None:
            return self._discovery.seek_time(found, lane, self._settings.starting_timestamp)
        return extent.next if self._begins_latest else extent.first

    # -- how far it goes now -----------------------------------------------------------------------------------------

    def fix_target(self) -> None:
        """AvailableNow: from here on, nothing beyond what exists now is planned."""
        survey = self._discovery.look({})
        self._target = {
            (spool_id, lane): extent.next
            for spool_id, found in survey.spools.items()
            for lane, extent in found.offsets.lanes.items()
        }

    def latest(self, start: Value, limits: ReadLimits) -> Value:
        """The end of the next micro-batch; the very ``start`` given where nothing is new."""
        for _ in range(_LOOKS - 1):
            try:
                return self._latest(start, limits)
            except _MOVED:  # between looking at the lanes and measuring what waits in them: look again
                continue
        return self._latest(start, limits)

    def _latest(self, start: Value, limits: ReadLimits) -> Value:
        before = parse_offset(start)
        survey = self._look(before)
        replaced = self._replaced(before, survey)
        spools = {spool_id: spool for spool_id, spool in before.spools.items() if spool_id not in replaced}
        lanes: list[_Lane] = []
        for spool_id, found in sorted(survey.spools.items()):
            positions = self._positions(found, before)
            if positions or self._target is None:
                spools[spool_id] = SpoolPosition(found.address, positions)
            extents = found.offsets.lanes
            lanes.extend(
                _Lane(found, lane, positions[lane], extents[lane]) for lane in sorted(positions) if lane in extents
            )
        waiting = [self._waiting(lane) for lane in lanes]

        def ends(i: int, begin: int, stop: int) -> Sequence[int]:
            try:
                return self._discovery.index(lanes[i].found, lanes[i].name, begin, stop).ends
            except SpoolCorruptError:
                if self._settings.fail_on_data_loss:
                    raise
                mean = math.ceil(lanes[i].mean_bytes)  # whoever reads it goes round the damage
                return range(mean, mean * (stop - begin) + 1, mean)

        note_beginning = self._must_note_beginning(before)
        counts = [0] * len(lanes) if note_beginning else admit(waiting, limits, ends)
        if any(counts):
            self._look_at_schemas(survey)
        self._account_for_replaced(before, replaced)
        self._account_for_lost_tails(lanes)
        if not replaced and not any(counts) and not note_beginning:
            return start
        moved = {spool_id: dict(spool.lanes) for spool_id, spool in spools.items()}
        for lane, wait, count in zip(lanes, waiting, counts, strict=True):
            end = wait.begin + count if count else lane.position.next
            moved[lane.spool_id][lane.name] = LanePosition(end, max(lane.extent.next, end))
        return Offset({i: SpoolPosition(spool.endpoint, moved[i]) for i, spool in spools.items()}).value()

    def report(self) -> Value | None:
        """The end of all lanes at the last look, for progress reports."""
        return None if self._survey is None else _end_of(self._survey).value()

    def everything(self) -> Value:
        """The end of all lanes as ``initial`` saw them: the end of a batch read."""
        assert self._survey is not None, "initial() comes first"
        return _end_of(self._survey).value()

    def _look(self, before: Offset) -> Survey:
        first_look = self._survey is None
        survey = self._discovery.look({spool_id: spool.endpoint for spool_id, spool in before.spools.items()})
        self._survey = survey
        if first_look:
            self._say_start(survey)
        for address, error in survey.down.items():
            self.counts.endpoints_down += 1
            self._warn(("down", address), "its records wait until it answers again: %s", error)
        for found in survey.spools.values():
            if not found.answered:
                self._warn(
                    ("folder", found.address),
                    "%s does not answer; its spool is read from %s",
                    found.address,
                    found.folder,
                )
        for spool_id, spool in before.spools.items():
            if spool_id not in survey.spools and spool.endpoint not in self._discovery.addresses:
                self._warn(
                    ("left", spool_id),
                    "spool %s of %s was read before and is behind none of the addresses given; its position is kept",
                    spool_id,
                    spool.endpoint,
                )
        return survey

    def _look_at_schemas(self, survey: Survey) -> None:
        """Notice new schemas: the extents were read before, so no record inside them carries one that is missed."""
        if self._watch is not None:
            try:
                self._watch.look(survey.spools.values())
            finally:
                self.counts.schema_updates = self._watch.updates

    def _replaced(self, before: Offset, survey: Survey) -> list[str]:
        """The spools of an offset whose address has another one now."""
        now = {found.address for found in survey.spools.values()}
        return [i for i, spool in before.spools.items() if i not in survey.spools and spool.endpoint in now]

    def _account_for_replaced(self, before: Offset, replaced: Sequence[str]) -> None:
        """Unread records in a spool that was replaced are data loss."""
        for spool_id in replaced:
            spool = before.spools[spool_id]
            unread = sum(max(position.seen - position.next, 0) for position in spool.lanes.values())
            if unread:
                self._lost(
                    f"{spool.endpoint} has another spool now; {unread} records of spool {spool_id} had yet to be read",
                    unread,
                )
            _log.warning("%s has another spool now, %s is dropped: its folder was made anew", spool.endpoint, spool_id)
            self.counts.spools_replaced += 1

    def _positions(self, found: FoundSpool, before: Offset) -> dict[str, LanePosition]:
        """The positions in a spool's lanes: record 0 for each that is new (and inside the target, if one is fixed)."""
        spool_id = found.offsets.spool_id
        known = before.spools.get(spool_id)
        positions = dict(known.lanes) if known is not None else {}
        for lane in found.offsets.lanes:
            if lane not in positions and (self._target is None or (spool_id, lane) in self._target):
                positions[lane] = LanePosition(0, 0)
        return positions

    def _waiting(self, lane: _Lane) -> Waiting:
        begin, end = lane.position.next, lane.extent.next
        if lane.extent.first > begin and self._settings.fail_on_data_loss:
            raise self._expired(lane.spool_id, lane.name, begin, lane.extent.first)
        if self._target is not None:
            end = min(end, self._target.get((lane.spool_id, lane.name), begin))
        begin = max(begin, min(lane.extent.first, end))
        return Waiting(begin, max(begin, end), lane.mean_bytes)

    def _account_for_lost_tails(self, lanes: Sequence[_Lane]) -> None:
        """A lane that ends before what was seen of it lost its tail in a crash of the host."""
        for lane in lanes:
            position, end = lane.position, lane.extent.next
            if end >= max(position.next, position.seen) or (lane.spool_id, lane.name, position) in self._told:
                continue
            unread = position.seen - max(position.next, end)
            if unread > 0:
                self._lost(
                    f"lane {lane.name} of spool {lane.spool_id} ends at {end} and was seen to end at {position.seen}: "
                    f"{unread} records that had yet to be read are gone",
                    unread,
                )
            if end < position.next:
                _log.warning(
                    "lane %s of spool %s ends at %d and was read up to %d: the host lost its tail; the next %d records "
                    "written to it get numbers that were read already, and are skipped",
                    lane.name,
                    lane.spool_id,
                    end,
                    position.next,
                    position.next - end,
                )
            self._told.add((lane.spool_id, lane.name, position))

    def _must_note_beginning(self, before: Offset) -> bool:
        """Whether a stream that begins at "latest" has yet to put its beginning into the checkpoint."""
        if not self._begins_latest or self._initial is None:
            return False
        return before.value() == self._initial and any(
            position.seen < position.next for spool in before.spools.values() for position in spool.lanes.values()
        )

    # -- what tasks read ---------------------------------------------------------------------------------------------

    def plan(self, start: Value, end: Value) -> list[Split]:
        """The splits between two offsets: the same records each time it is asked, also after a restart.

        A lane or spool that ``start`` does not have appeared later and begins at record 0. Equal offsets give none.
        """
        before, after = parse_offset(start), parse_offset(end)
        if before == after:
            return []
        if self._survey is None:
            self._look(after)
        assert self._survey is not None
        ranges: list[LaneRange] = []
        for spool_id, spool in sorted(after.spools.items()):
            found = self._survey.spools.get(spool_id)
            for lane in sorted(spool.lanes):
                begun = before.position(spool_id, lane)
                begin, stop = begun.next if begun is not None else 0, spool.lanes[lane].next
                if begin < stop:
                    ranges.extend(self._range(spool_id, lane, begin, stop, spool.endpoint, found))
        return cut(ranges, self._settings.min_partitions)

    def _range(
        self, spool_id: str, lane: str, begin: int, stop: int, endpoint: str, found: FoundSpool | None
    ) -> list[LaneRange]:
        extent = found.offsets.lanes.get(lane) if found is not None else None
        if found is None or extent is None:
            return [LaneRange(Split(spool_id, lane, begin, stop, endpoint))]
        if extent.first > begin:
            gone = min(extent.first, stop)
            expired = self._expired(spool_id, lane, begin, gone)
            self._lost(expired.message, gone - begin)
            begin = gone
        if begin >= stop:
            return []
        split = Split(spool_id, lane, begin, stop, found.address, found.folder)
        return [LaneRange(split, _mean_bytes(extent))]

    # -- words -------------------------------------------------------------------------------------------------------

    def _expired(self, spool_id: str, lane: str, begin: int, first: int) -> DataLossError:
        return DataLossError(
            f"records {begin} to {first - 1} of lane {lane} of spool {spool_id} were deleted by the server's retention "
            "before they were read",
            remedy=_LOSS_REMEDY,
        )

    def _lost(self, message: str, records: int) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLossError(message, remedy=_LOSS_REMEDY)
        self.counts.lost_records += records
        _log.warning("%s (lost_records %d in all; failOnDataLoss is false)", message, self.counts.lost_records)

    def _warn(self, about: object, message: str, *values: object) -> None:
        """A warning that is repeated once a minute for as long as it holds."""
        now = time.monotonic()
        if now - self._warned.get(about, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned[about] = now
            _log.warning(message, *values)

    def _say_start(self, survey: Survey) -> None:
        for spool_id, found in survey.spools.items():
            _log.info(
                "%s: spool %s with %d lanes, planned from %s",
                found.address,
                spool_id,
                len(found.offsets.lanes),
                f"folder {found.folder}" if found.folder is not None else "HTTP",
            )


def _mean_bytes(extent: LaneExtent) -> float:
    return extent.bytes / max(1, extent.next - extent.first)


def _end_of(survey: Survey) -> Offset:
    return Offset(
        {
            spool_id: SpoolPosition(
                found.address,
                {lane: LanePosition(extent.next, extent.next) for lane, extent in found.offsets.lanes.items()},
            )
            for spool_id, found in survey.spools.items()
        }
    )


def _check_named(named: Offset, survey: Survey) -> None:
    """Every spool and lane that ``startingOffsets`` names must exist and still keep the record named."""
    for spool_id, spool in named.spools.items():
        found = survey.spools.get(spool_id)
        if found is None:
            there = ", ".join(sorted(survey.spools)) or "none"
            raise OffsetError(
                f"startingOffsets names spool {spool_id}, which is behind none of the addresses given",
                remedy=f"The spools there are: {there}.",
            )
        for lane, position in spool.lanes.items():
            extent = found.offsets.lanes.get(lane)
            if extent is None:
                raise OffsetError(
                    f"startingOffsets names lane {lane}, which spool {spool_id} does not have",
                    remedy=f"Its lanes are: {', '.join(sorted(found.offsets.lanes)) or 'none yet'}.",
                )
            if not extent.first <= position.next <= extent.next:
                raise OffsetError(
                    f"startingOffsets begins at record {position.next} of lane {lane} of spool {spool_id}",
                    remedy=f"Records {extent.first} to {extent.next} (the end) are there.",
                )
