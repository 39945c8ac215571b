"""Whatever happens between micro-batches, every record is read exactly once and in order per lane."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.source.spools import labels, planner, record, writer

from dspark_json.source.admission import ReadLimits

if TYPE_CHECKING:
    from dspark_json.source.planner import Planner, Value
    from dspark_json.spool.writer import LaneWriter

LIMITS = st.builds(ReadLimits, st.none() | st.integers(1, 12), st.none() | st.integers(1, 900))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("batch"), LIMITS, st.booleans()),
        st.tuples(st.just("lane"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


class Stream:
    """A query with its checkpoint: the offset log holds texts, as Spark's does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.read: list[str] = []
        self.at = ""
        self.planner: Planner = planner(folder, minPartitions="3")
        self.at = json.dumps(self.planner.initial())

    def restart(self) -> None:
        self.planner = planner(self.folder, minPartitions="3")

    def batch(self, limits: ReadLimits, *, killed: bool) -> bool:
        """One micro-batch; one that is killed after its offset was logged is planned and read again from the texts."""
        start: Value = json.loads(self.at)
        end = json.dumps(self.planner.latest(start, limits))
        if end == self.at:
            return False
        if killed:
            labels(self.planner, start, json.loads(end))
            self.restart()
        self.read += labels(self.planner, json.loads(self.at), json.loads(end))
        self.at = end
        return True


@given(STEPS, LIMITS)
@settings(max_examples=60, deadline=None)
def test_every_record_is_read_once_and_in_order(steps: list[tuple[str, object, object]], last: ReadLimits) -> None:
    folder = Path(tempfile.mkdtemp()) / "spool"
    writers: list[LaneWriter] = [writer(folder)]
    written: list[str] = []
    try:
        stream = Stream(folder)
        for kind, first, second in steps:
            if kind == "append":
                assert isinstance(first, int)
                assert isinstance(second, int)
                lane = writers[first % len(writers)]
                new = [f"{lane.lane}:{lane.next_seq + i}" for i in range(second)]
                lane.append([record(label) for label in new])
                written += new
            elif kind == "batch":
                assert isinstance(first, ReadLimits)
                stream.batch(first, killed=second is True)
            elif kind == "lane":
                writers.append(writer(folder))
            elif kind == "restart":
                stream.restart()
            else:
                assert isinstance(first, int)
                writers.pop(first % len(writers)).close()
                writers.append(writer(folder))
        while stream.batch(last, killed=False):
            pass
        assert sorted(stream.read) == sorted(written)
        for lane_name in {label.split(":")[0] for label in written}:
            mine = [int(label.split(":")[1]) for label in stream.read if label.startswith(lane_name)]
            assert mine == list(range(len(mine)))
    finally:
        for lane in writers:
            lane.close()
        shutil.rmtree(folder.parent)
