"""``dspark-json parse``: the corpus through the command, records and responses, and lines that are none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dspark_json.cli.main import main

COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "parse"]
TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden" / "v1" / "spool" / "lanes" / "0000"
CASES = [
    json.loads(line) for line in (TESTS / "corpus" / "content.jsonl").read_text(encoding="utf-8").split("\n") if line
]


def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *map(str, arguments)], input=stdin, capture_output=True)


def outcomes(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def parsed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["parse", *map(str, arguments)]) == 0
    return outcomes(capsys.readouterr().out)


def schema_file(folder: Path, schema: object) -> Path:
    file = folder / "content.json"
    file.write_text(json.dumps(schema), encoding="utf-8")
    return file


def exactly(value: Any) -> Any:
    """A value that is equal only to one of the same types: 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {name: exactly(item) for name, item in value.items()}
    if isinstance(value, list):
        return [exactly(item) for item in value]
    return type(value).__name__, value


def as_the_case_says(case: dict[str, Any], made: dict[str, Any]) -> None:
    assert set(made) == {"parsed", "status", "rescued"}
    assert (made["parsed"], made["status"]) == (case["parsed"], case["status"])
    if case["rescued"] != "any":
        assert made["rescued"] == case["rescued"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_corpus_through_the_command(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = tmp_path / "contents"
    contents.write_text(json.dumps(case["content"]) + "\n", encoding="utf-8")
    schema = schema_file(tmp_path, case["schema"])
    reason = [] if case["finish_reason"] is None else ["--finish-reason", case["finish_reason"]]
    made = parsed(capsys, contents, "--content", "--content-schema", schema, *reason)
    assert len(made) == 1
    as_the_case_says(case, made[0])


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_corpus_as_responses(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"index": 0, "message": {"content": "{"}, "finish_reason": "stop"}
    choice = {"index": 1, "message": {"content": case["content"]}, "finish_reason": case["finish_reason"]}
    responses = tmp_path / "responses"
    responses.write_text(json.dumps({"id": "x", "choices": [other, choice]}), encoding="utf-8")
    made = parsed(capsys, responses, "--content-schema", schema_file(tmp_path, case["schema"]))
    assert [(one.pop("seq"), one.pop("index")) for one in made] == [(None, 0), (None, 1)]
    as_the_case_says(case, made[1])


def test_the_corpus_through_real_processes(tmp_path: Path) -> None:
    by_schema: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if case["finish_reason"] == "stop":
            by_schema.setdefault(json.dumps(case["schema"]), []).append(case)
    most = sorted(by_schema.items(), key=lambda item: -len(item[1]))[:3]
    for schema, cases in most:
        lines = "".join(json.dumps(case["content"], ensure_ascii=False) + "\n" for case in cases)
        done = run("-", "--content", "--content-schema", schema, "--finish-reason", "stop", stdin=lines.encode())
        assert (done.returncode, done.stderr) == (0, b"")
        made = outcomes(done.stdout)
        assert len(made) == len(cases)
        for case, one in zip(cases, made, strict=True):
            as_the_case_says(case, one)


@pytest.mark.parametrize(
    ("ddl", "content", "printed"),
    [
        ("a BIGINT, b DOUBLE", '{"a": 9223372036854775807, "b": 1}', '{"a":9223372036854775807,"b":1.0}'),
        ("a BIGINT, b DOUBLE", '{"a": 1e3, "b": 0.1}', '{"a":1000,"b":0.1}'),
        ("a INT, b BOOLEAN", '{"a": 1.0, "b": true}', '{"a":1,"b":true}'),
        ("a DOUBLE", '{"a": 1e22}', '{"a":1e+22}'),
        ("a STRING", '{"a": "日本 \\ud83d\\ude00"}', '{"a":"日本 😀"}'),
        ("a STRING", '{"a": {"b":  2.50}}', '{"a":"{\\"b\\":  2.50}"}'),
        ("MAP<STRING, BIGINT>", '{"x": 1, "y": null}', '{"x":1,"y":null}'),
        ("ARRAY<STRUCT<m: MAP<STRING, ARRAY<BIGINT>>>>", '[{"m": {"k": [1]}}, null]', '[{"m":{"k":[1]}},null]'),
        ("`a b` BIGINT, `A B` BIGINT", '{"a b": 1, "A B": 2}', '{"a_b":1,"A_B_2":2}'),
        ("BIGINT", "7", "7"),
        ("STRING", '{"a": 1}', '"{\\"a\\": 1}"'),
    ],
)
def test_a_value_is_printed_exactly_as_its_column_has_it(
    ddl: str, content: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = tmp_path / "contents"
    contents.write_text(json.dumps(content), encoding="utf-8")
    assert main(["parse", str(contents), "--content", "--content-schema", ddl]) == 0
    assert capsys.readouterr().out == f'{{"parsed":{printed},"status":"ok","rescued":null}}\n'


def test_what_is_rescued_is_printed_as_it_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = tmp_path / "contents"
    content = '{"a": 12345678901234567890, "x": {\n "y": 1e999,\r\n "é": 2.50}, "c.d": "\u2028"}'
    contents.write_text(json.dumps(content), encoding="utf-8")
    assert main(["parse", str(contents), "--content", "--content-schema", "a BIGINT"]) == 0
    assert capsys.readouterr().out == (
        '{"parsed":{"a":null},"status":"mismatch","rescued":{"a":12345678901234567890,'
        '"x":{  "y": 1e999,   "é": 2.50},"[\'c.d\']":"\\u2028"}}\n'
    )


@pytest.mark.parametrize("ending", ["\n", ""])
def test_a_line_that_is_no_content_gets_an_error_and_the_others_their_values(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [b'"1"', b"{", b"", b'{"a": 1}', b"\xff\xfe", b"null", b'"' + b"\x00" + b'"', b'"\xff"', b'"2"\r']
    contents = tmp_path / "contents"
    contents.write_bytes(b"\n".join(lines) + ending.encode())
    assert main(["parse", str(contents), "--content", "--content-schema", "BIGINT"]) == 0
    said = capsys.readouterr()
    made = outcomes(said.out)
    assert [one["status"] for one in made] == ["ok", None, None, None, "missing", None, "invalid", "ok"]
    assert [one["parsed"] for one in made] == [1, None, None, None, None, None, None, 2]
    assert [one["error"] for one in made if "error" in one] == [
        f"DSPARK_JSON_MALFORMED_RECORD: line {number} is neither a JSON string nor null" for number in (2, 4, 5, 7)
    ]
    assert said.err == "dspark-json: 4 of 8 lines can't be read\n"


def test_a_segment_gives_a_line_for_each_choice_with_the_number_of_its_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    segment = min(GOLDEN.glob("*.ndjson"))
    records = [json.loads(line) for line in segment.read_bytes().split(b"\n") if line]
    made = parsed(capsys, segment, "--content-schema", "STRING")
    expected = [
        (record["_dspark"]["seq"], index)
        for record in records
        for index in ([choice["index"] for choice in record.get("choices") or []] or [None])
    ]
    assert [(one["seq"], one["index"]) for one in made] == expected
    assert all("error" in one for one in made if one["index"] is None)


def test_records_that_are_none_or_have_no_choice_get_an_error_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        '{"_dspark":{"seq":4,"lane":"0000","status":400},"error":{"message":"too long","code":400}}',
        "not a record",
        "[1]",
        '{"_dspark":{"seq":5,"lane":"0000"},"choices":[null,{"index":3,"text":"{\\"a\\": 1} bye"}]}',
        '{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}',
        "{}",
    ]
    records = tmp_path / "records"
    records.write_text("\n".join(lines))
    made = parsed(capsys, records, "--content-schema", "a BIGINT")
    shown = [(one["seq"], one["index"], one["parsed"], one["status"], one.get("error")) for one in made]
    assert shown == [
        (4, None, None, None, "line 1: too long"),
        (None, None, None, None, "DSPARK_JSON_MALFORMED_RECORD: line 2 is not a JSON object"),
        (None, None, None, None, "DSPARK_JSON_MALFORMED_RECORD: line 3 is not a JSON object"),
        (5, 0, None, None, "line 4: the choice is null"),
        (5, 3, {"a": 1}, "trailing_text", None),
        (None, 0, None, None, None),
        (None, None, None, None, "line 6: the answer has no choices"),
    ]


@pytest.mark.parametrize(("seq", "shown"), [("9" * 19, 10**19 - 1), ("1" * 5000, None), ("-1", None), ("1.0", None)])
def test_a_number_that_no_record_can_bear_is_null(
    seq: str, shown: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records"
    records.write_text('{"_dspark":{"seq":' + seq + '},"choices":[{"message":{"content":"1"}}]}')
    assert [one["seq"] for one in parsed(capsys, records, "--content-schema", "BIGINT")] == [shown]


def test_a_record_that_was_cut_off_is_truncated_not_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = tmp_path / "records"
    records.write_text('{"_dspark":{"seq":1,"completed":false},"choices":[{"message":{"content":"{\\"a\\":"}}]}')
    assert parsed(capsys, records, "--content-schema", "a BIGINT")[0]["status"] == "truncated"


@pytest.mark.parametrize(("reason", "status"), [(None, "invalid"), ("length", "truncated"), ("abort", "truncated")])
def test_the_finish_reason_tells_truncated_from_invalid(
    reason: str | None, status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = tmp_path / "contents"
    contents.write_text(json.dumps('{"a": '))
    given = [] if reason is None else ["--finish-reason", reason]
    assert parsed(capsys, contents, "--content", "--content-schema", "a BIGINT", *given)[0]["status"] == status


def test_strict_repairs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = tmp_path / "contents"
    contents.write_text(json.dumps("```json\n1\n```"))
    common = [contents, "--content", "--content-schema", "BIGINT", "--repair"]
    assert parsed(capsys, *common, "auto")[0]["status"] == "fenced"
    assert parsed(capsys, *common, "strict")[0]["status"] == "invalid"


@pytest.mark.parametrize(("name", "text"), [("s.ddl", "a BIGINT"), ("s.sql", "a BIGINT\n"), ("s", "a BIGINT")])
def test_the_schema_may_stand_in_a_file_of_ddl(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "contents").write_text('"{\\"a\\": 1}"')
    made = parsed(capsys, tmp_path / "contents", "--content", "--content-schema", tmp_path / name)
    assert made[0]["parsed"] == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/no/such/file", "--content-schema", "a BIGINT"], 'DSPARK_JSON_INVALID_OPTION: "/no/such/file" can\'t be'),
        (["/", "--content-schema", "a BIGINT"], "Is a directory"),
        (["-", "--content-schema", "/no/such/schema.json"], "DSPARK_JSON_CONTENT_SCHEMA: "),
        (["-", "--content-schema", "a DECIMAL"], "DSPARK_JSON_CONTENT_SCHEMA: "),
        (["-", "--content-schema", "{"], "DSPARK_JSON_CONTENT_SCHEMA: "),
        (["-", "--content-schema", "a BIGINT", "--engine", "warp"], "DSPARK_JSON_ENGINE_UNAVAILABLE: "),
        (["-", "--content-schema", "a BIGINT", "--finish-reason", "stop"], "DSPARK_JSON_INVALID_OPTION: "),
    ],
)
def test_what_can_not_be_read_is_a_named_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parse", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_a_live_pipe_is_answered_line_by_line() -> None:
    with subprocess.Popen(
        [*COMMAND, "-", "--content", "--content-schema", "BIGINT"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (1, 2):
            process.stdin.write(b'"%d"\n' % number)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["parsed"] == number
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_reader_that_leaves_ends_it_in_silence(tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    contents.write_text(f'"1{" " * 1000}"\n' * 3_000)
    command = [*COMMAND, str(contents), "--content", "--content-schema", "BIGINT"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_a_huge_content_goes_through_in_bounded_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = tmp_path / "contents"
    contents.write_text(json.dumps(json.dumps({"a": "x" * (20 << 20)})) + '\n"{}"\n')
    started = time.monotonic()
    made = parsed(capsys, contents, "--content", "--content-schema", "a STRING")
    assert [len(one["parsed"]["a"] or "") for one in made] == [20 << 20, 0]
    assert time.monotonic() - started < 30


def test_values_are_printed_in_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "-", "--content", "--content-schema", "STRING"]
    done = subprocess.run(command, input='"\\"é\\""'.encode(), capture_output=True, env=environment)
    assert json.loads(done.stdout)["parsed"] == "é"


def test_an_answer_of_the_responses_api_is_parsed_by_its_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "responses"
    parts = [{"type": "output_text", "text": '{"a": '}, {"type": "output_text", "text": "7}"}]
    answer = {"object": "response", "status": "completed", "output": [{"type": "message", "content": parts}]}
    file.write_text("\ufeff" + json.dumps(answer) + "\n" + json.dumps({"output": 5}), encoding="utf-8")
    made = parsed(capsys, file, "--content-schema", "a BIGINT")
    assert (made[0]["parsed"], made[0]["status"]) == ({"a": 7}, "ok")
    assert made[1]["error"] == "line 2: the answer has no choices"
