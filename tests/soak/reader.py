"""A streaming query as a process that may be killed at any moment: planner and engine of the source, a sink of files.

It keeps what Spark keeps, in the same order: the end of a batch in ``offsets/N``, then its rows in ``rows/N.arrow``
(replaced as a whole, as a sink does that knows batches), then ``commits/N``. A batch without a commit is read again.

``python -m soak.reader FOLDER OPTIONS``, with the source's options as JSON; it ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc

from dspark_json.errors import DSparkJsonError
from dspark_json.source.query import Query
from dspark_json.source.read_task import TaskReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAUSE_SEC: Final = 0.2
_OF_RECORD: Final = ("spool_id", "lane", "seq", "request_id", "status", "completed", "disconnected")


class Log:
    """A folder of small files named by batch, each written at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def newest(self) -> int:
        """The newest batch; -1 where there is none."""
        return max((int(path.name) for path in self._folder.iterdir() if path.name.isdigit()), default=-1)

    def get(self, batch: int) -> str | None:
        """What was put."""
        path = self._folder / str(batch)
        return path.read_text() if path.exists() else None

    def put(self, batch: int, text: str) -> None:
        """Write it, whole or not at all."""
        new = self._folder / f"{batch}.new"
        new.write_text(text)
        new.rename(self._folder / str(batch))


class Job:
    """The query, from where its folder says."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self._offsets, self._commits = Log(folder / "offsets"), Log(folder / "commits")
        self._rows = folder / "rows"
        self._rows.mkdir(exist_ok=True)
        query = Query.resolve(options)
        self._planner = query.stream_planner()
        self._limits = query.limits(query.settings.limits)
        self._reader = TaskReader(query.task(query.schema()))
        self._batch = self._commits.newest() + 1
        known = self._offsets.get(self._batch - 1)
        self._start = known if known is not None else json.dumps(self._planner.initial(), sort_keys=True)

    def run_batch(self) -> bool:
        """One micro-batch; False where there is nothing new."""
        end = self._offsets.get(self._batch)
        if end is None:
            end = json.dumps(self._planner.latest(json.loads(self._start), self._limits), sort_keys=True)
            if end == self._start:
                return False
            self._offsets.put(self._batch, end)
        self._write(self._batch, json.loads(self._start), json.loads(end))
        self._commits.put(self._batch, "")
        self._batch, self._start = self._batch + 1, end
        return True

    def _write(self, batch: int, start: Any, end: Any) -> None:
        new = self._rows / f"{batch}.new"
        with pa.OSFile(str(new), "wb") as file, pyarrow.ipc.new_file(file, _schema()) as sink:
            for split in self._planner.plan(start, end):
                for rows in self._reader.batches(split):
                    columns = [rows["id"], *(pyarrow.compute.struct_field(rows["_dspark"], n) for n in _OF_RECORD)]
                    sink.write_batch(pa.RecordBatch.from_arrays(columns, schema=_schema()))
        new.rename(self._rows / f"{batch}.arrow")


def _schema() -> pa.Schema:
    kinds = {"seq": pa.int64(), "status": pa.int32(), "completed": pa.bool_(), "disconnected": pa.bool_()}
    return pa.schema([(name, kinds.get(name, pa.string())) for name in ("id", *_OF_RECORD)])


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all committed batches."""
    for commit in (folder / "commits").iterdir():
        if commit.name.isdigit():
            with pyarrow.ipc.open_file(folder / "rows" / f"{commit.name}.arrow") as file:
                yield from file.read_all().to_pylist()


def newest_commit(folder: Path) -> int:
    """The newest committed batch; -1 where there is none."""
    return Log(folder / "commits").newest()


def committed(folder: Path) -> dict[str, int]:
    """lane → the next record, by the newest committed batch."""
    text = Log(folder / "offsets").get(newest_commit(folder))
    if text is None:
        return {}
    (spool,) = json.loads(text)["spools"].values()
    return {lane: position["next"] for lane, position in spool["lanes"].items()}


def main() -> int:
    """Read until killed; 3 and the error's code on standard output where a Spark query would have failed."""
    parent = os.getppid()
    try:
        job = Job(Path(sys.argv[1]), json.loads(sys.argv[2]))
        while os.getppid() == parent:
            if not job.run_batch():
                time.sleep(_PAUSE_SEC)
    except DSparkJsonError as error:
        print(error.code, flush=True)
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
