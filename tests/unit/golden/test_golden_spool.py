"""The golden spool is read, written and recovered as its bytes say."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spool_support import Clock, settings

from dspark_json.errors import (
    BeyondEndError,
    DSparkJsonError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolReplacedError,
)
from dspark_json.spool.claim import current_boot_id
from dspark_json.spool.layout import ENTRY_BYTES, HEADER_BYTES, INDEX_ENTRY
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter

GOLDEN = Path(__file__).parents[2] / "golden"
V1 = GOLDEN / "v1"
SPOOL = V1 / "spool"
T = 1_795_970_578_000_000
SPOOL_ID = "0b7f6a52-3c1e-4d89-9f60-5a2b8c4d7e01"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def golden_lines(lane: str, first_seq: int) -> list[bytes]:
    return (SPOOL / "lanes" / lane / f"{first_seq:020d}.ndjson").read_bytes().splitlines(keepends=True)


def golden_times(lane: str, first_seq: int) -> list[int]:
    raw = (SPOOL / "lanes" / lane / f"{first_seq:020d}.index").read_bytes()[HEADER_BYTES:]
    whole = len(raw) // ENTRY_BYTES * ENTRY_BYTES
    return [entry[1] for entry in INDEX_ENTRY.iter_unpack(raw[:whole])]


def as_record(line: bytes) -> Record:
    """The two pieces that the hook would have handed over for this line."""
    text = line.decode().removesuffix("}\n")
    head_end = json.JSONDecoder().raw_decode(text, len('{"_dspark":'))[1]
    meta = text[text.index('"request_id"') : head_end - 1]
    return Record(meta.encode(), text[head_end:].removeprefix(",").encode())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SPOOL, tmp_path / "spool"))


def test_the_committed_files_are_what_the_script_makes_from_the_text_of_the_contract(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-I", str(GOLDEN / "make_v1.py"), str(tmp_path)], check=True)
    committed = {
        name: raw for name, raw in tree(V1).items() if not name.startswith("rows/") and name != ".gitattributes"
    }
    assert tree(tmp_path) == committed


def test_the_sums_are_those_of_the_committed_files() -> None:
    for line in (V1 / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((V1 / name).read_bytes()).hexdigest() == digest, name


def test_the_script_that_makes_them_does_not_import_the_package() -> None:
    assert "dspark_json" not in (GOLDEN / "make_v1.py").read_text()


def test_a_reader_gets_exactly_the_records_of_the_golden_spool() -> None:
    reader = SpoolReader(SPOOL, spool_id=SPOOL_ID)
    offsets = reader.offsets()
    assert {lane: (extent.first, extent.next) for lane, extent in offsets.lanes.items()} == {
        "0000": (0, 6),
        "0001": (10, 13),
    }
    for lane, first_seq, count in (("0000", 0, 4), ("0000", 4, 2), ("0001", 10, 3)):
        chunk = reader.read(lane, first_seq, first_seq + count)
        lines = golden_lines(lane, first_seq)[:count]
        assert bytes(chunk.buffer) == b"".join(lines)
        assert [chunk.buffer[a:b].tobytes() for a, b in zip([0, *chunk.ends], chunk.ends, strict=False)] == lines
        assert list(chunk.appended_at) == golden_times(lane, first_seq)
        assert [json.loads(line)["_dspark"]["seq"] for line in lines] == list(range(first_seq, first_seq + count))


def test_the_golden_offset_is_the_text_for_the_end_of_the_golden_spool() -> None:
    lanes = {lane: {"next": e.next, "seen": e.next} for lane, e in SpoolReader(SPOOL).offsets().lanes.items()}
    offset = {"v": 1, "spools": {SPOOL_ID: {"endpoint": "http://127.0.0.1:8000", "lanes": lanes}}}
    assert (V1 / "offset.json").read_text() == json.dumps(offset, sort_keys=True)


@pytest.mark.parametrize("path", sorted((V1 / "http").glob("*.json")), ids=lambda path: path.stem)
def test_a_reader_gives_what_the_golden_http_answers_say(path: Path) -> None:
    golden: dict[str, Any] = json.loads(path.read_text())
    body = base64.b64decode(golden["body_base64"]) if "body_base64" in golden else golden["body"].encode()
    route, _, query = golden["request"].removeprefix("GET /dspark/v1/").partition("?")
    wanted = {name: int(value) for name, value in (pair.split("=") for pair in query.split("&") if pair)}
    if route == "offsets":
        extents = json.loads(body)["lanes"]
        found = SpoolReader(SPOOL).offsets().lanes
        assert {lane: {"first": e.first, "next": e.next, "bytes": e.bytes} for lane, e in found.items()} == extents
        return
    _, spool_id, _, lane, kind = route.split("/")

    def ask() -> tuple[bytes, int]:
        reader = SpoolReader(SPOOL, spool_id=spool_id)
        if kind == "records":
            chunk = reader.read(lane, wanted["from"], wanted["to"], max_bytes=wanted.get("max_bytes", 8 << 20))
            return bytes(chunk.buffer), chunk.next_seq
        entries = reader.index(lane, wanted["from"], wanted["to"])
        columns = zip(entries.ends, entries.appended_at, entries.crcs, strict=True)
        return b"".join(INDEX_ENTRY.pack(end, at, crc, 0) for end, at, crc in columns), wanted["from"] + len(entries)

    if golden["status"] == 200:
        answer, following = ask()
        assert golden["headers"]["x-dspark-next"] == str(following)
        assert golden["headers"]["content-length"] == str(len(answer))
        assert answer == body
        return
    classes: dict[int, type[DSparkJsonError]] = {
        404: LaneNotFoundError,
        410: RecordsExpiredError,
        412: SpoolReplacedError,
        416: BeyondEndError,
    }
    said = json.loads(body)["error"]
    with pytest.raises(classes[golden["status"]]) as caught:
        ask()
    assert caught.value.code == said["code"]
    assert getattr(caught.value, "first", None) == said.get("first")
    assert getattr(caught.value, "next", None) == said.get("next")


def test_a_writer_given_the_same_records_and_times_writes_the_same_bytes(tmp_path: Path) -> None:
    first, second = golden_lines("0000", 0), golden_lines("0000", 4)[:2]
    times = golden_times("0000", 0) + golden_times("0000", 4)
    clock = Clock(T)
    with LaneWriter.open(tmp_path / "spool", settings(segment_bytes=sum(map(len, first))), clock=clock) as writer:
        taken = [as_record(line) for line in first + second]
        for batch in ((0, 1), (1, 3), (3, 4), (4, 5), (5, 6)):
            clock.now = times[batch[0]]
            writer.append(taken[slice(*batch)])
    golden = tree(SPOOL / "lanes" / "0000")
    golden["00000000000000000004.ndjson"] = b"".join(second)
    golden["00000000000000000004.index"] = golden["00000000000000000004.index"][: HEADER_BYTES + 2 * ENTRY_BYTES]
    written = tree(tmp_path / "spool" / "lanes" / "0000")
    assert {name: written[name] for name in golden} == golden
    assert set(written) - set(golden) == {"lock", "stats.json"}


def test_a_writer_whose_clock_is_set_back_writes_the_same_bytes_and_begins_a_segment_by_age(tmp_path: Path) -> None:
    lane = tmp_path / "spool" / "lanes" / "0000"
    with LaneWriter.open(tmp_path / "spool"):
        pass
    golden = tree(SPOOL / "lanes" / "0001")
    for path in lane.glob("0*"):
        path.unlink()
    (lane / "00000000000000000010.ndjson").touch()
    (lane / "00000000000000000010.index").write_bytes(golden["00000000000000000010.index"][:HEADER_BYTES])
    clock = Clock(T + 3_000_000)
    with LaneWriter.open(
        tmp_path / "spool", settings(segment_bytes=1 << 20, retention_us=600_000), clock=clock
    ) as writer:
        # The lane's name is in each line; here it is 0000, so the golden lines are made of their pieces once more.
        taken = [as_record(line) for line in golden_lines("0001", 10)]
        for record, now in zip(taken, (T + 3_000_000, T + 3_200_000, T + 3_150_000), strict=True):
            clock.now = now
            writer.append([record])
        clock.now = T + 3_700_000
        writer.maintain()
        assert writer.next_seq == 13
    assert (lane / "00000000000000000010.ndjson").read_bytes() == b"".join(golden_lines("0001", 10)).replace(
        b'"lane":"0001"', b'"lane":"0000"'
    )
    assert [entry[1] for entry in _entries(lane / "00000000000000000010.index")] == golden_times("0001", 10)
    assert (lane / "00000000000000000013.index").read_bytes() == golden["00000000000000000013.index"]
    assert (lane / "00000000000000000013.ndjson").read_bytes() == b""


def _entries(path: Path) -> list[tuple[int, ...]]:
    return list(INDEX_ENTRY.iter_unpack(path.read_bytes()[HEADER_BYTES:]))


@pytest.mark.parametrize(("owner", "next_lane"), [("this boot", "0000"), ("another boot", "0002"), ("nobody", "0002")])
def test_recovery_of_a_copy_cuts_exactly_the_torn_tail(copy: Path, owner: str, next_lane: str) -> None:
    before = tree(copy)
    for lane in ("0000", "0001"):
        if owner != "nobody":
            boot = current_boot_id() if owner == "this boot" else "5d0c4a7e-1f2b-4c3d-8e9f-a0b1c2d3e4f5"
            (copy / "lanes" / lane / "lock").write_text(boot + "\n")
    with LaneWriter.open(copy, settings()) as writer:
        assert (writer.spool_id, writer.lane) == (SPOOL_ID, next_lane)
        assert writer.next_seq == (6 if next_lane == "0000" else 0)
    after = {name: raw for name, raw in tree(copy).items() if name in before and name != "spool.json"}
    expected = {name: raw for name, raw in before.items() if name != "spool.json"}
    expected["lanes/0000/00000000000000000004.ndjson"] = b"".join(golden_lines("0000", 4)[:2])
    expected["lanes/0000/00000000000000000004.index"] = before["lanes/0000/00000000000000000004.index"][
        : HEADER_BYTES + 2 * ENTRY_BYTES
    ]
    assert after == expected
