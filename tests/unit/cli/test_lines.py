"""Files that are given to commands as lines: what is compressed is told as such, with what to do about it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from dspark_json.cli.lines import line_batches
from dspark_json.cli.main import main
from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANSWER = json.dumps({"choices": [{"index": 0, "message": {"content": "{}"}, "finish_reason": "stop"}]}).encode() + b"\n"
COMMANDS = {
    "import": lambda file, spool: ["import", file, "--spool", spool],
    "replay": lambda file, spool: ["replay", file, "--spool", spool],
    "parse": lambda file, _: ["parse", file, "--content-schema", "a INT"],
}


def zipped(data: bytes) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("answers.jsonl", data)
        return file.getvalue()


# What has no packer in the standard library is the beginning of an empty file of that kind.
PACKED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, "zcat"),
    "bzip2": (bz2.compress, "bzcat"),
    "xz": (lzma.compress, "xzcat"),
    "zip": (zipped, "unzip -p"),
    "Zstandard": (lambda _: bytes.fromhex("28b52ffd240001000099e9d851"), "zstdcat"),
    "LZ4": (lambda _: bytes.fromhex("04224d186440a700000000"), "lz4cat"),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_compressed_file_is_told_as_one_whatever_its_name(
    kind: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack, tool = PACKED[kind]
    file = tmp_path / "an answer's.jsonl"
    file.write_bytes(pack(ANSWER))
    assert main(COMMANDS[command](str(file), str(tmp_path / "spool"))) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert f'DSPARK_JSON_INVALID_OPTION: "{file}" is compressed ({kind}). ' in told
    assert f"{tool} '{tmp_path}/an answer'\"'\"'s.jsonl' | dspark-json" in told
    assert not (tmp_path / "spool").exists()


def test_what_it_says_to_do_works(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(gzip.compress(ANSWER))
    main(["import", str(file), "--spool", str(tmp_path / "spool")])
    remedy = capfd.readouterr().err.partition(": ")[2].partition("`")[2].partition("`")[0]
    script = remedy.replace("dspark-json …", f"{sys.executable} -m dspark_json import --spool {tmp_path / 'spool'}")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("imported 1 of 1 answers")


def test_a_compressed_standard_input_is_told_however_slowly_it_comes(tmp_path: Path) -> None:
    script = '{ printf "\\037"; sleep 0.3; printf "\\213\\010\\000"; sleep 0.3; cat; } | "$0" -m dspark_json "$@"'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, "import", "-", "--spool", tmp_path / "spool"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "standard input is compressed (gzip)" in done.stderr
    assert "`… | zcat | dspark-json … -`" in done.stderr
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize("text", [b"", b"\n", b"{", b"\x1f", b"\x1f\n\x8b", b"\n\x1f\x8b\x08", b'"BZh"', b"(\xb5"])
def test_no_other_file_is_taken_for_compressed(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file.gz"
    file.write_bytes(text)
    found = [line.text for batch in line_batches(str(file)) for line in batch]
    assert found == [line for line in text.split(b"\n") if line.strip()]


def test_a_file_that_is_none_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="can't be read: Is a directory"):
        next(line_batches(str(tmp_path)))
