"""The streams that a worker plans for its JVM, and the tasks that it reads for."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from dspark_json.errors import StreamUnknownError
from dspark_json.source.offsets import parse_offset
from dspark_json.source.read_task import ReadTask, TaskReader
from dspark_json.source.texts import schema_from, split_text, task_from, task_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from dspark_json.source.admission import ReadLimits
    from dspark_json.source.query import Query
    from dspark_json.source.splits import Split

__all__ = ["Streams", "Tasks", "WorkerStream", "split_frames"]

_MOST_TASKS: Final = 64


class WorkerStream:
    """One stream of the JVM: its planner, and the texts that go with it.

    Calls that plan wait for one another, as the planner wants it; metrics don't wait.
    """

    def __init__(self, query: Query, given: pa.Schema, *, initial: str | None, target: str | None) -> None:
        """``initial`` and ``target`` are what the same stream gave on an earlier worker."""
        self.query = query
        self._given = given
        self._whole = task_text(query.task(given))
        self._pruned: tuple[str, str] | None = None  # the last columns asked for, and the task for them
        self._lock = threading.Lock()
        self._planner = query.stream_planner()
        if initial is not None or target is not None:
            self._planner.restore(
                None if initial is None else _value(initial), None if target is None else json.loads(target)
            )

    def task(self, columns: str | None = None) -> str:
        """The text of the task for all columns, or for a schema (as text) that pruning has left."""
        if columns is None:
            return self._whole
        pruned = self._pruned
        if pruned is None or pruned[0] != columns:
            pruned = (columns, task_text(self.query.task(schema_from(columns), given=self._given)))
            self._pruned = pruned
        return pruned[1]

    def initial(self) -> str:
        """See ``Planner.initial``."""
        with self._lock:
            return _text(self._planner.initial())

    def latest(self, start: str, limits: ReadLimits | None) -> str:
        """See ``Planner.latest``; where nothing is new, the very text given."""
        before = _value(start)
        with self._lock:
            end = self._planner.latest(before, self.query.limits(limits))
        return start if end is before else _text(end)

    def report(self) -> str | None:
        """See ``Planner.report``."""
        end = self._planner.report()
        return None if end is None else _text(end)

    def fix_target(self) -> str:
        """See ``Planner.fix_target``; gives the target as text."""
        with self._lock:
            self._planner.fix_target()
            return json.dumps(self._planner.target(), sort_keys=True)

    def plan(self, start: str, end: str) -> list[Split]:
        """See ``Planner.plan``."""
        with self._lock:
            return self._planner.plan(_value(start), _value(end))

    def metrics(self) -> dict[str, int]:
        """What the planner has counted, and how many records of each lane wait."""
        counts, lags = self._planner.counts, self._planner.lags()
        return {
            "lost_records": counts.lost_records,
            "spools_replaced": counts.spools_replaced,
            "endpoints_down": counts.endpoints_down,
            "dspark_schema_update_count": counts.schema_updates,
            "lag_records": sum(lags.values()),
            **{f"lag_records.{spool_id}.{lane}": records for (spool_id, lane), records in lags.items()},
        }


class Streams:
    """The streams that are open, by ids that no other worker gives."""

    def __init__(self) -> None:
        self._open: dict[str, WorkerStream] = {}

    def add(self, stream: WorkerStream) -> str:
        """Open a stream; gives its id."""
        stream_id = secrets.token_hex(8)
        self._open[stream_id] = stream
        return stream_id

    def get(self, stream_id: str) -> WorkerStream:
        """An open stream; ``StreamUnknownError``."""
        try:
            return self._open[stream_id]
        except KeyError:
            raise StreamUnknownError(
                f"this worker has no stream {stream_id}: another one had it", remedy="Restart the query."
            ) from None

    def close(self, stream_id: str) -> None:
        """Forget a stream, if there is one."""
        self._open.pop(stream_id, None)


class Tasks:
    """Readers by the text of their task, so that a query's plan is compiled once; the least used are forgotten."""

    def __init__(self, make: Callable[[ReadTask], TaskReader] = TaskReader) -> None:
        self._make = make
        self._readers: OrderedDict[str, TaskReader] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> TaskReader:
        """The reader of a task; ``EngineUnavailableError``."""
        with self._lock:
            reader = self._readers.get(text)
            if reader is None:
                reader = self._readers[text] = self._make(task_from(text))
                if len(self._readers) > _MOST_TASKS:
                    self._readers.popitem(last=False)
            self._readers.move_to_end(text)
            return reader


def split_frames(splits: Sequence[Split]) -> list[dict[str, Any]]:
    """Splits as an answer has them."""
    here = socket.gethostname()
    return [
        {
            "split": split_text(split),
            "hosts": [here] if split.folder is not None else [],
            "records": split.stop - split.start,
        }
        for split in splits
    ]


def _text(value: dict[str, Any]) -> str:
    # Spark compares offsets as text: see source/offsets.py.
    return json.dumps(value, sort_keys=True)


def _value(text: str) -> dict[str, Any]:
    parse_offset(text)  # says what is wrong with a text that is none
    value: dict[str, Any] = json.loads(text)
    return value
