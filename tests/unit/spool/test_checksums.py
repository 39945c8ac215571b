"""Records against their checksums: the native check and zlib's find the same damage."""

from __future__ import annotations

import itertools
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_json import _native
from dspark_json.spool.checksums import first_damaged, first_damaged_by_zlib

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKS = [pytest.param(first_damaged, id="chosen"), pytest.param(first_damaged_by_zlib, id="zlib")]


def spans(lines: list[bytes]) -> tuple[memoryview, list[int], list[int]]:
    """Lines as a reader has them: their bytes, the end of each, its CRC-32."""
    ends = list(itertools.accumulate(len(line) for line in lines))
    return memoryview(b"".join(lines)), ends, [zlib.crc32(line) for line in lines]


def test_an_installation_with_the_native_module_checks_natively() -> None:
    from dspark_json.spool import checksums

    assert checksums._first_damaged is _native.first_damaged


@pytest.mark.parametrize("check", CHECKS)
def test_whole_records_are_sound(check: Callable[..., int | None]) -> None:
    assert check(*spans([b"{}\n", b"x" * 100_000 + b"\n", b"\n"])) is None
    assert check(memoryview(b""), [], []) is None


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param([3, 3], id="without bytes"),
        pytest.param([3, 2], id="backwards"),
        pytest.param([3, -50], id="before the first"),
        pytest.param([3, 9], id="beyond"),
        pytest.param([3, (1 << 64) - 1], id="far beyond"),
        pytest.param([3, 1 << 64], id="beyond 64 bits"),
    ],
)
def test_a_record_that_can_not_be_is_damaged_whatever_its_checksum_says(
    check: Callable[..., int | None], ends: list[int]
) -> None:
    assert check(memoryview(b"{}\n[]\n"), ends, [zlib.crc32(b"{}\n"), 0]) == 1
    assert check(memoryview(b"{}\n[]\n"), ends, [zlib.crc32(b"{}\n"), zlib.crc32(b"[]\n")]) == 1


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=20), st.data())
def test_both_name_the_first_record_with_a_changed_byte(lines: list[bytes], data: st.DataObject) -> None:
    buffer, ends, crcs = spans(lines)
    at = data.draw(st.integers(0, len(buffer) - 1))
    changed = bytearray(buffer)
    changed[at] ^= data.draw(st.integers(1, 255))
    record = next(i for i, end in enumerate(ends) if at < end)
    for check in (first_damaged, first_damaged_by_zlib):
        assert check(memoryview(bytes(changed)), ends, crcs) == record
