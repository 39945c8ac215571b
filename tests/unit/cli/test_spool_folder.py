"""A command that writes a spool leaves other people's folders alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_json.cli.main import main
from dspark_json.spool.layout import IDENTITY_FILE

ANSWER = (
    '{"id":"a","object":"chat.completion","choices":[{"index":0,"message":{"content":"{}"},"finish_reason":"stop"}]}'
)
EXCHANGE = '{"request":{"messages":[]},"body":"{}"}'
COMMANDS = pytest.mark.parametrize(("command", "line"), [("import", ANSWER), ("replay", EXCHANGE)])


def run(command: str, line: str, folder: Path, spool: Path) -> int:
    file = folder / "file.jsonl"
    file.write_text(line + "\n")
    return main([command, str(file), "--spool", str(spool)])


@COMMANDS
def test_a_folder_that_holds_other_things_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, line: str
) -> None:
    spool = tmp_path / "photos"
    spool.mkdir()
    for name in "abcd":
        (spool / f"{name}.jpg").touch()
    assert run(command, line, tmp_path, spool) == 2
    said = capsys.readouterr().err
    assert "DSPARK_JSON_SPOOL_FORMAT" in said
    assert 'holds other things ("a.jpg", "b.jpg", "c.jpg", …)' in said
    assert len(list(spool.iterdir())) == 4


@COMMANDS
@pytest.mark.parametrize("below", ["", "spool"])
def test_a_file_is_said_to_be_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, line: str, below: str
) -> None:
    (tmp_path / "photo.jpg").touch()
    assert run(command, line, tmp_path, tmp_path / "photo.jpg" / below) == 2
    said = capsys.readouterr().err
    assert (
        f"DSPARK_JSON_SPOOL_FORMAT: {tmp_path / 'photo.jpg' / below} is no folder. Name the folder of a spool" in said
    )


def test_what_keeps_an_import_from_its_spool_is_told_by_the_option_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", ANSWER, tmp_path, Path("/proc/nothing")) == 2
    said = capsys.readouterr().err
    assert "Check --spool." in said
    assert "DSPARK_SPOOL" not in said


@COMMANDS
@pytest.mark.parametrize("names", [[], ["lost+found"], ["lanes", "schemas"], [".spool.json.17.tmp"]])
def test_an_empty_folder_and_one_that_is_a_spool_are_taken(
    tmp_path: Path, command: str, line: str, names: list[str]
) -> None:
    spool = tmp_path / "spool"
    for name in names:
        (spool / name).mkdir(parents=True)
    assert run(command, line, tmp_path, spool) == 0
    (spool / "notes.txt").touch()  # whoever put that into a spool knows what it is
    assert run(command, line, tmp_path, spool) == 0
    assert (spool / IDENTITY_FILE).exists()
