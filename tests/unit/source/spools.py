"""Spool folders of a test, written by the real writer."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner, Value
from dspark_json.source.reading import read_split
from dspark_json.source.settings import ReaderSettings, reader_settings
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SMALL = WriterSettings(segment_bytes=400, retention_bytes=1 << 30, min_free_ratio=0.0)
ALL = ReadLimits()


def record(label: str, size: int = 0) -> Record:
    """A record whose body names it."""
    return Record(b"", b'"id":"' + label.encode() + b'"' + (b',"pad":"' + b"x" * size + b'"' if size else b""))


def writer(folder: Path, *, settings: WriterSettings = SMALL) -> LaneWriter:
    """A writer on the first free lane of the spool."""
    return LaneWriter.open(folder, settings)


def write(folder: Path, *counts: int, size: int = 0) -> str:
    """Make a spool with one lane for each count, and that many records in it; gives the spool id."""
    writers = [writer(folder) for _ in counts]
    for lane, count in zip(writers, counts, strict=True):
        if count:
            lane.append([record(f"{lane.lane}:{lane.next_seq + i}", size) for i in range(count)])
    spool_id = writers[0].spool_id
    for lane in writers:
        lane.close()
    return spool_id


def settings(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ReaderSettings:
    """Reader settings, independent of the test's environment."""
    return reader_settings(given, environment or {})


def planner(folder: Path, **options: str) -> Planner:
    """A planner of a folder."""
    return Planner(settings({"path": str(folder), **options}))


def lanes_of(offset: Value, spool_id: str) -> dict[str, int]:
    """lane → next."""
    return {lane: position["next"] for lane, position in offset["spools"][spool_id]["lanes"].items()}


def labels(plan: Planner, start: Value, end: Value, *, key: str | None = None, fail: bool = True) -> list[str]:
    """The labels of the records between two offsets, as tasks would read them."""
    found = []
    for split in plan.plan(start, end):
        for chunk in read_split(split, key=key, timeout_s=5.0, fail_on_data_loss=fail):
            begin = 0
            for stop in chunk.ends:
                line = bytes(chunk.buffer[begin:stop])
                found.append(line.split(b'"id":"')[1].split(b'"')[0].decode())
                begin = stop
    return found


def expire(folder: Path, lane: str = "0000") -> int:
    """Delete a lane's oldest segment, as retention does; gives the new first record."""
    stem = min((folder / "lanes" / lane).glob("*.index")).stem
    for suffix in (".index", ".ndjson"):
        (folder / "lanes" / lane / f"{stem}{suffix}").unlink()
    return SpoolReader(folder).offsets().lanes[lane].first


def replace(folder: Path, *counts: int) -> str:
    """Make the folder anew, as a restarted container does."""
    shutil.rmtree(folder)
    return write(folder, *counts)
