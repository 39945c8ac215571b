"""The job of the Spark image: a folder's answers are in the table, and a second run adds what is new."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dspark_json.replay.process import RunningServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
def test_the_job_puts_a_servers_answers_into_the_table_once(tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool"), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": "k"}
    table = tmp_path / "answers"
    with RunningServer(settings=settings, log=tmp_path / "server.log") as server:
        for source in (str(tmp_path / "spool"), server.address.replace("http://127.0.0.1", "dns+http://localhost")):
            asked = subprocess.run([sys.executable, ROOT / "docker/ask.py", server.address, "2"])
            assert asked.returncode == 0
            ran = subprocess.run(
                [sys.executable, ROOT / "docker/answers.py"],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env={
                    **os.environ,
                    "SOURCE": source,
                    "TABLE": str(table if source.startswith("/") else tmp_path / "again"),
                    "TRIGGER": "once",
                    "OPTIONS": '{"contentSchema":"order_id STRING, amount DOUBLE"}',
                    "DSPARK_API_KEY": "k",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_SUBMIT_ARGS": f"--conf spark.jars.ivy={ROOT / 'build/ivy'} --conf spark.ui.enabled=false "
                    "--conf spark.sql.shuffle.partitions=2 --master local[2] pyspark-shell",
                },
            )
            assert ran.returncode == 0, ran.stderr[-4000:]
    rows = [pq.read_table(file, columns=["id"]).num_rows for file in table.glob("*.parquet")]
    again = [pq.read_table(file, columns=["id"]).num_rows for file in (tmp_path / "again").glob("*.parquet")]
    assert (sum(rows), sum(again)) == (2, 4)
