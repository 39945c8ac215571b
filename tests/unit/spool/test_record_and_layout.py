from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dspark_json.errors import SpoolFormatError, SpoolNotFoundError
from dspark_json.spool import layout
from dspark_json.spool.record import Record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("meta", "body", "line"),
    [
        (b'"status":200', b'"id":"a"', b'{"_dspark":{"seq":7,"lane":"0003","status":200},"id":"a"}\n'),
        (b'"status":200', b"", b'{"_dspark":{"seq":7,"lane":"0003","status":200}}\n'),
        (b"", b'"id":"a"', b'{"_dspark":{"seq":7,"lane":"0003"},"id":"a"}\n'),
        (b"", b" \n ", b'{"_dspark":{"seq":7,"lane":"0003"}}\n'),
        (b"", b'\n  "id": "a",\r\n  "n": 1\n', b'{"_dspark":{"seq":7,"lane":"0003"},   "id": "a",    "n": 1 }\n'),
        (b"", '"id":"ü🚀"'.encode(), '{"_dspark":{"seq":7,"lane":"0003"},"id":"ü🚀"}\n'.encode()),
    ],
)
def test_a_line_is_the_answer_with_one_object_spliced_in_front(meta: bytes, body: bytes, line: bytes) -> None:
    assert Record(meta, body).line(7, "0003") == line
    json.loads(line)


def test_a_body_with_a_dspark_member_comes_behind_the_true_one() -> None:
    pairs = json.loads(Record(b"", b'"_dspark":{"seq":1}').line(7, "0000"), object_pairs_hook=list)
    assert pairs[0] == ("_dspark", [("seq", 7), ("lane", "0000")])


@pytest.mark.parametrize("text", ["0000", "0042", "9999"])
def test_four_digits_are_a_lane_name(text: str) -> None:
    assert layout.is_lane_name(text)
    assert layout.lane_name(int(text)) == text


@pytest.mark.parametrize("text", ["", "0", "00000", "../x", "..", "000a", "٠٠٠٠", "0000\n", "00/0", "-001"])
def test_anything_else_is_no_lane_name(text: str) -> None:
    assert not layout.is_lane_name(text)


@pytest.mark.parametrize("name", ["1.index", "0" * 20, "0" * 20 + ".index.tmp", "." + "0" * 20 + ".index", "x.index"])
def test_foreign_file_names_are_no_segments(name: str) -> None:
    assert layout.index_seq(name) is None


def test_index_entries_come_apart_into_columns_and_a_torn_one_is_left_out() -> None:
    entries = [(10, 5, 0xFFFFFFFF), (25, 6, 0), (2**40, 2**60, 7)]
    raw = b"".join(layout.pack_entry(*entry) for entry in entries) + b"torn"
    columns = layout.unpack_entries(raw)
    assert list(zip(columns.ends, columns.appended_at, columns.crcs, strict=True)) == entries


@pytest.mark.parametrize(
    ("ends", "size", "fits"),
    [
        ([], 0, 0),
        ([10], 10, 1),
        ([10], 9, 0),
        ([0], 9, 0),
        ([10, 20, 30], 30, 3),
        ([10, 20, 30], 29, 2),
        ([10, 20, 0, 0], 30, 2),
        ([10, 20, 15, 25], 30, 2),
        ([10, 20, 20], 30, 2),
        ([10, 2**63, 30], 40, 1),
    ],
)
def test_entries_fit_as_long_as_they_go_up_and_end_in_the_data(ends: list[int], size: int, fits: int) -> None:
    columns = layout.unpack_entries(b"".join(layout.pack_entry(end, 0, 0) for end in ends))
    # The shortcut over the last two entries may only be trusted where the ends before go up; damage there is found
    # by the checksums.
    if ends == [10, 20, 15, 25] or ends == [10, 2**63, 30]:
        assert layout.fitting_prefix(columns.ends, size) in {fits, len(ends)}
    else:
        assert layout.fitting_prefix(columns.ends, size) == fits


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not the description"),
        ("[]", "not the description"),
        ("{}", "not the description"),
        ('{"format":"1"}', "not the description"),
        ('{"format":2,"spool_id":"x","created":1,"boot_id":"y"}', "format 2"),
        ('{"format":1,"created":1,"boot_id":"y"}', "lacks"),
        ('{"format":1,"spool_id":"","created":1,"boot_id":"y"}', "lacks"),
        ('{"format":1,"spool_id":"x","created":"1","boot_id":"y"}', "lacks"),
        ("\udcff", "not the description"),
        ("[" * 200_000, "not the description"),
    ],
)
def test_a_spool_json_that_is_broken_or_of_another_format_is_a_named_error(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "spool.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SpoolFormatError, match=says) as caught:
        layout.read_identity(tmp_path)
    assert str(tmp_path / "spool.json") in caught.value.message
    assert caught.value.remedy


def test_a_folder_without_spool_json_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(SpoolNotFoundError, match="no spool in"):
        layout.read_identity(tmp_path)
    with pytest.raises(SpoolNotFoundError):
        layout.read_identity(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(SpoolNotFoundError):
        layout.read_identity(tmp_path / "file")


def test_the_identity_survives_the_way_through_its_file(tmp_path: Path) -> None:
    identity = layout.SpoolIdentity(1, "an-id", 5, "boot")
    (tmp_path / "spool.json").write_bytes(identity.to_json())
    assert identity.to_json() == b'{"format":1,"spool_id":"an-id","created":5,"boot_id":"boot"}\n'
    assert layout.read_identity(tmp_path) == identity
