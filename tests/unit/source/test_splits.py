"""How ranges are cut into splits."""

from __future__ import annotations

import itertools
import pickle

from hypothesis import given
from hypothesis import strategies as st

from dspark_json.source.splits import SPLIT_BYTES, LaneRange, Split, cut


def lane_range(lane: int, start: int, stop: int, mean_bytes: float = 0.0) -> LaneRange:
    return LaneRange(Split("s", f"{lane:04d}", start, stop, "http://h:1", "/f"), mean_bytes)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60)), min_size=1, max_size=5), st.integers(1, 50))
def test_splits_cover_the_ranges_once_and_reach_min_partitions(ranges: list[tuple[int, int]], least: int) -> None:
    given_ranges = [lane_range(i, start, start + n) for i, (start, n) in enumerate(ranges)]
    splits = cut(given_ranges, least)
    assert len(splits) >= min(least, sum(n for _, n in ranges))
    for given_range in given_ranges:
        mine = [s for s in splits if s.lane == given_range.split.lane]
        assert mine[0].start == given_range.split.start
        assert mine[-1].stop == given_range.split.stop
        assert all(a.stop == b.start for a, b in itertools.pairwise(mine))
        assert all(s.start < s.stop for s in mine)


def test_one_split_a_lane_unless_asked_for_more() -> None:
    assert len(cut([lane_range(0, 0, 1000), lane_range(1, 5, 6)], None)) == 2


def test_larger_lanes_are_cut_into_more_pieces() -> None:
    splits = cut([lane_range(0, 0, 900), lane_range(1, 0, 100)], 10)
    assert sum(s.lane == "0000" for s in splits) == 9


def test_a_split_holds_about_64_mib_at_most() -> None:
    assert len(cut([lane_range(0, 0, 10, mean_bytes=SPLIT_BYTES / 2)], None)) == 5


def test_a_split_travels_by_pickle() -> None:
    split = cut([lane_range(0, 0, 9)], None)[0]
    assert pickle.loads(pickle.dumps(split)) == split
