from __future__ import annotations

import os
import zlib
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st
from spool_support import open_files

from dspark_json.spool.data_range import PIECE_BYTES, DataRange, first_bad

if TYPE_CHECKING:
    from pathlib import Path

SIZES = [1, PIECE_BYTES - 1, 7, PIECE_BYTES, 1, PIECE_BYTES + 1, 3 * PIECE_BYTES, 5, 5]
BEFORE = 11


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(b"b" * BEFORE + b"".join(bytes([65 + n]) * size for n, size in enumerate(SIZES)) + b"behind")
    return path


def found_bad(path: Path, ends: list[int], crcs: list[int], begin: int = BEFORE) -> int | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return first_bad(descriptor, begin, ends, crcs)
    finally:
        os.close(descriptor)


def index_of() -> tuple[list[int], list[int]]:
    ends = [BEFORE + end for end in accumulate(SIZES)]
    return ends, [zlib.crc32(bytes([65 + n]) * size) for n, size in enumerate(SIZES)]


def test_records_that_match_are_good_however_they_lie_across_pieces(file: Path) -> None:
    ends, crcs = index_of()
    assert found_bad(file, ends, crcs) is None
    assert found_bad(file, ends[4:], crcs[4:], ends[3]) is None
    assert found_bad(file, [], []) is None


@pytest.mark.parametrize("bad", range(len(SIZES)))
def test_the_first_record_that_does_not_match_is_found(file: Path, bad: int) -> None:
    ends, crcs = index_of()
    raw = bytearray(file.read_bytes())
    raw[ends[bad] - 1] ^= 1
    raw[-len("behind") - 1] ^= 2
    file.write_bytes(raw)
    assert found_bad(file, ends, crcs) == bad


@pytest.mark.parametrize("bad", range(len(SIZES)))
def test_a_record_beyond_the_end_of_the_file_is_bad(file: Path, bad: int) -> None:
    ends, crcs = index_of()
    os.truncate(file, ends[bad] - 1)
    assert found_bad(file, ends, crcs) == bad


@trials(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 60), st.integers(0, 2**64 - 1)), min_size=1, max_size=8))
def test_ends_that_make_no_sense_are_bad_and_never_an_endless_loop(ends: list[int]) -> None:
    descriptor = os.memfd_create("data")
    try:
        os.write(descriptor, bytes(40))
        crcs = [
            zlib.crc32(bytes(max(0, end - begin))) if end <= 40 else 0
            for begin, end in zip([0, *ends[:-1]], ends, strict=True)
        ]
        expected = next((i for i, end in enumerate(ends) if not ([0, *ends][i] < end <= 40)), None)
        assert first_bad(descriptor, 0, ends, crcs) == expected
    finally:
        os.close(descriptor)


def test_a_range_gives_its_bytes_after_the_file_is_removed_and_then_closes_it(file: Path) -> None:
    before = open_files()
    found = DataRange(os.open(file, os.O_RDONLY), BEFORE, BEFORE + 20)
    file.unlink()
    assert len(found) == 20
    assert found.piece(0, 8) == b"A" + b"B" * 7
    assert found.piece(8, 100) == b"B" * 12
    assert open_files() == before + 1
    del found
    assert open_files() == before


def test_a_file_that_has_become_shorter_ends_a_range_with_an_error_and_nothing_else(file: Path) -> None:
    found = DataRange(os.open(file, os.O_RDONLY), 0, file.stat().st_size)
    os.truncate(file, BEFORE)
    assert found.piece(0, BEFORE) == b"b" * BEFORE
    with pytest.raises(EOFError, match="ends at 11"):
        found.piece(0, BEFORE + 1)
