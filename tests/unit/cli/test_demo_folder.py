"""The demo's folder: only what a demo wrote is ever removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dspark_json.cli.demo.folder import DemoFolder
from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path


def test_an_earlier_demos_files_go_and_others_stay(tmp_path: Path) -> None:
    first = DemoFolder.prepare(tmp_path / "demo")
    (first.table / "_delta_log").mkdir(parents=True)
    first.write_key("secret")
    (first.path / "notes.txt").write_text("mine")
    second = DemoFolder.prepare(tmp_path / "demo")
    assert not second.table.exists()
    assert sorted(file.name for file in second.path.iterdir()) == [".dspark-json-demo", "notes.txt", "spark"]


def test_a_folder_with_somebody_elses_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    with pytest.raises(InvalidOptionError, match='holds "table", which no earlier demo wrote'):
        DemoFolder.prepare(tmp_path)
    assert (tmp_path / "table").is_dir()


def test_the_key_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    assert DemoFolder.prepare(tmp_path).write_key("secret").stat().st_mode & 0o777 == 0o600
