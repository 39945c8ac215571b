"""The two forms of the answers that ``bench spark`` compares on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_json.cli.bench.spark_answers import prepare_answers

if TYPE_CHECKING:
    from pathlib import Path


def test_the_lines_of_spool_and_files_are_the_same_bytes(tmp_path: Path) -> None:
    answers = prepare_answers(tmp_path, 0.1, 3)
    files = sorted(answers.lines.iterdir())
    data = b"".join(path.read_bytes() for path in files)
    assert data == b"".join(path.read_bytes() for path in sorted(answers.spool.glob("lanes/0000/*.ndjson")))
    assert (len(files), data.count(b"\n"), len(data)) == (3, answers.records, answers.bytes)
    assert files[0].read_bytes().count(b"\n") == answers.batch_records
