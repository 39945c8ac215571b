"""Follows the records of servers, or of a spool folder, and the servers' own counters: one look after another."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.errors import (
    DSparkJsonError,
    EndpointError,
    EndpointUnreachableError,
    RecordsExpiredError,
    SpoolError,
)
from dspark_json.monitor.checkpoint import committed
from dspark_json.monitor.counters import SpeculationCounters
from dspark_json.monitor.figures import Figures, Lag, figures_of
from dspark_json.monitor.intake import AnswerReader
from dspark_json.monitor.metrics_page import metrics_page
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.web_address import shown_place
from dspark_json.monitor.window import Window
from dspark_json.schema.registry import RegisteredSchema
from dspark_json.source.asking import ask_all
from dspark_json.source.discovery import Discovery
from dspark_json.source.reading import read_split
from dspark_json.source.splits import Split
from dspark_json.spool.lane import is_written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dspark_json.monitor.tally import Answer
    from dspark_json.source.discovery import FoundSpool, Survey
    from dspark_json.source.offsets import Offset
    from dspark_json.source.settings import ReaderSettings

__all__ = ["Watch", "WatchSettings"]

_US: Final = 1_000_000
_COUNTERS_TIMEOUT_S: Final = 2.0
_SCHEMAS_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """What to watch, and how.

    ``windows_s`` are the times, in seconds, that figures are wanted over. ``counters_url``: where the server's own
    metrics are, None for ``/metrics`` of each server. ``counters_every_s``: they are asked no more often, but twice in
    the shortest of the windows. ``all_up``: at the first look whatever can't be read is an error.
    """

    reader: ReaderSettings
    windows_s: Sequence[float]
    counters_url: str | None = None
    counters_every_s: float = 10.0
    checkpoint: Path | None = None
    all_up: bool = True


class Watch:
    """Reads what is new at each ``look``, and gives figures over any part of the time that it has seen."""

    def __init__(self, settings: WatchSettings, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        """Raises ``EngineUnavailableError`` where the records can't be parsed here.

        ``InvalidOptionError`` says that ``counters_url`` is no address.
        """
        reader = settings.reader
        if settings.counters_url is not None:
            shown_place(settings.counters_url, "--server-metrics")
        self._settings = settings
        self._now_us = now_us
        self._discovery = Discovery(reader.addresses, local=reader.local, key=reader.key, timeout_s=reader.timeout_s)
        self._answers = AnswerReader()
        self._windows = {seconds: Window(seconds) for seconds in settings.windows_s}
        self._looked_us = 0
        self._read_us = now_us()  # the last look at which all could be read, or the beginning
        self._known: dict[str, str] | None = None  # spool id -> address, None before the first look
        self._begun: set[str] = set()  # the spools in which it is known where the window begins
        self._next: dict[tuple[str, str], int] = {}
        self._schemas = _Schemas(self._discovery)
        self._counters = _ServerCounters(settings)
        self._lost = 0
        self._committed: Offset | None = None
        self._ends: dict[str, FoundSpool] = {}  # the spools as they were last found, those that are down included
        self._appended: dict[tuple[str, str], int] = {}  # when the oldest record that the stream lacks was written
        self._lag: Lag | None = None
        self._notes: list[str] = []
        self._failed: dict[str, DSparkJsonError] = {}  # address -> why the last look could not read all of it
        self._down: dict[str, str] = {}

    @property
    def read_us(self) -> int:
        """When a look last could read all that there was to read, without a note; before that, when the watch began."""
        return self._read_us

    def look(self) -> None:
        """Read what is new.

        What can't be read is named as down, and costs the others nothing. At the first look an ``EndpointError`` or
        ``SpoolError`` says what is wrong where nothing can be read and it is more than that nobody answers; with
        ``all_up`` wherever something can't be read.
        """
        first = self._known is None
        self._notes, self._down = [], {}
        survey = self._discovery.look(self._known or {}, first=first, each=True)
        now_us = self._looked_us = self._now_us()  # what is found now was written before
        if first:
            self._require(survey, survey.down)
        self._take(survey, now_us, first=first)
        self._lag = self._lag_of(survey, now_us, first=first)
        for window in self._windows.values():
            window.forget(now_us)
        if not self._failed and not self._notes:
            self._read_us = now_us

    def _require(self, survey: Survey, failed: Mapping[str, DSparkJsonError]) -> None:
        """Raise what is wrong with what is watched, where there is no use in going on."""
        is_all_lost = not {found.address for found in survey.spools.values()} - failed.keys()
        for error in failed.values():
            if self._settings.all_up or (is_all_lost and not isinstance(error, EndpointUnreachableError)):
                raise error

    def _take(self, survey: Survey, now_us: int, *, first: bool) -> None:
        """Read what is new in the spools that were found."""
        self._failed = dict(survey.down)
        self._schemas.begin_look()
        for spool_id, found in survey.spools.items():
            self._read(spool_id, found, now_us)
        if first:
            self._require(survey, self._failed)
        for address, error in self._failed.items():
            self._down[address] = error.message if address in error.message else f"{address}: {error.message}"
        for found in survey.spools.values():
            self._tell_if_unwritten(found)
        replaced = {found.address for found in survey.spools.values()}
        kept = {i: where for i, where in (self._known or {}).items() if where not in replaced}
        self._known = {**kept, **{i: found.address for i, found in survey.spools.items()}}
        more = self._counters.look(survey, self._notes)
        for window in self._windows.values():
            window.count_server(now_us, more)

    def _tell_if_unwritten(self, found: FoundSpool) -> None:
        """A folder can be read without its server, and then tells nothing of what happens now."""
        if found.address in self._failed:
            return
        if not found.answered:
            self._down[found.address] = f"{found.address} does not answer; the figures are of what {found.folder} holds"
        elif self._settings.reader.local and is_written(Path(found.address)) is False:
            self._down[found.address] = f"no server writes {found.address}; the figures are of what it holds"

    def figures(self, seconds: float) -> Figures:
        """The figures of the last ``seconds`` (one of ``windows_s``), as of the last look."""
        return figures_of(
            self._windows[seconds],
            self._looked_us,
            since_start=self._counters.since_start,
            lag=self._lag,
            lost=self._lost,
            notes=self._notes,
            down=self._down,
            read_us=self._read_us,
        )

    def _read(self, spool_id: str, found: FoundSpool, now_us: int) -> None:
        """Read what is new in a spool; what can't be read is read by a later look."""
        is_new = spool_id not in self._begun
        ahead_us = self._ahead_us(found, now_us) if is_new else 0
        self._begun.add(spool_id)
        for lane, extent in found.offsets.lanes.items():
            try:
                at = self._next.get((spool_id, lane))
                if at is None:
                    since_us = now_us + ahead_us - round(max(self._windows) * _US)
                    at = self._discovery.seek_time(found, lane, since_us) if is_new else extent.first
                    self._next[spool_id, lane] = at
                if at < extent.next:
                    self._read_lane(
                        Split(spool_id, lane, at, extent.next, found.address, found.folder), found, ahead_us
                    )
            except (EndpointError, SpoolError) as error:
                self._failed[found.address] = error
                if (spool_id, lane) not in self._next:
                    self._begun.discard(spool_id)

    def _read_lane(self, split: Split, found: FoundSpool, ahead_us: int) -> None:
        reader, place = self._settings.reader, (split.spool_id, split.lane)
        for chunk in read_split(
            split, key=reader.key, timeout_s=reader.timeout_s, fail_on_data_loss=False, on_loss=self._lose
        ):
            # All of a chunk or nothing: it is read again where a schema can't be asked for.
            for answer in list(self._answers.answers(chunk, lambda wanted: self._schemas.find(found, wanted))):
                self._count(answer, self._looked_us, ahead_us)
            self._next[place] = chunk.first_seq + len(chunk)
        self._next[place] = split.stop

    def _count(self, answer: Answer, now_us: int, ahead_us: int) -> None:
        if ahead_us:
            answer = replace(answer, at_us=answer.at_us - ahead_us)
        for window in self._windows.values():
            window.count(answer, now_us)

    def _ahead_us(self, found: FoundSpool, now_us: int) -> int:
        """How far a server's clock is ahead of ours at least: its newest record was written before now."""
        newest = [
            self._appended_at(found, lane, extent.next - 1, now_us)
            for lane, extent in found.offsets.lanes.items()
            if extent.next > extent.first
        ]
        return max(max(newest, default=now_us) - now_us, 0)

    def _lose(self, records: int) -> None:
        self._lost += records

    def _lag_of(self, survey: Survey, now_us: int, *, first: bool) -> Lag | None:
        """How far the stream of the checkpoint is behind what the servers keep, or kept when they last answered."""
        if self._settings.checkpoint is None:
            return None
        try:
            self._committed = committed(self._settings.checkpoint)
        except DSparkJsonError as error:
            if first:
                raise
            self._notes.append(error.message)
        asked = survey.spools
        self._ends = {**{i: found for i, found in self._ends.items() if self._is_down(i, found, survey)}, **asked}
        records, oldest_us = 0, now_us
        for spool_id, found in self._ends.items():
            if spool_id not in asked:
                self._notes.append(f"the lag counts what {found.address} held when it last answered")
            for lane, extent in found.offsets.lanes.items():
                position = None if self._committed is None else self._committed.position(spool_id, lane)
                at = extent.first if position is None else max(position.next, extent.first)
                if at >= extent.next:
                    self._appended.pop((spool_id, lane), None)
                    continue
                records += extent.next - at
                known_us = self._appended.get((spool_id, lane), now_us)
                if spool_id in asked:
                    known_us = self._appended_at(found, lane, at, known_us)
                self._appended[spool_id, lane] = known_us
                oldest_us = min(oldest_us, known_us)
        return Lag(records, (now_us - oldest_us) / _US)

    def _is_down(self, spool_id: str, found: FoundSpool, survey: Survey) -> bool:
        """Whether a spool that was there is one that can't be read now, and neither replaced nor given up."""
        return spool_id in (self._known or {}) and found.address in survey.down

    def _appended_at(self, found: FoundSpool, lane: str, seq: int, otherwise: int) -> int:
        try:
            return self._discovery.index(found, lane, seq, seq + 1).appended_at[0]
        except (EndpointError, SpoolError) as error:
            if not isinstance(error, RecordsExpiredError):
                self._notes.append(error.message)
            return otherwise


class _Schemas:
    """The schemas that the servers have registered; asked again when a hash is met that is not among them.

    A schema is registered before its answers are written (capture/registration.py), so what was asked for in a look is
    all that the records of the look can name: it is asked for once a look at most, and no more often than every few
    seconds for hashes that were not there (a full registry keeps no more).
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery
        self._found: dict[str, dict[str, RegisteredSchema]] = {}
        self._absent: dict[str, set[str]] = {}
        self._asked_at: dict[str, float] = {}
        self._asked: set[str] = set()

    def begin_look(self) -> None:
        """What is asked for from here on is as of a new look."""
        self._asked.clear()

    def find(self, spool: FoundSpool, wanted: str) -> RegisteredSchema | None:
        """The schema of this hash; None where the server does not have it.

        Raises ``EndpointError`` or ``SpoolError`` where it can't be asked now: what can't be judged is read later.
        """
        spool_id = spool.offsets.spool_id
        found = self._found.get(spool_id, {}).get(wanted)
        if found is not None or spool_id in self._asked:
            return found
        absent = wanted in self._absent.get(spool_id, ())
        if absent and time.monotonic() - self._asked_at[spool_id] < _SCHEMAS_AGAIN_S:
            return None
        documents = self._discovery.schemas(spool)
        known: dict[str, RegisteredSchema] = {}
        for document in documents:
            with contextlib.suppress(DSparkJsonError):  # one that this version can't read is as one that is not there
                schema = RegisteredSchema.from_document(document)
                known[schema.hash] = schema
        self._asked.add(spool_id)
        self._asked_at[spool_id] = time.monotonic()
        self._found[spool_id] = known
        self._absent[spool_id] = set() if wanted in known else {wanted}
        return known.get(wanted)


@dataclass(slots=True)
class _ServerCounters:
    """The servers' own counters of speculative decoding, by the address that they were asked at."""

    settings: WatchSettings
    by_address: dict[str, SpeculationCounters] = field(default_factory=dict)
    asked_at: float | None = None
    looks: int = 0
    asking: set[str] = field(default_factory=set)  # what was left behind, too

    @property
    def since_start(self) -> Speculation:
        """All that the servers count, before there was a second look at them."""
        total = Speculation()
        for counters in self.by_address.values() if self.looks < 2 else ():
            total += counters.since_start
        return total

    def look(self, survey: Survey, notes: list[str]) -> Speculation:
        """What the counters grew by; a server that has none counts nothing."""
        now = time.monotonic()
        more = Speculation()
        every_s = min(self.settings.counters_every_s, min(self.settings.windows_s) / 2)
        if self.asked_at is not None and now - self.asked_at < every_s:
            return more
        self.asked_at = now
        urls = self._urls(survey.spools)
        answers = ask_all(urls, self._ask, _COUNTERS_TIMEOUT_S)  # what hangs is left behind at the deadline
        texts = {url: text if isinstance(text := answers.get(url), str) else None for url in urls}
        self.looks += bool(texts)
        for url, text in texts.items():
            if text is not None:
                more += self.by_address.setdefault(url, SpeculationCounters()).advance(text)
            elif self.settings.counters_url is not None:
                notes.append(f"{shown_place(url, '--server-metrics')} gives no metrics")
        return more

    def _ask(self, url: str) -> str | None:
        if url in self.asking:
            return None
        self.asking.add(url)
        try:
            return metrics_page(url, _COUNTERS_TIMEOUT_S)
        finally:
            self.asking.discard(url)

    def _urls(self, spools: Mapping[str, FoundSpool]) -> Sequence[str]:
        if self.settings.counters_url is not None:
            return (self.settings.counters_url,)
        if self.settings.reader.local:
            return ()
        return [f"{found.address}/metrics" for found in spools.values() if found.answered]
