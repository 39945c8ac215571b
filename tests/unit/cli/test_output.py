"""What a command does where its output or input is full, closed or gone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_json.spool.record import Record
from dspark_json.spool.writer import LaneWriter, WriterSettings

COMMAND = shlex.join([sys.executable, "-m", "dspark_json.cli.main"])
GOLDEN = Path(__file__).parents[2] / "golden" / "v1" / "spool"
PARSE = "parse - --content --content-schema 'a INT'"


def shell(words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # argparse drops the errors of output that is not buffered
    return subprocess.run(["bash", "-c", f"{COMMAND} {words}"], input=stdin, capture_output=True, env=environment)


@pytest.mark.parametrize(
    "words", [f"tail {GOLDEN}", f"tail {GOLDEN} --json", f"schema {GOLDEN}", PARSE, "--version", "tail --help"]
)
@pytest.mark.parametrize(("to", "said"), [("/dev/full", b"No space left on device"), ("&-", b"is closed")])
def test_output_that_can_not_be_written_is_one_line_and_status_2(words: str, to: str, said: bytes) -> None:
    done = shell(f"{words} >{to}", b'"{}"\n')
    assert done.returncode == 2
    assert done.stderr.startswith(b"dspark-json: DSPARK_JSON_ERROR: standard output ")
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_error_after_some_output_keeps_both(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    writer = LaneWriter.open(spool, WriterSettings(segment_bytes=200, min_free_ratio=0.0))
    for number in range(4):
        writer.append([Record(b"", b'"id":"%d","pad":"%s"' % (number, b"x" * 150))])
    writer.close()
    data = sorted(spool.rglob("*.ndjson"))[2]
    data.write_bytes(data.read_bytes().replace(b"xx", b"xy"))
    done = shell(f"tail {spool} --json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["0", "1"]
    assert done.returncode == 2
    assert done.stderr.startswith(b"dspark-json: DSPARK_JSON_SPOOL_CORRUPT: ")


def test_a_closed_standard_input_is_one_line_and_status_2() -> None:
    done = shell(f"{PARSE} <&-")
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_closed_standard_error_puts_no_note_among_the_output() -> None:
    done = shell(f"{PARSE} 2>&-", b'"{}"\nno content\n')
    assert done.returncode == 0
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["ok", None]
    assert shell("tail /no/such/folder 2>&-").stdout == b""


def test_a_reader_that_leaves_is_no_error() -> None:
    assert shell(f"tail {GOLDEN} --json | true; exit ${{PIPESTATUS[0]}}").returncode in {0, 141}


def test_a_note_is_one_line_that_can_not_command_the_terminal(tmp_path: Path) -> None:
    done = shell(f"tail {shlex.quote(str(tmp_path / ('a' + chr(27) + ']0;x' + chr(10) + chr(0x9B) + 'b')))}")
    assert done.returncode == 2
    assert done.stderr.decode().rstrip("\n").isprintable()


def test_the_json_of_a_record_is_the_same_value_with_its_control_characters_escaped(tmp_path: Path) -> None:
    raw = '"a":"\x1b]0;pwned\x07\x7f\x00\x9b31m é\u2028",\t"b":[1 ,\t2]'
    writer = LaneWriter.open(tmp_path / "spool", WriterSettings(min_free_ratio=0.0))
    writer.append([Record(b"", raw.encode()), Record(b"", '"a":"é\u2028",\t"b":[1 ,\t2]'.encode())])
    writer.close()
    evil, good = shell(f"tail {tmp_path / 'spool'} --json").stdout.split(b"\n")[:2]
    assert not any((byte < 0x20 and byte != 9) or byte == 0x7F for byte in evil)
    assert json.loads(evil)["a"] == "\x1b]0;pwned\x07\x7f\x00\x9b31m é\u2028"
    assert json.loads(evil)["b"] == [1, 2]
    assert "\x9b" not in evil.decode()
    assert good + b"\n" == next((tmp_path / "spool").rglob("*.ndjson")).read_bytes().split(b"\n")[1] + b"\n"


def test_the_locale_has_no_part_in_it(tmp_path: Path) -> None:
    writer = LaneWriter.open(tmp_path / "spool", WriterSettings(min_free_ratio=0.0))
    writer.append([Record(b"", '"choices":[{"message":{"content":"é"}}]'.encode())])
    writer.close()
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    command = [*shlex.split(COMMAND), "tail", str(tmp_path / "spool")]
    assert "é" in subprocess.run(command, capture_output=True, env=environment).stdout.decode()
