"""Java's version, from what Java says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dspark_json.cli.packages import command, java_major, require_java
from dspark_json.errors import MissingPackageError


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("The operation couldn't be completed.", None),
    ],
)
def test_the_version_is_read_from_what_java_says(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_an_old_java_is_refused_by_its_number(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingPackageError, match="is Java 8"):
        require_java()


def test_the_command_is_named_as_it_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "dspark-json"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command() == "dspark-json"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert command() in {str(Path(sys.executable).parent / "dspark-json"), f"{sys.executable} -m dspark_json"}
