"""Reads the records of a split, chunk by chunk, and decides what happens where some are gone (DESIGN §4)."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dspark_json.errors import (
    BeyondEndError,
    DataLossError,
    EndpointError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolElsewhereError,
    SpoolError,
    SpoolNotFoundError,
    SpoolPermissionError,
    SpoolReplacedError,
)
from dspark_json.source.device_reading import RingSource
from dspark_json.source.machine import means_another_place
from dspark_json.source.transport import is_folder, open_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dspark_json.source.device_reading import DeviceChunk
    from dspark_json.source.splits import Split
    from dspark_json.spool.access import Chunk, SpoolAccess

__all__ = ["read_split"]

_log = logging.getLogger(__name__)

_NOT_THERE: Final = (SpoolNotFoundError, SpoolPermissionError, SpoolReplacedError, EndpointError)
_GONE: Final = (RecordsExpiredError, BeyondEndError, LaneNotFoundError, SpoolReplacedError)
_REMEDY: Final = (
    "Keep more (DSPARK_RETENTION_MB of the server) or read sooner; to go on without these records set "
    "failOnDataLoss=false, which counts them as lost_records."
)
_WINDOW: Final = 65_536


def read_split(
    split: Split,
    *,
    key: str | None,
    timeout_s: float,
    fail_on_data_loss: bool,
    from_ring: bool = False,
    on_loss: Callable[[int], None] | None = None,
) -> Iterator[Chunk | DeviceChunk]:
    """The records of a split, in order, in chunks of about 8 MiB; ``from_ring``: from the lane's device ring if it can.

    Records that are gone since the split was planned are a ``DataLossError``, damaged ones a ``SpoolCorruptError``;
    with ``fail_on_data_loss`` false both are skipped, with a warning and their number as ``lost_records``, which
    ``on_loss`` is told too.
    """

    def lose(start: int, stop: int, why: SpoolError) -> None:
        _log.warning(
            "%s (%s); lost_records %d, failOnDataLoss is false", _lost_text(split, start, stop), why, stop - start
        )
        if on_loss is not None:
            on_loss(stop - start)

    at = split.start
    reopened = False
    while at < split.stop:
        try:
            with (
                _other_machine_named(split),
                open_split(replace(split, start=at), key, timeout_s) as access,
                _ring(access, split) as ring,
            ):
                while at < split.stop:
                    chunk: Chunk | DeviceChunk | None
                    try:
                        chunk = (ring if from_ring else access).read(split.lane, at, split.stop)
                    except SpoolCorruptError:
                        if fail_on_data_loss:
                            raise
                        chunk = _past_damage(access, split, at, lose)
                        if chunk is None:
                            return
                    at = chunk.next_seq
                    yield chunk
        except _GONE as error:
            following = min(error.first, split.stop) if isinstance(error, RecordsExpiredError) else split.stop
            if following <= at:
                raise
            if fail_on_data_loss:
                raise DataLossError(f"{_lost_text(split, at, following)} ({error.message})", remedy=_REMEDY) from error
            lose(at, following, error)
            at = following
        except SpoolNotFoundError:
            # The folder went away under the reader; the server may still have the records (opening again finds out).
            if reopened or is_folder(split.endpoint):
                raise
            reopened = True


@contextlib.contextmanager
def _other_machine_named(split: Split) -> Iterator[None]:
    """Where another machine planned, what is missing on this one says nothing about the records."""
    try:
        yield
    except _NOT_THERE as error:
        if not means_another_place(split):
            raise
        kind = "folder" if is_folder(split.endpoint) else "server"
        anew = " Where it is the same one, its spool was made anew: restart the query."
        raise SpoolElsewhereError(
            f"{split.endpoint} is not the {kind} on {socket.gethostname()} that it is on the driver's machine, "
            f"{split.planned_on.split(' ')[0]} ({error.message})",
            remedy="Executors need a folder that is mounted on all machines, or vllm_endpoint with an address that "
            "means the same on all of them (not localhost), and vllm_api_key."
            + (anew if isinstance(error, SpoolReplacedError) else ""),
        ) from error


@contextlib.contextmanager
def _ring(access: SpoolAccess, split: Split) -> Iterator[RingSource]:
    source = RingSource(access, split.lane)
    try:
        yield source
    finally:
        source.close()


def _past_damage(
    access: SpoolAccess, split: Split, start: int, lose: Callable[[int, int, SpoolError], None]
) -> Chunk | None:
    """The first chunk from ``start`` on that can be read; None where all the rest of the split is damaged.

    Good records before the damage are read by halving what is asked for; the end of the damage is searched for with
    doubled steps, so a good record between two damaged ones may be counted as lost too.
    """
    window = min(split.stop - start, _WINDOW)
    while True:
        try:
            return access.read(split.lane, start, start + window)
        except SpoolCorruptError as error:
            problem = error
        if window == 1:
            break
        window //= 2

    def readable(seq: int) -> Chunk | None:
        try:
            return access.read(split.lane, seq, min(split.stop, seq + 1))
        except SpoolCorruptError:
            return None

    bad, step = start, 1
    good, chunk = split.stop, None
    while bad + step < split.stop and chunk is None:
        chunk = readable(bad + step)
        if chunk is None:
            bad, step = bad + step, step * 2
        else:
            good = bad + step
    while good - bad > 1:
        middle = (bad + good) // 2
        found = readable(middle)
        bad, good, chunk = (middle, good, chunk) if found is None else (bad, middle, found)
    lose(start, good, problem)
    return chunk


def _lost_text(split: Split, start: int, stop: int) -> str:
    return (
        f"records {start} to {stop - 1} of lane {split.lane} of spool {split.spool_id} ({split.endpoint}) were planned "
        "and are gone"
    )
