"""What a command needs beside this package: other Python packages and Java."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from dspark_json.errors import MissingPackageError
from dspark_json.extras import installing

OLDEST_JAVA: Final = 17


def require_packages(*names: str, extra: str) -> None:
    """Raise ``MissingPackageError`` naming ``extra`` if one of the packages can't be imported."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"this command needs {', '.join(missing)}, not installed here",
            remedy=f"Install it: {installing(extra)}.",
        )


def command() -> str:
    """How this command is typed here: its name, or its path where the name is not on the PATH."""
    if shutil.which("dspark-json") is not None:
        return "dspark-json"
    beside = Path(sys.executable).parent / "dspark-json"
    return str(beside) if beside.exists() else f"{sys.executable} -m dspark_json"


def require_java() -> None:
    """Raise ``MissingPackageError`` unless Java 17 or newer would be found by Spark."""
    remedy = f"Install a JDK {OLDEST_JAVA} (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME."
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        raise MissingPackageError("Spark needs Java, and there is no java on the PATH", remedy=remedy)
    try:
        # `java -version` speaks on standard error, since ever.
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except OSError:
        raise MissingPackageError(f"Spark needs Java, and {command} can't be run", remedy=remedy) from None
    version = java_major(answer.stderr + answer.stdout)
    if version is None or version < OLDEST_JAVA:
        found = "something else" if version is None else f"Java {version}"
        raise MissingPackageError(f"Spark needs Java {OLDEST_JAVA} or newer; {command} is {found}", remedy=remedy)


def java_major(text: str) -> int | None:
    """The major version in what ``java -version`` says (``"1.8.0_402"`` is 8, ``"17.0.15"`` is 17)."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
