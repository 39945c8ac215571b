"""The examples of the README run as they are printed, but for the places they name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dspark_json.replay.process import RunningServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}}}


def ask(address: str) -> str:
    """Send one request for an order; the id of its answer."""
    request = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "one order"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}},
    }
    response = httpx.post(f"{address}/v1/chat/completions", json=request, trust_env=False, timeout=30)
    return str(response.raise_for_status().json()["id"])


@pytest.mark.spark
def test_the_examples_of_the_readme_run_as_printed(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    settings = {"DSPARK_SPOOL": str(spool), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": "k"}
    with RunningServer(settings=settings, log=tmp_path / "server.log") as server:
        ids = [ask(server.address) for _ in range(3)]
        program = "\n".join(EXAMPLES)
        for printed, here in {
            "http://localhost:8000": server.address,
            "/dev/shm/dspark_vllm_8000": str(spool),
            "/tmp/answers": str(tmp_path / "answers"),
        }.items():
            assert printed in program
            program = program.replace(printed, here)
        ran = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "DSPARK_API_KEY": "k",
                "PYSPARK_SUBMIT_ARGS": f"--conf spark.jars.ivy={ROOT / 'build/ivy'} --conf spark.ui.enabled=false "
                "--conf spark.sql.shuffle.partitions=2 --master local[2] pyspark-shell",
            },
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    for answer in ids:
        assert ran.stdout.count(answer[:17]) == 2, ran.stdout  # once in the table, once in the typed rows
    assert "order_id" in ran.stdout
    assert "parse_status" in ran.stdout
