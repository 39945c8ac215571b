"""Folders of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from dspark_json.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, time
from pathlib import Path
from dspark_json.scratch import scratch_folder
with scratch_folder("x-", Path(sys.argv[1])) as folder:
    (folder / "held").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_folder_is_gone_with_its_block_and_that_of_a_killed_process_with_the_next_one(tmp_path: Path) -> None:
    other = tmp_path / "x-of another kind"
    shared = tmp_path / "x-shared"
    for folder, mode in ((other, 0o700), (shared, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = tmp_path / process.stdout.readline().strip()
        with scratch_folder("x-", tmp_path, starting_s=0) as mine:
            assert left.is_dir(), "its process lives"
            with scratch_folder("x-", tmp_path, starting_s=0):
                assert mine.is_dir(), "so does this one"
        assert not mine.exists()
        process.kill()
    with scratch_folder("x-", tmp_path):
        assert left.is_dir(), "so young a folder may be of one that starts"
    with scratch_folder("y-", tmp_path, starting_s=0):
        assert left.is_dir(), "another prefix"
    with scratch_folder("x-", tmp_path, starting_s=0):
        assert not left.exists()
    assert other.is_dir()
    assert shared.is_dir()
