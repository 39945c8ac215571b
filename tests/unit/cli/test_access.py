"""How a command comes to a spool: what it says of the key that it was given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from serving import free_port, hook, serving
from unit.source.spools import write

from dspark_json.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def port() -> Iterator[int]:
    """A port whose default folder holds a spool of three records."""
    port = free_port()
    write(place(port), 3)
    yield port
    shutil.rmtree(place(port), ignore_errors=True)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "key").write_text("s3cret\n")
    return str(tmp_path / "key")


def place(port: int) -> Path:
    return Path(f"/dev/shm/dspark_vllm_{port}")


@pytest.mark.parametrize(
    ("theirs", "status", "told"),
    [("s3cret", 0, ""), (None, 0, "has no key"), ("another", 2, "refuses the key that was sent")],
)
def test_a_wrong_key_is_told_even_where_the_folder_needs_none(
    port: int, key_file: str, capsys: pytest.CaptureFixture[str], theirs: str | None, status: int, told: str
) -> None:
    with serving(hook(place(port), theirs), port) as address:
        assert main(["tail", address, "--key-file", key_file]) == status
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == (0 if status else 3)
    assert told in said.err
    assert bool(told) == bool(said.err)
    assert "s3cret" not in said.err


def test_a_key_for_a_folder_is_said_to_be_of_no_use(
    port: int, key_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", str(place(port)), "--key-file", key_file]) == 0
    assert "is not used" in capsys.readouterr().err
