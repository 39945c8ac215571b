"""The writer thread: captured exchanges and their records in, lines in the spool out."""

from __future__ import annotations

import atexit
import threading
import time
from typing import TYPE_CHECKING, Final

from dspark_json.capture.backlog import Backlog, Item
from dspark_json.capture.captured import ASSEMBLY_FULL, TOO_LARGE
from dspark_json.capture.making import RecordMaker
from dspark_json.capture.mirror import DeviceMirror
from dspark_json.capture.notices import LOGGER, Notice
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.process_counters import ProcessCounters
from dspark_json.capture.registration import SchemaRegistrar
from dspark_json.errors import DSparkJsonError, SpoolError
from dspark_json.spool.schema_uses import SchemaUse, sum_schema_uses, summed
from dspark_json.spool.schemas import SchemaStore
from dspark_json.spool.surroundings import other_things
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from dspark_json.capture.backlog import Waiter
    from dspark_json.capture.captured import Captured
    from dspark_json.capture.recording import Recording
    from dspark_json.capture.settings import HookSettings

CLOSE_SECONDS: Final = 5.0
_MAINTAIN_SECONDS: Final = 1.0
# In async mode nobody waits for a record, so a few are gathered before they are made and written.
_LINGER_SECONDS: Final = 0.02
# The thread holds the GIL for some of what it does for a group: small groups keep a request that comes meanwhile from
# waiting. What is brought to the disk together should be much.
_GROUP_RECORDS: Final = 128
_SYNCED_GROUP_RECORDS: Final = 256
_GROUP_BYTES: Final = 4 << 20
_FIRST_RETRY_SECONDS: Final = 0.5
_LAST_RETRY_SECONDS: Final = 30.0
_MOST_UNTYPED_MODELS: Final = 1_000  # the names come from clients


class Appender:
    """Owns the lane's writer in a thread of its own; ``submit`` never waits.

    No thread runs and no file is open before ``start``, so that a server may fork after it built the hook. Records
    that can't be kept (queue full, spool can't be opened or written) are dropped, counted and told.
    """

    def __init__(
        self, settings: HookSettings, on_open: Callable[[LaneWriter], None], counters: ProcessCounters | None = None
    ) -> None:
        """``on_open`` is called in the writer thread with each lane it opened.

        ``counters`` are those of an appender of this process that was closed.
        """
        self.folder: Path | None = None
        self._settings = settings
        self._on_open = on_open
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._warming: threading.Thread | None = None
        self._closing = False
        self._is_busy = False  # whether the thread comes by itself, and need not be woken
        self._opened = threading.Event()
        self._writer: LaneWriter | None = None
        self._before: LaneWriter | None = None  # whose folder is gone
        self._counters = counters or ProcessCounters()
        self._retry_at = 0.0
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._pacer = Pacer()
        self._schemas = SchemaRegistrar(self.count, self.note_exception, self._pacer)
        self._mirror = DeviceMirror(settings.device, self.count)
        self._maker = RecordMaker(settings, self._schemas, self._pacer, self.note_exception)
        self._group_records = _SYNCED_GROUP_RECORDS if settings.durability == "fsync" else _GROUP_RECORDS
        self.backlog = Backlog(settings.queue)
        self._untyped_models: set[str] = set()
        self._dropped = Notice()
        self._unopened = Notice()
        self._maintenance = Notice()
        self._exceptions = Notice(loud_times=1)

    # -- for the event loop -------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether ``start`` was called."""
        return self._thread is not None

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called: it can't be started again."""
        return self._closing

    def start(self, folder: Path) -> None:
        """Begin to open the spool in ``folder`` and to write what is submitted."""
        self.folder = folder
        self._thread = threading.Thread(target=self._run, name="dspark-json-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def wait_until_opened(self, timeout: float) -> bool:
        """Wait for the first attempt to open the spool; whether it is open."""
        self._opened.wait(timeout)
        return self._writer is not None

    def submit(self, captured: Captured, weight: int, waiter: Waiter | None) -> None:
        """Queue an exchange; its ``waiter`` (a future of the calling loop) gets whether the record is kept."""
        refusal = self.backlog.put(Item(captured, weight, waiter))
        if refusal is None:
            if not (self._is_busy or self._wake.is_set()):
                self._wake.set()
            return
        self._drop(1, captured.size, refusal)
        if waiter is not None and not waiter.done():
            waiter.set_result(False)

    def count(self, name: str, n: int = 1) -> None:
        """Add to a counter of this process; from any thread."""
        self._counters.add(name, n)

    def counters(self) -> dict[str, int]:
        """The sum over all lanes of the spool, this process's as they are now."""
        return self._counters.total(self.folder)

    def schema_uses(self) -> dict[str, SchemaUse]:
        """The uses of schemas over all lanes of the spool, this process's as they are now."""
        writer = self._writer
        if self.folder is None or writer is None:
            return {} if self.folder is None else sum_schema_uses(self.folder)
        return summed((sum_schema_uses(self.folder, but=writer.lane), writer.schema_uses.snapshot()))

    def note_exception(self) -> None:
        """Count an exception of ours that was caught, and tell it once a minute; call it while handling one."""
        self.count("hook_exceptions")
        self._exceptions.say("an exception inside the hook was caught; serving is not affected", exc_info=True)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Write what is queued, within ``timeout`` seconds, and give the lane back; a second call does nothing."""
        if self._thread is None or self._closing:
            return
        self._closing = True
        atexit.unregister(self.close)
        self._wake.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            LOGGER.error(
                "DSpark JSON: after %g s there are still %d bytes of answers that are not written; they are lost",
                timeout,
                self.backlog.weight,
            )
        if self._warming is not None:
            self._warming.join(timeout)  # an interpreter that ends in the midst of an import may crash

    # -- the writer thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._open()
        # Not in this thread: on a busy machine it may take longer than the first answers are held.
        warming = threading.Thread(target=self._warm_up, name="dspark-json-warm-up", daemon=True)
        try:
            warming.start()
        except RuntimeError:  # no thread is to be had
            self.note_exception()
            self._opened.set()
        else:
            self._warming = warming
        maintain_at = time.monotonic() + _MAINTAIN_SECONDS
        while True:
            try:
                group = self._next_group(maintain_at)
                if group:
                    self._write(group)
                elif self.backlog.is_closed:  # which it was before it was found empty
                    break
                if time.monotonic() >= maintain_at:
                    maintain_at = time.monotonic() + _MAINTAIN_SECONDS
                    self._maintain()
            except BaseException:  # noqa: BLE001 - the thread must live as long as the server; a native panic is one too
                self.note_exception()
        self._mirror.close()
        if self._writer is not None:
            self._writer.close()
            self._counters.leave(self._writer)

    def _warm_up(self) -> None:
        self._schemas.warm_up()
        self._opened.set()

    def _next_group(self, until: float) -> list[Item]:
        """The next exchanges; none if none come by then, or no more will come at all."""
        if self.backlog.is_empty and not self._closing:
            self._wait_for_some(until)
        self._wake.clear()
        if self._closing:  # seen after the clearing: ``close`` says it before it rouses
            self.backlog.close()
        return self.backlog.take(self._group_records, _GROUP_BYTES)

    def _wait_for_some(self, until: float) -> None:
        if not self._is_busy:
            roused = self._wake.wait(max(0.0, until - time.monotonic()))
            self._is_busy = roused and self._settings.durability == "async"
        if self._is_busy and not self._closing:
            time.sleep(_LINGER_SECONDS)  # wakes by itself: nobody is to be told, which costs both threads a little
            self._is_busy = not self.backlog.is_empty

    def _write(self, group: list[Item]) -> None:
        """Append the group's records, made here where they are not yet; tell the waiters what became of them."""
        kept = 0
        try:
            if self._writer is None:
                self._open()
            if self._writer is None:
                self._drop_all(group, "the spool is not open")
                return
            self._pacer.stretch = self.backlog.stretch
            self._pacer.restart()
            kept = self._append(group)
            if kept and self._settings.durability == "fsync" and not self._sync():
                kept = 0  # kept all the same, but not safe
        finally:
            self.backlog.done(group)
            _tell(group[:kept], kept=True)
            _tell(group[kept:], kept=False)

    def _append(self, group: list[Item]) -> int:
        """Append the records, to a new spool if the folder of the old one is gone; how many are kept, the first ones.

        The others are dropped.
        """
        try:
            return self._appended(group)
        except SpoolError as gone:
            self._reopen()
            if self._writer is None:
                self._drop_all(group, str(gone))
                return 0
        try:
            return self._appended(group)  # made anew: what the first ones refer to is in the old spool
        except SpoolError as gone:
            self._drop_all(group, str(gone))
            return 0

    def _appended(self, group: list[Item]) -> int:
        """How many records of the group the lane has now, the others dropped; ``SpoolError`` where its folder is gone.

        A record is kept or dropped, and counted as what it is, whatever goes wrong.
        """
        writer = self._writer
        assert writer is not None
        before = writer.next_seq
        recordings: list[Recording] = []
        try:
            recordings = self._maker.make([item.captured for item in group])
            writer.append([recording.record for recording in recordings])
        except SpoolError as error:
            if writer.gone:
                raise
            kept = writer.next_seq - before
            self._drop_all(group[kept:], str(error))
            if kept == len(group):
                self._maintenance.say(str(error))
            return kept
        except BaseException:
            self._drop_all(group[writer.next_seq - before :], "an exception inside the hook")
            raise
        finally:
            if not writer.gone:  # else they are made again, or dropped
                self._count_told(group, recordings)
        return len(group)

    def _sync(self) -> bool:
        """Bring the records to the disk; False if it did not work (they are kept all the same, but not safe)."""
        assert self._writer is not None
        try:
            self._writer.sync()
        except SpoolError as error:
            self._maintenance.say(str(error))
            return False
        return True

    def _count_told(self, group: list[Item], recordings: list[Recording]) -> None:
        """Count what the records of a group tell; none where they could not be made."""
        for item, recording in zip(group, recordings, strict=False):
            if item.captured.missing in (TOO_LARGE, ASSEMBLY_FULL):
                self.count("oversize_records")
                self.count("oversize_bytes", item.captured.size)
            if recording.failed:
                self.count("errors")
            if recording.disconnected:
                self.count("disconnected")
            if recording.untyped_model is not None:
                self._note_untyped(recording.untyped_model)

    def _note_untyped(self, model: str) -> None:
        self.count("json_object_without_schema")
        if model not in self._untyped_models and len(self._untyped_models) < _MOST_UNTYPED_MODELS:
            self._untyped_models.add(model)
            LOGGER.warning(
                "DSpark JSON: model %.200r is asked for json_object without a schema; such answers can't be typed "
                "ahead. Use response_format json_schema.",
                model,
            )

    def _open(self) -> None:
        """Open the lane, unless an attempt failed a short while ago."""
        if self.folder is None or time.monotonic() < self._retry_at:
            return
        others = other_things(self.folder)
        try:
            writer = LaneWriter.open(self.folder, self._settings.writer, after=self._before)
        except DSparkJsonError as error:
            self._unopened.say(f"answers are NOT kept, serving goes on: {error}")
        except Exception:  # noqa: BLE001 - whatever it is, the server must go on
            self._unopened.say("answers are NOT kept, serving goes on: the spool could not be opened", exc_info=True)
        else:
            self._counters.enter(writer)
            self._writer = writer
            self._schemas.use(SchemaStore(writer.folder), writer.schema_uses)
            self._mirror.attach(writer)
            self._retry_seconds, self._retry_at = _FIRST_RETRY_SECONDS, 0.0
            if others:
                LOGGER.warning(
                    "DSpark JSON: the folder %s was no spool and holds other things (%s); the spool is made among "
                    "them. If that is a slip: stop the server, remove spool.json, lanes and schemas there, and set "
                    "DSPARK_SPOOL to an empty folder or one that is yet to be made.",
                    self.folder,
                    others,
                )
            self._on_open(writer)
            return
        self._retry_at = time.monotonic() + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, _LAST_RETRY_SECONDS)

    def _reopen(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._counters.leave(writer)
            writer.close()
            self._before = writer
        self._open()

    def _maintain(self) -> None:
        if self._writer is None:
            self._open()
            return
        self._mirror.beat()
        try:
            self._writer.maintain()
        except SpoolError as error:
            self._maintenance.say(str(error))
            if self._writer.gone:
                self._reopen()

    def _drop_all(self, items: list[Item], why: str) -> None:
        if items:
            self._drop(len(items), sum(item.captured.size for item in items), why)

    def _drop(self, records: int, size: int, why: str) -> None:
        self.count("dropped_records", records)
        self.count("dropped_bytes", size)
        self._dropped.say(f"{records} answer(s) of {size} bytes DROPPED: {why}")


def _tell(items: Iterable[Item], *, kept: bool) -> None:
    """Give the waiters their result, one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for item in items:
        if item.waiter is not None:
            by_loop.setdefault(item.waiter.get_loop(), []).append(item.waiter)
    for loop, waiters in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, waiters, kept)
        except RuntimeError:  # the loop is closed: nobody waits any more
            LOGGER.debug("DSpark JSON: %d waiters are gone with their event loop", len(waiters))


def _resolve(waiters: list[Waiter], kept: bool) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(kept)
