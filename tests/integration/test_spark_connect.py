"""A client of Spark Connect has the same rows and errors as a classic session: the connector is on the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .spark_support import write

for package in ("grpc", "pandas"):
    pytest.importorskip(package, reason="Spark Connect needs pyspark[connect], which make test-spark has")
pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]


def test_a_client_reads_batches_and_streams_and_sees_errors_by_their_code(tmp_path: Path) -> None:
    ids = write(tmp_path / "spool", 10, lanes=2)
    (tmp_path / "scratch").mkdir()
    # Without what the session of other tests has set for its own workers.
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("connect_job.py"), tmp_path / "spool", tmp_path / "scratch"],
        capture_output=True,
        text=True,
        env={**plain, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert sorted(json.loads(row)["id"] for row in found["rows"]) == sorted(ids)
    assert '"name":"choices"' in found["schema"]
    assert found["stream"] == sorted(ids)
    assert found["batches"] == 3
    assert found["adapter"] == "jvm"
    assert 0 < found["arrow_bytes"] < 10_000  # only the columns that are selected
    # Connect hands options over in lower case.
    assert 'DSPARK_JSON_UNKNOWN_OPTION: "maxrecordpertrigger" is not an option' in found["error"]
    assert 'Did you mean "maxRecordsPerTrigger"?' in found["error"]
