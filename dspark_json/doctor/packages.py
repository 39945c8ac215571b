"""Checks of what is installed: Python, Java, Spark, Delta, the jar, the native engine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import dspark_json
from dspark_json.doctor.check import Check, failed, fine, skipped, warned
from dspark_json.errors import EngineUnavailableError
from dspark_json.extras import installing

__all__ = ["check_delta", "check_jar", "check_java", "check_native", "check_python", "check_spark"]

_OLDEST_PYTHON: Final = (3, 11)
_OLDEST_JAVA: Final = 17
_SPARK: Final = (4, 2)
_DELTA: Final = (4, 4)
_JAVA_REMEDY: Final = "Install a JDK 17 (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME."
_READER_ONLY: Final = "not installed; needed only where Spark reads"


def check_python() -> Check:
    """``python``: 3.11 or newer."""
    found = f"{platform.python_version()} ({sys.executable}), dspark-json {dspark_json.__version__}"
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return failed("python", found, "Use Python 3.11 or newer.")
    return fine("python", found)


def check_native() -> Check:
    """``native_engine``: the Rust module is part of this installation."""
    from dspark_json.engine.native import NativeEngine

    try:
        NativeEngine()
    except EngineUnavailableError as error:
        return failed("native_engine", error.message, error.remedy)
    return fine("native_engine", "loads")


def check_java() -> Check:
    """``java``: 17 or newer, where Spark is installed."""
    needed = _version("pyspark") is not None
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        why = "there is no java on the PATH, and JAVA_HOME is not set"
        return failed("java", why, _JAVA_REMEDY) if needed else skipped("java", f"{why}; {_READER_ONLY}")
    try:
        # `java -version` speaks on standard error.
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed("java", f"{command} can't be run: {error}", _JAVA_REMEDY)
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        return failed("java", f"{command} does not say its version", _JAVA_REMEDY)
    if int(match[1]) < _OLDEST_JAVA:
        return failed("java", f"{command} is Java {match[1]}, and Spark needs {_OLDEST_JAVA}", _JAVA_REMEDY)
    return fine("java", f"{match[1]} ({command})")


def check_spark() -> Check:
    """``spark``: PySpark of the version that this one is made for."""
    found = _version("pyspark")
    if found is None:
        return skipped("spark", _READER_ONLY, installing("delta"))
    if _numbers(found)[:2] != _SPARK:
        remedy = f"{installing('spark')} installs the one that is tested."
        return failed("spark", f"{found}, and this version is made for {_dotted(_SPARK)}", remedy)
    return fine("spark", found)


def check_delta() -> Check:
    """``delta``: Delta Lake of the version that goes with Spark."""
    found = _version("delta-spark")
    if found is None:
        return skipped("delta", "not installed; needed only for Delta tables", installing("delta"))
    if _numbers(found)[:2] != _DELTA:
        return warned(
            "delta",
            f"{found}, tested is {_dotted(_DELTA)}",
            f"{installing('delta')} installs the one tested.",
        )
    return fine("delta", found)


def check_jar() -> Check:
    """``jar``: the JVM connector is part of this installation."""
    jars = sorted(Path(dspark_json.__file__).parent.rglob("dspark-json*.jar"))
    if not jars:
        return skipped("jar", "no jar of the JVM connector in this installation: Spark uses the Python data source")
    return fine("jar", ", ".join(str(jar) for jar in jars))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
