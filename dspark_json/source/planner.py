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
    EndpointUnreachableError,
    InvalidOptionError,
    OffsetError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.source.admission import ReadLimits, Waiting, admit
from dspark_json.source.discovery import Discovery, FoundSpool, Survey
from dspark_json.source.losses import Losses, PlannerCounts
from dspark_json.source.machine import this_machine
from dspark_json.source.offsets import LanePosition, Offset, SpoolPosition, parse_offset, parse_starting_offset
from dspark_json.source.schema_watch import SchemaWatch
from dspark_json.source.splits import LaneRange, Split, cut
from dspark_json.spool.layout import now_us

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
_CLOCKS_DIFFER_US: Final = 60_000_000  # what the clocks of two machines may differ by

Value = dict[str, Any]


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
        self._losses = Losses(self.counts, fail=settings.fail_on_data_loss)
        self._settings = settings
        self._discovery = Discovery(
            settings.addresses, local=settings.local, key=settings.key, timeout_s=settings.timeout_s
        )
        watched = row_type is not None and row_type.settings.has_filter
        self._watch = SchemaWatch(row_type, self._discovery.schemas) if row_type is not None and watched else None
        self._initial: Value | None = None
        self._survey: Survey | None = None
        self._target: dict[tuple[str, str], int] | None = None
        self._planned: Offset | None = None
        self._warned: dict[object, float] = {}

    # -- where a stream begins ---------------------------------------------------------------------------------------

    def initial(self) -> Value:
        """The offset a new stream (or a batch read) begins at; every endpoint must answer.

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

    def _check_starting_timestamp(self) -> None:
        """Refuse a new stream from a time to come: it has a position, and would read what is written until then too."""
        moment = self._settings.starting_timestamp
        if self._initial is not None and moment is not None and moment > now_us() + _CLOCKS_DIFFER_US:
            raise InvalidOptionError(
                f"startingTimestamp ({moment // 1000} ms since 1970) is in the future by the clock of this machine",
                remedy="Give a time that has passed; startingOffsets=latest begins with what is written from now on.",
            )

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
                # micro-batch with records would begin again at a later "latest". An empty lane, where that would
                # change nothing, is left out here, as one that appears later, and comes with that micro-batch.
                if not self._begins_latest:
                    lanes[lane] = LanePosition(begin, extent.next)
                elif begin:
                    lanes[lane] = LanePosition(begin, 0)
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

    def target(self) -> Value | None:
        """The end that ``fix_target`` has fixed, to give to ``restore``: lane → next record, by spool."""
        if self._target is None:
            return None
        spools: Value = {}
        for (spool_id, lane), end in sorted(self._target.items()):
            spools.setdefault(spool_id, {})[lane] = end
        return spools

    def restore(self, initial: Value | None, target: Value | None) -> None:
        """Go on as the planner of this stream that gave these; it went away with its process."""
        self._initial = initial
        if target is not None:
            self._target = {(spool_id, lane): end for spool_id, lanes in target.items() for lane, end in lanes.items()}

    def latest(self, start: Value, limits: ReadLimits) -> Value:
        """The end of the next micro-batch; the very ``start`` given where nothing is new.

        ``InvalidOptionError`` where the stream is new and its ``startingTimestamp`` has yet to come.
        """
        self._check_starting_timestamp()
        end = self._latest_of_looks(start, limits)
        self._planned = parse_offset(end)
        return end

    def _latest_of_looks(self, start: Value, limits: ReadLimits) -> Value:
        for _ in range(_LOOKS - 1):
            try:
                return self._latest(start, limits)
            except _MOVED:  # between looking at the lanes and measuring what waits in them: look again
                continue
        return self._latest(start, limits)

    def _latest(self, start: Value, limits: ReadLimits) -> Value:
        before = parse_offset(start)
        survey = self._look(before)
        replaced = _replaced(before, survey)
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
                mean = max(1, math.ceil(lanes[i].mean_bytes))  # whoever reads it goes round the damage
                return range(mean, mean * (stop - begin) + 1, mean)

        note_beginning = bool(lanes) and self._must_note_beginning(before)
        counts = [0] * len(lanes) if note_beginning else admit(waiting, limits, ends)
        if any(counts):
            self._look_at_schemas(survey)
        for spool_id in replaced:
            self._losses.replaced(spool_id, before.spools[spool_id])
        for spool_id, found in survey.spools.items():
            if spool_id in before.spools:
                self._losses.missing_lanes(spool_id, before.spools[spool_id].lanes, found.offsets.lanes)
        for lane in lanes:
            self._losses.tail(lane.spool_id, lane.name, lane.position, lane.extent.next)
        # Records that have expired move a lane too, also where nothing is left to read: plan() tells the loss.
        expired = any(wait.begin > lane.position.next for lane, wait in zip(lanes, waiting, strict=True))
        if not replaced and not any(counts) and not note_beginning and not expired:
            return start
        moved = {spool_id: dict(spool.lanes) for spool_id, spool in spools.items()}
        for lane, wait, count in zip(lanes, waiting, counts, strict=True):
            end = wait.begin + count
            moved[lane.spool_id][lane.name] = LanePosition(end, max(lane.extent.next, end))
        return Offset({i: SpoolPosition(spool.endpoint, moved[i]) for i, spool in spools.items()}).value()

    def report(self) -> Value | None:
        """The end of all lanes at the last look, for progress reports."""
        return None if self._survey is None else _end_of(self._survey).value()

    def lags(self) -> dict[tuple[str, str], int]:
        """How many records of each (spool, lane) were there at the last look and are not planned yet."""
        survey, planned = self._survey, self._planned
        if survey is None or planned is None:
            return {}
        lags = {}
        for spool_id, found in survey.spools.items():
            for lane, extent in found.offsets.lanes.items():
                position = planned.position(spool_id, lane)
                lags[spool_id, lane] = max(extent.next - max(position.next if position else 0, extent.first), 0)
        return lags

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
            if spool_id not in survey.spools and spool.endpoint not in survey.addresses:
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
        if lane.extent.first > begin and self._losses.fail:
            self._losses.expired(lane.spool_id, lane.name, begin, lane.extent.first)
        if self._target is not None:
            end = min(end, self._target.get((lane.spool_id, lane.name), begin))
        begin = max(begin, min(lane.extent.first, end))
        return Waiting(begin, max(begin, end), lane.mean_bytes)

    def _must_note_beginning(self, before: Offset) -> bool:
        """Whether a stream that begins at "latest" has yet to put its beginning into the checkpoint."""
        return self._begins_latest and self._initial is not None and before.value() == self._initial

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
            return [LaneRange(Split(spool_id, lane, begin, stop, endpoint))]  # not found here either
        if extent.first > begin:
            gone = min(extent.first, stop)
            self._losses.expired(spool_id, lane, begin, gone)
            begin = gone
        if begin >= stop:
            return []
        split = Split(spool_id, lane, begin, stop, found.address, found.folder, this_machine())
        return [LaneRange(split, _mean_bytes(extent))]

    # -- words -------------------------------------------------------------------------------------------------------

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


def _replaced(before: Offset, survey: Survey) -> list[str]:
    """The spools of an offset whose address has another one now."""
    now = {found.address for found in survey.spools.values()}
    return [i for i, spool in before.spools.items() if i not in survey.spools and spool.endpoint in now]


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
