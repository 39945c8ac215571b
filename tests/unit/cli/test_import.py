"""``dspark-json import``: answers and batches become records; what can't be imported is said, all else is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_support import rows_of_both_engines
from unit.capture.driving import lines, records

from dspark_json.cli.main import main

COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "import"]
TESTS = Path(__file__).parents[2]
ANSWERS = (TESTS / "fixtures/vllm/answers.ndjson").read_text(encoding="utf-8").splitlines()

Json = dict[str, Any]
CHAT: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_764_400_000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}],
}
TEXT: Json = {
    "id": "cmpl-1",
    "object": "text_completion",
    "choices": [{"index": 0, "text": "{}", "finish_reason": "stop"}],
}
RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_764_400_000.5,
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}],
    "instructions": "SECRET",
}

EXCHANGES: tuple[Json, ...] = (
    {"path": "/v1/x", "request": {}, "chunks": []},
    {"path": "/v1/x", "chunks": ["{}"]},
    {"path": "/v1/x", "chunks_latin1": ["{}"]},
    {"path": "/v1/x", "request": "{}", "messages": []},
    {"request": {"prompt": "x"}, "body": "{}"},
    {"request": {"prompt": "x"}, "events": []},
)


def batch(body: object, status: int = 200, *, error: object = None, custom_id: object = "req-1") -> Json:
    response = {"status_code": status, "request_id": "vllm-batch-9", "body": body}
    return {"id": "vllm-8", "custom_id": custom_id, "response": response, "error": error}


def imported(
    folder: Path, capsys: pytest.CaptureFixture[str], *written: Json | str, bad: int = 0
) -> tuple[list[Json], str]:
    """The records that a file of these lines becomes, and what the command said beside its result."""
    file = folder / "file.jsonl"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in written), "utf-8")
    assert main(["import", str(file), "--spool", str(folder / "spool"), "--json"]) == (1 if bad else 0)
    told = capsys.readouterr()
    counts = json.loads(told.out)
    found = records(folder / "spool")
    assert (counts["imported"], counts["not_imported"]) == (len(found), bad)
    assert counts["lines"] == len(found) + bad
    return found, told.err


def test_answers_of_every_route_keep_all_their_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = imported(tmp_path, capsys, CHAT, TEXT, RESPONSE)
    metas = [record.pop("_dspark") for record in found]
    choices = found[2].pop("choices")
    assert found == [CHAT, TEXT, {**RESPONSE, "instructions": None}]
    assert (choices[0]["message"]["content"], choices[0]["finish_reason"]) == ("{}", "length")
    assert [meta["path"] for meta in metas] == ["/v1/chat/completions", "/v1/completions", "/v1/responses"]
    for meta, answer in zip(metas, (CHAT, TEXT, RESPONSE), strict=True):
        assert (meta["completed"], meta["disconnected"], meta["status"]) == (True, False, 200)
        assert (meta["request_id"], meta["request"], meta["duration_ms"]) == (answer["id"], None, None)
    assert [meta["received_at"] for meta in metas[::2]] == [1_764_400_000_000_000, 1_764_400_000_500_000]


def test_real_answers_become_the_rows_that_a_server_would_have_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = imported(tmp_path, capsys, *ANSWERS)
    assert len(found) == 400
    for record, text in zip(found, ANSWERS, strict=True):
        del record["_dspark"]
        assert record == json.loads(text)
    rows = rows_of_both_engines(lines(tmp_path / "spool"))
    assert {row["_rescued_data"] for row in rows} == {None}
    assert [row["id"] for row in rows] == [json.loads(text)["id"] for text in ANSWERS]


def test_the_output_of_a_batch_has_its_custom_id_as_the_request_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = imported(
        tmp_path,
        capsys,
        batch(CHAT),
        batch(RESPONSE, custom_id="日"),
        batch(TEXT, custom_id=None),
        batch(CHAT, custom_id=7),
    )
    assert [record["_dspark"]["request_id"] for record in found] == ["req-1", "日", "vllm-batch-9", "7"]
    assert [record["_dspark"]["completed"] for record in found] == [True] * 4
    assert [record["id"] for record in found] == ["chatcmpl-1", "resp_1", "cmpl-1", "chatcmpl-1"]


def test_numbers_of_a_batch_stay_as_they_were_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps(CHAT)[:-1] + ', "n": [1.50, 1e3, 123456789012345678901234567890], "body": {"x": 1.0}}'
    line = '{"custom_id": "\\"body\\": {", "body": {"y": 1}, "response": {"status_code": 200, "body" : ' + body + "}}"
    imported(tmp_path, capsys, line)
    (kept,) = lines(tmp_path / "spool")
    assert b"[1.50, 1e3, 123456789012345678901234567890]" in kept
    assert b'"body": {"x": 1.0}' in kept


@pytest.mark.parametrize(
    ("written", "status", "error"),
    [
        (batch(None, 400, error={"error": {"message": "bad", "type": "T", "param": None, "code": 400}}), 400,
         {"message": "bad", "type": "T", "code": "400"}),
        (batch(None, 400, error="Request must not be sent in stream mode"), 400,
         {"message": "Request must not be sent in stream mode", "type": None, "code": None}),
        ({"custom_id": "req-1", "response": None, "error": {"code": "batch_expired", "message": "too late"}}, None,
         {"message": "too late", "type": None, "code": "batch_expired"}),
        (batch({"error": {"message": "in the body", "code": 404}}, 404), 404,
         {"message": "in the body", "type": None, "code": "404"}),
        (batch(CHAT, 500, error={"message": "beside the body"}), 500,
         {"message": "beside the body", "type": None, "code": None}),
        ({"error": {"message": "alone", "type": "T", "code": 503}}, 503,
         {"message": "alone", "type": "T", "code": "503"}),
        ({"object": "error", "message": "old", "type": "T", "code": 400}, 400,
         {"message": "old", "type": "T", "code": "400"}),
    ],
)  # fmt: skip
def test_errors_are_imported_as_answers_of_failed_requests(
    written: Json, status: int | None, error: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,), _ = imported(tmp_path, capsys, written)
    meta = record["_dspark"]
    assert (meta["status"], meta["error"], meta["completed"]) == (status, error, False)
    if "custom_id" in written:
        assert meta["request_id"] == "req-1"
    (row,) = rows_of_both_engines(lines(tmp_path / "spool"))
    assert row["error"]["message"] == error["message"]


def test_a_body_that_is_a_text_is_kept_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (record,), _ = imported(tmp_path, capsys, batch("Bad Gateway", 502))
    assert (record["_dspark"]["body"], record["_dspark"]["status"]) == ("Bad Gateway", 502)


def test_lines_that_are_none_are_told_with_their_number_and_the_others_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [
        ("{", "not JSON"),
        ("[1]", "an array begins there"),
        ("7", "no object"),
        ("{}", "neither choices nor an output nor an error"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {}}, "a request of a batch"),
        ({"custom_id": "a", "response": 5}, "its response is no object"),
        (batch(None), "neither a body nor an error"),
        (batch({"object": "list", "data": []}), 'an object "list"'),
        ({**CHAT, "object": "chat.completion.chunk"}, "a chunk of a stream"),
        ({"_dspark": {}, **CHAT}, "a record of a spool"),
        *((exchange, "a recorded exchange. Use `dspark-json replay`") for exchange in EXCHANGES),
        (
            '[{"path": "/v1/x", "request": {}, "chunks": []}]',
            "an array of exchanges is for `dspark-json replay`",
        ),
        ("nan", "not JSON"),
        ('{"choices": [{"message": {}, "n": NaN}]}', "not JSON"),
    ]
    found, told = imported(tmp_path, capsys, CHAT, *(one for one, _ in bad), "", "  ", TEXT, bad=len(bad))
    assert [record["id"] for record in found] == ["chatcmpl-1", "cmpl-1"]
    said = told.splitlines()
    for number, (_, why) in enumerate(bad, start=2):
        (line,) = (one for one in said if f" line {number} " in one)
        assert "DSPARK_JSON_RECORDED_LINE" in line
        assert why in line


def test_an_answer_that_a_log_has_beside_its_request_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = {"request": {"messages": []}, "path": "/v1/x", "messages": [], "body": "x"}
    found, _ = imported(tmp_path, capsys, {**logged, "response": {"body": CHAT}}, {**logged, **CHAT})
    assert [record["id"] for record in found] == ["chatcmpl-1"] * 2


def test_many_bad_lines_are_counted_and_not_all_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = imported(tmp_path, capsys, *["x"] * 500, CHAT, bad=500)
    assert len(told.splitlines()) < 30


def test_names_that_are_no_settings_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("dspark_capture_requests", "full")
    (record,), told = imported(tmp_path, capsys, RESPONSE)
    assert 'dspark_capture_requests is not a setting of the hook. Did you mean "DSPARK_CAPTURE_REQUESTS"?' in told
    assert record["instructions"] is None


def test_what_answers_echo_is_kept_where_one_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPARK_CAPTURE_REQUESTS", "full")
    (record,), _ = imported(tmp_path, capsys, RESPONSE)
    assert record["instructions"] == "SECRET"


def test_an_import_adds_to_a_spool_and_deletes_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPARK_SEGMENT_MB", "1")
    monkeypatch.setenv("DSPARK_RETENTION_MB", "2")
    large = json.dumps({**CHAT, "pad": "x" * 100_000})
    file = tmp_path / "file"
    file.write_text("\n".join([large] * 50), "utf-8")
    for times in (1, 2):
        assert main(["import", str(file), "--spool", str(tmp_path / "spool")]) == 0
        told = capsys.readouterr().out
        where = f"{tmp_path / 'spool'}, lane 0000, records {50 * (times - 1)} to {50 * times - 1}"
        assert told == f"imported 50 of 50 answers into {where}\n"
        assert len(records(tmp_path / "spool")) == 50 * times


def test_standard_input_is_read_piece_by_piece_and_a_line_of_any_length_costs_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "first"
    file.write_text(json.dumps(CHAT) + "\n", "utf-8")
    script = (
        'ulimit -v 700000; { cat "$1"; head -c 900000000 /dev/zero | tr \'\\0\' x; echo; cat "$1"; } | '
        '"$2" -m dspark_json.cli.main import - --spool "$3" --json'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", file, sys.executable, tmp_path / "spool"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "line 2 can't be imported: it is longer than DSPARK_MAX_RECORD_MB" in done.stderr
    assert json.loads(done.stdout)["imported"] == 2
    assert [record["id"] for record in records(tmp_path / "spool")] == ["chatcmpl-1"] * 2


def test_what_is_imported_can_be_read_before_the_input_ends(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "-", "--spool", tmp_path / "spool"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        running.stdin.write(json.dumps(CHAT).encode() + b"\n")
        running.stdin.flush()
        while not (tmp_path / "spool/spool.json").exists() or not records(tmp_path / "spool"):
            assert running.poll() is None
        running.stdin.close()
        assert running.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["/no/such/file", "--spool", "{}.spool"], "DSPARK_JSON_INVALID_OPTION"),
        (["{}", "--spool", "/proc/nothing"], "DSPARK_JSON_SPOOL"),
    ],
)
def test_what_fails_as_a_whole_is_told_in_one_line(
    arguments: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps(CHAT), "utf-8")
    assert main(["import", *(one.format(file) for one in arguments)]) == 2
    assert code in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file]
