"""Lines and index entries are the same whoever makes them, and what a line of the format must be."""

from __future__ import annotations

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json import _native
from dspark_json.spool import framing, layout
from dspark_json.spool.framing import frame, frame_in_python
from dspark_json.spool.record import Record

members = st.one_of(
    st.sampled_from([b"", b" \n\x0b", b'"a":1', b'"a":\r\n1', '"é": "🚀"'.encode()]), st.binary(max_size=20)
)
records = st.lists(st.builds(Record, members, members), max_size=6)


def test_an_installation_with_the_native_module_frames_natively() -> None:
    assert framing._frame is _native.frame


@settings(max_examples=500, deadline=None)
@given(records, st.integers(0, 2**62), st.sampled_from(["0000", "9999"]), st.integers(0, 300), st.integers(1, 400))
def test_both_ways_give_the_same_parts(group: list[Record], seq: int, lane: str, end: int, full: int) -> None:
    assert _native.frame(group, seq, lane, end, full, 7) == frame_in_python(group, seq, lane, end, full, 7)


def test_a_large_group_is_framed_like_a_small_one() -> None:
    group = [Record(b'"a":%d' % number, b'"pad":"' + b"x" * 1000 + b'"') for number in range(300)]
    assert _native.frame(group, 5, "0001", 10, 100_000, 7) == frame_in_python(group, 5, "0001", 10, 100_000, 7)


def test_each_line_is_found_by_its_entry() -> None:
    group = [Record(b"", b'"n":%d' % number) for number in range(7)]
    first, second = frame(group, 3, "0000", 500, 620, 9)
    lines = first.lines(500) + second.lines()
    assert lines == [record.line(seq, "0000") for seq, record in enumerate(group, 3)]
    columns = [layout.unpack_entries(part.entries) for part in (first, second)]
    assert [list(column.crcs) for column in columns] == [
        [zlib.crc32(line) for line in part] for part in (first.lines(500), second.lines())
    ]
    assert {at for column in columns for at in column.appended_at} == {9}
    assert second.first_seq == 3 + len(first.lines(500))
