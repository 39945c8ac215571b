"""The documentation says what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_pages_made_from_tables_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts/make_docs.py", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_contributors_map_stays_short_and_names_only_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 90
    for word in text.split("`")[1::2]:
        if word.endswith(".py") or (word.endswith("/") and " " not in word):
            assert (ROOT / word).exists(), word
