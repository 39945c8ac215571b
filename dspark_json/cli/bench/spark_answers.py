"""The same records twice: in a spool, and as files of lines for Spark's own readers."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.cli.bench.answers import MEGABYTE, content_type, write_answers
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_LANE: Final = "0000"
_SETTINGS: Final = WriterSettings(segment_bytes=64 << 20, retention_bytes=1 << 40, min_free_ratio=0.0)
_APPEND: Final = 1000
_META: Final = b'"request_id":'
_BODY: Final = b"},"


@dataclass(frozen=True, slots=True)
class SparkAnswers:
    """``batches`` files of ``batch_records`` lines each (the last has fewer), and a spool with the very same lines."""

    spool: Path
    lines: Path
    records: int
    bytes: int
    batches: int
    batch_records: int
    content_type: pa.DataType


def prepare_answers(folder: Path, megabytes: float, batches: int) -> SparkAnswers:
    """Write the answers of ``bench parse``, both ways."""
    whole = folder / "answers.ndjson"
    file = write_answers(whole, int(megabytes * MEGABYTE), 0.0)
    per_batch = math.ceil(len(file.ends) / batches)
    lines, spool = folder / "lines", folder / "spool"
    lines.mkdir()
    with whole.open("rb") as source:
        for number in range(batches):
            begin = file.ends[number * per_batch - 1] if number else 0
            end = file.ends[min((number + 1) * per_batch, len(file.ends)) - 1]
            path = lines / f"{number:04d}.ndjson"
            path.write_bytes(source.read(end - begin))
            os.utime(path, (number + 1, number + 1))  # in this order Spark takes them
    _write_spool(whole, spool)
    whole.unlink()
    return SparkAnswers(spool, lines, len(file.ends), file.bytes, batches, per_batch, content_type())


def _write_spool(whole: Path, spool: Path) -> None:
    writer = LaneWriter.open(spool, _SETTINGS)
    records: list[Record] = []
    with whole.open("rb") as source:
        for seq, line in enumerate(source):
            record = _record(line)
            assert record.line(seq, _LANE) == line
            records.append(record)
            if len(records) == _APPEND:
                writer.append(records)
                records = []
    writer.append(records)
    writer.close()


def _record(line: bytes) -> Record:
    # `_dspark` of the generated answers ends with the first brace that is followed by a comma and "id".
    meta = line.index(_META)
    end = line.index(_BODY + b'"id":', meta)
    return Record(line[meta:end], line[end + len(_BODY) : -2])
