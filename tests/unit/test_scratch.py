"""Folders of processes that were killed."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dspark_json.scratch import SHARED_MEMORY, scratch_folder

HOLDER = """
import sys, time
from dspark_json.scratch import scratch_folder
with scratch_folder(sys.argv[1], in_memory=sys.argv[2] == "True") as folder:
    (folder / "held").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""
# Folders come and go as fast as they can: sooner or later one is taken for left just before it is locked.
RACER = """
import sys, time
from dspark_json.scratch import scratch_folder
until = time.monotonic() + 1.5
while time.monotonic() < until:
    with scratch_folder(sys.argv[1]) as folder:
        (folder / "file").write_text("mine")
        time.sleep(0.0005)
        assert (folder / "file").read_text() == "mine"
"""


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One that no other test has; temporary files go to ``tmp_path``."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return f"dspark-test-{secrets.token_hex(4)}-"


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_folder_is_gone_with_its_block_and_that_of_a_killed_process_with_the_next_one(
    prefix: str, in_memory: bool
) -> None:
    command = [sys.executable, "-c", HOLDER, prefix, str(in_memory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch_folder(prefix) as mine:
            assert left.is_dir(), "its process lives"
            with scratch_folder(prefix):
                assert mine.is_dir(), "so does this one"
        assert not mine.exists()
        process.kill()
    with scratch_folder(f"{prefix}another-"):
        assert left.is_dir(), "another prefix"
    with scratch_folder(prefix, in_memory=not in_memory):
        assert not left.exists(), "wherever the next one is"


def test_a_folder_is_in_shared_memory_where_it_should_be(prefix: str, tmp_path: Path) -> None:
    if not SHARED_MEMORY.is_dir():
        pytest.skip("there is none here")
    with scratch_folder(prefix, in_memory=True) as folder, scratch_folder(prefix) as other:
        assert (folder.parent, other.parent) == (SHARED_MEMORY, tmp_path)


def test_folders_that_others_may_use_or_of_other_names_stay(prefix: str, tmp_path: Path) -> None:
    for name, mode in (("of another kind", 0o700), ("shared", 0o755)):
        (tmp_path / (prefix + name)).mkdir()
        (tmp_path / (prefix + name)).chmod(mode)
    (tmp_path / f"{prefix}file").touch()
    (tmp_path / f"{prefix}link").symlink_to(tmp_path)
    with scratch_folder(prefix) as folder:
        assert len(list(tmp_path.iterdir())) == 5
    assert not folder.exists()


def test_processes_that_begin_at_once_do_not_take_each_others_folders(prefix: str, tmp_path: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, prefix], stderr=subprocess.PIPE, text=True) for _ in range(6)
    ]
    for racer in racers:
        assert racer.communicate(timeout=60)[1] == ""
        assert racer.returncode == 0
    assert list(tmp_path.iterdir()) == []
