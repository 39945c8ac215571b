"""The text of offsets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from unit.source.spools import ALL, planner

from dspark_json.errors import OffsetError
from dspark_json.source.offsets import LanePosition, Offset, SpoolPosition, parse_offset, parse_starting_offset

GOLDEN = Path(__file__).parents[2] / "golden" / "v1"


def test_the_golden_offset_is_reproduced_to_the_byte() -> None:
    text = (GOLDEN / "offset.json").read_text()
    offset = Offset(
        {
            "0b7f6a52-3c1e-4d89-9f60-5a2b8c4d7e01": SpoolPosition(
                "http://127.0.0.1:8000", {"0001": LanePosition(13, 13), "0000": LanePosition(6, 6)}
            )
        }
    )
    assert offset.text() == text
    assert parse_offset(text) == offset


def test_spark_writing_the_dictionary_gives_the_text() -> None:
    offset = Offset(
        {"b": SpoolPosition("e", {"0001": LanePosition(2, 3), "0000": LanePosition(0, 1)}), "a": SpoolPosition("ü", {})}
    )
    assert json.dumps(offset.value()) == offset.text() == json.dumps(offset.value(), sort_keys=True)
    assert json.dumps(json.loads(offset.text())) == offset.text()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"v":2,"spools":{}}', "format"),
        ('{"v":true,"spools":{}}', "format"),
        ('{"v":1.0,"spools":{}}', "format"),
        ('{"v":' + "[" * 100_000, "nested too deeply"),
        ('{"v":1}', "spools"),
        ('{"v":1,"spools":{"a":{"lanes":{}}}}', "endpoint"),
        ('{"v":1,"spools":{"a":{"endpoint":"e","lanes":{"0":{"next":1,"seen":1}}}}}', "lane '0'"),
        ('{"v":1,"spools":{"a":{"endpoint":"e","lanes":{"0000":{"next":-1,"seen":1}}}}}', "0000"),
        ('{"v":1,"spools":{"a":{"endpoint":"e","lanes":{"0000":{"next":true,"seen":1}}}}}', "0000"),
        ('{"v":1,"spools":{"a":{"endpoint":"e","lanes":{"0000":{"next":1}}}}}', "0000"),
        ('{"v":1,"spools":{"a":{"endpoint":"e","lanes":{"0000":{"next":1%s,"seen":1}}}}}' % ("0" * 19), "0000"),
        ('{"v":1,"spools":{"a\\u001b":{"endpoint":"e"}}}', r"spool a\\x1b"),
    ],
)
def test_what_is_no_offset_is_a_named_error(text: str, named: str) -> None:
    with pytest.raises(OffsetError, match=named) as caught:
        parse_offset(text)
    assert "checkpoint" in caught.value.remedy
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_starting_offsets_may_leave_out_endpoint_and_seen() -> None:
    offset = parse_starting_offset('{"v":1,"spools":{"a":{"lanes":{"0000":{"next":7}}}}}')
    assert offset.position("a", "0000") == LanePosition(7, 7)
    assert offset.position("a", "0001") is None
    assert offset.position("b", "0000") is None


def test_a_planner_of_the_golden_spool_ends_at_the_golden_offset(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    shutil.copytree(GOLDEN / "spool", folder)
    plan = planner(folder)
    end = plan.latest(plan.initial(), ALL)
    assert json.dumps(end).replace(str(folder), "http://127.0.0.1:8000") == (GOLDEN / "offset.json").read_text()
    assert [(s.lane, s.start, s.stop) for s in plan.plan(plan.initial(), end)] == [("0000", 0, 6), ("0001", 10, 13)]
