"""``dspark-json replay``: recorded exchanges of every format leave the records that a server would have left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.capture.driving import corpus_cases, is_subset, records

from dspark_json.cli.main import main

TESTS = Path(__file__).parents[2]
PACKAGED = TESTS.parent / "dspark_json/replay/recordings/exchanges.jsonl"
PACKAGED_LINES = PACKAGED.read_bytes().count(b"\n")
FILES = {
    "messages": (TESTS / "fixtures/vllm/asgi-exchanges.jsonl", 40, 40),
    "chunks in an array": (TESTS / "fixtures/vllm/exchanges-spec-decode.json", 36, 35),
    "the corpus": (TESTS / "corpus/exchanges.jsonl", 27, 27),
    "bodies and events": (PACKAGED, PACKAGED_LINES, PACKAGED_LINES),
}


def replayed(capsys: pytest.CaptureFixture[str], file: Path, spool: Path, *, status: int = 0) -> tuple[Any, str]:
    assert main(["replay", str(file), "--spool", str(spool), "--json"]) == status
    told = capsys.readouterr()
    return json.loads(told.out), told.err


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_replayed_whole(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, exchanges, covered = FILES[name]
    counts, _ = replayed(capsys, file, tmp_path)
    assert counts == {
        "spool": str(tmp_path),
        "exchanges": exchanges,
        "covered": covered,
        "not_replayed": 0,
        "records": covered,
    }
    found = [record["_dspark"] for record in records(tmp_path)]
    assert len(found) == covered
    assert not {meta["error"]["code"] for meta in found if meta["error"]} & {"capture_failed", "bad_event"}
    if name == "bodies and events":
        assert all(meta["completed"] for meta in found)


def test_the_corpus_leaves_the_records_it_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replayed(capsys, TESTS / "corpus/exchanges.jsonl", tmp_path)
    for case, record in zip(corpus_cases(), records(tmp_path), strict=True):
        assert is_subset(case["expect"]["response"] or {}, record), case["id"]
        assert is_subset(case["expect"]["_dspark"], record["_dspark"]), case["id"]


def test_exchanges_that_are_none_are_told_and_the_others_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"request": {"prompt": "x"}, "body": '{"id":"c","choices":[{"index":0,"text":"x","finish_reason":"stop"}]}'}
    bad: list[tuple[Any, str]] = [
        ("{", "not JSON"),
        ("5", "no object"),
        ({}, 'no "path"'),
        ({"path": "/v1/completions"}, 'no "messages", "chunks", "events" or "body"'),
        ({**good, "body": 5}, "not a list of strings"),
        ({**good, "status": "x"}, '"status" is no number'),
        ({**good, "end": "x"}, '"end"'),
        ({**good, "headers": [1]}, '"headers"'),
        ({**good, "method": 1}, '"method"'),
        ({"path": "/x", "messages": [{"type": "y"}]}, '"messages"'),
        ({"path": "/x", "chunks_latin1": ["日"]}, "can't be written as bytes"),
        ({"_dspark": {}, "choices": []}, "a record of a spool. Read that spool itself"),
    ]
    file = tmp_path / "file"
    written = [one if isinstance(one, str) else json.dumps(one) for one, _ in bad]
    file.write_text("\n".join([json.dumps(good), *written, json.dumps(good)]), "utf-8")
    counts, told = replayed(capsys, file, tmp_path / "spool", status=1)
    assert (counts["records"], counts["not_replayed"]) == (2, len(written))
    for number, (_, why) in enumerate(bad, start=2):
        (line,) = (one for one in told.splitlines() if f" exchange {number} " in one)
        assert "DSPARK_JSON_RECORDED_LINE" in line
        assert why in line


ANSWERS: list[Any] = [
    {"id": "c", "object": "chat.completion", "choices": []},
    {"choices": [{"message": {"content": "x"}}]},
    {"object": "text_completion"},
    {"object": "response", "output": []},
    {"output": []},
    {"error": {"message": "no"}},
    {"object": "error", "message": "no"},
    {"custom_id": "a", "response": {"status_code": 200, "body": {"choices": []}}},
    {"request": {"prompt": "x"}, "response": {"body": {"choices": []}}},
    {"path": "/v1/completions", "choices": []},
]


@pytest.mark.parametrize("as_array", [False, True])
def test_answers_are_said_to_be_for_import(as_array: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps(ANSWERS) if as_array else "\n".join(map(json.dumps, ANSWERS)), "utf-8")
    counts, told = replayed(capsys, file, tmp_path / "spool", status=1)
    assert counts["not_replayed"] == len(ANSWERS)
    for number, line in enumerate(told.splitlines(), start=1):
        assert f"exchange {number} can't be replayed: it is an answer without its exchange. " in line
        assert line.endswith("Use `dspark-json import` for those.")


@pytest.mark.parametrize("other", [{}, {"object": []}, {"object": {}, "path": 5}, {"messages": []}, [], 5, None])
def test_what_is_neither_is_not_said_to_be_for_import(
    other: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps([other]), "utf-8")
    assert "import" not in replayed(capsys, file, tmp_path / "spool", status=1)[1]


def test_what_an_application_raised_is_raised_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    exchange = {"path": "/v1/completions", "request": {"prompt": "x"}, "messages": [], "raised": "EngineDeadError"}
    file.write_text(json.dumps(exchange), "utf-8")
    replayed(capsys, file, tmp_path / "spool")
    (record,) = records(tmp_path / "spool")
    assert (record["_dspark"]["status"], record["_dspark"]["error"]["type"]) == (500, "EngineDeadError")


def test_a_file_that_can_not_be_read_makes_no_spool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none"), "--spool", str(tmp_path / "spool")]) == 2
    assert "DSPARK_JSON_INVALID_OPTION" in capsys.readouterr().err
    assert not (tmp_path / "spool").exists()
