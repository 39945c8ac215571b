"""What a user sees whose Spark runs another Python than the one this package is installed in."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from .spark_support import HAS_PYTHON_SOURCE, needs_python_source

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.format("dspark-json").load("/tmp")
"""


def run(python: str | Path) -> str:
    """What the program says, without what the session of other tests has set for its own workers."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHONPATH"))
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**plain, "PYSPARK_PYTHON": str(python)},
    )
    assert ran.returncode != 0
    return ran.stderr


@pytest.mark.spark
@pytest.mark.skipif(HAS_PYTHON_SOURCE, reason="this Spark has all that the Python source needs")
def test_a_spark_that_is_too_old_says_so_and_names_the_connector() -> None:
    said = run(sys.executable)
    assert "DSPARK_JSON_MISSING_PACKAGE: Spark 4." in said
    assert "is too old for the Python source of dspark-json. Add the connector's jar" in said


@pytest.mark.spark
@needs_python_source
def test_a_python_without_our_requirements_is_named_with_the_remedy(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare/bin/python"
    site = subprocess.run(
        [bare, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for package in ("pyarrow", "pyspark"):  # what any Python data source needs
        source = subprocess.run(
            [sys.executable, "-c", f"import {package}; print({package}.__path__[0])"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        (Path(site) / package).symlink_to(source)
    said = run(bare)
    assert f"DSPARK_JSON_MISSING_PACKAGE: Spark runs {bare}, which has no package orjson. Set PYSPARK_PYTHON" in said
    assert "ModuleNotFoundError" not in said
