"""The golden spool gives the golden rows, through the reader and every engine."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from dspark_json.engine import build_plan
from dspark_json.engine.reference import ReferenceEngine
from dspark_json.spool.reader import SpoolReader

GOLDEN = Path(__file__).parents[2] / "golden"
V1 = GOLDEN / "v1"


def plain(value: Any, kind: pa.DataType) -> Any:
    """A column value as the golden rows write it: TIMESTAMP as ISO text, MAP as an object."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            kind.field(i).name: plain(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)
        }
    if pa.types.is_map(kind):
        return {name: plain(item, kind.item_type) for name, item in value}
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return value.isoformat(timespec="microseconds") if isinstance(value, dt.datetime) else value


def of_its_columns(row: Any, golden: Any) -> Any:
    """The row with the columns that the golden one has; those that came later hold nothing."""
    if isinstance(row, dict) and isinstance(golden, dict):
        later = {name: row[name] for name in row if name not in golden}
        assert all(value is None for value in later.values()), later
        return {name: of_its_columns(value, golden[name]) for name, value in row.items() if name in golden}
    if isinstance(row, list) and isinstance(golden, list) and len(row) == len(golden):
        return [of_its_columns(item, one) for item, one in zip(row, golden, strict=True)]
    return row


def test_the_golden_spool_gives_exactly_the_golden_rows() -> None:
    reader = SpoolReader(V1 / "spool")
    engine, plan = ReferenceEngine(), build_plan()
    rows: list[Any] = []
    for lane, extent in sorted(reader.offsets().lanes.items()):
        seq = extent.first
        while seq < extent.next:
            chunk = reader.read(lane, seq, extent.next)
            batch, _ = engine.parse(chunk, plan)
            rows.extend(plain(row, pa.struct(list(batch.schema))) for row in batch.to_pylist())
            seq = chunk.next_seq
    expected = [json.loads(line) for line in (V1 / "rows" / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(expected)
    for row, one in zip(rows, expected, strict=True):
        known = of_its_columns(row, one)
        assert known == one
        assert json.dumps(known) == json.dumps(one), "the order of the columns"


def test_the_committed_rows_are_what_the_script_makes_from_the_text_of_the_contract(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-I", str(GOLDEN / "make_v1_rows.py"), str(tmp_path)], check=True)
    assert (tmp_path / "rows" / "rows.jsonl").read_bytes() == (V1 / "rows" / "rows.jsonl").read_bytes()
