"""The native module's functions refuse numbers that make no sense as Python's do: with an error, not with a panic."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from dspark_json import _native
from dspark_json.capture.glance import Glance
from dspark_json.engine import build_plan
from dspark_json.engine.native import NativeEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EDGES = (-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64)
LINES = b'{"a":1}\n{"a":2}\n'
RECORDS = [(b"", b'"a":1'), (b'"b":2', b"")]
ERRORS = (ValueError, TypeError, OverflowError, _native.EngineError)


def is_taken_or_refused(call: Callable[..., object], *arguments: object) -> bool:
    """Whether nothing came of it that is no ordinary error: a panic is no ``Exception``."""
    try:
        call(*arguments)
    except ERRORS:
        pass
    except BaseException as error:
        raise AssertionError(f"{call} {arguments}") from error
    return True


@pytest.mark.parametrize("which", ["data", "index"])
@pytest.mark.parametrize("number", [-1, -2, -(2**31)])
def test_a_negative_number_is_no_file(tmp_path: Path, which: str, number: int) -> None:
    path = tmp_path / "index"
    with path.open("wb") as file:
        files = {"data": file.fileno(), "index": file.fileno(), which: number}
        with pytest.raises(ValueError, match=f"{number} is no file descriptor"):
            _native.store(files["data"], b"lines", 0, files["index"], b"entries", 0, path)
    assert path.read_bytes() == b""


def test_a_file_that_is_not_open_is_told_as_the_step_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.touch()
    with path.open("rb+") as file:
        assert _native.store(2**31 - 1, b"x", 0, file.fileno(), b"y", 0, path)[:2] == (1, 9)
        assert _native.store(file.fileno(), b"x", 0, 2**31 - 1, b"y", 0, path)[:2] == (2, 9)


def test_no_number_of_a_file_or_a_place_in_it_makes_a_panic(tmp_path: Path) -> None:
    path = tmp_path / "index"
    nobody = (*(number for number in EDGES if number < 0), *(number for number in EDGES if number > 2**20))
    with path.open("wb") as file:
        for data, index in itertools.product(nobody, repeat=2):
            assert is_taken_or_refused(_native.store, data, b"", 0, index, b"", 0, path)
        beyond = [number for number in EDGES if not 0 <= number < 2**63 - 1]
        for end, place in itertools.product(beyond, repeat=2):
            assert is_taken_or_refused(_native.store, file.fileno(), b"x", end, file.fileno(), b"y", place, path)
            assert is_taken_or_refused(_native.store, file.fileno(), b"", end, file.fileno(), b"", place, path)
    assert path.read_bytes() == b""


def test_no_number_of_a_record_or_a_segment_makes_a_panic() -> None:
    for seq, end, full, appended_at in itertools.product(EDGES, repeat=4):
        assert is_taken_or_refused(_native.frame, RECORDS, seq, "0000", end, full, appended_at)


def test_no_end_or_checksum_makes_a_panic() -> None:
    for one, other in itertools.product((*EDGES, 8, 16, 17), repeat=2):
        for crcs in ([], [one], [one, other], [other] * 3):
            assert is_taken_or_refused(_native.first_damaged, LINES, [one, other], crcs)


def test_no_span_time_or_first_number_makes_a_panic() -> None:
    plan = NativeEngine()._plan(build_plan())
    for ends in itertools.product((*EDGES, 8, 16, 17), repeat=2):
        assert is_taken_or_refused(plan.parse, LINES, list(ends), [0, 0], 0, "s", "0000")
    for at, first_seq in itertools.product(EDGES, repeat=2):
        assert is_taken_or_refused(plan.parse, LINES, [8, 16], [at, at], first_seq, "s", "0000")
        assert is_taken_or_refused(plan.parse, LINES, [8, 16], [at], first_seq, "s", "0000")


def test_no_limit_and_no_number_of_an_exchange_makes_a_panic() -> None:
    glance = Glance.load("settings")
    assert glance is not None
    for limits in itertools.product(EDGES, repeat=3):
        assert is_taken_or_refused(glance._native.drafts, [Exchange()], [Exchange.path], *limits, True)
    for size, at in itertools.product(EDGES, repeat=2):
        exchanges = [Exchange(size=size, received_at=at, request_size=at), Exchange(request_size=size, status=at)] * 3
        most = 2**64 - 1
        assert is_taken_or_refused(glance._native.drafts, exchanges, [Exchange.path], most, most, most, True)


class Exchange:
    """What the native code asks an exchange for, with numbers of one's own."""

    path = "/v1/chat/completions"
    request_headers = headers = ()
    request = [b"{}"]  # noqa: RUF012
    body = [b'{"choices":[{"finish_reason":"stop"}]}']  # noqa: RUF012
    missing = raised = request_id = None
    status, size, request_size, received_at = 200, 1, 1, 0
    first_byte_ms = duration_ms = 1.0
    ended = True

    def __init__(self, **numbers: Any) -> None:
        self.__dict__.update(numbers)
