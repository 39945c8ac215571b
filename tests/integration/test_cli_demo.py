"""``dspark-json demo``, end to end: requests, hook, spool, Spark, Delta."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dspark_json.replay import RunningServer
from dspark_json.replay.recording import packaged_request

ROOT = Path(__file__).resolve().parents[2]


def demo(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dspark_json.cli.main", "demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)


def shows_both_schemas_typed(text: str) -> None:
    """The columns that each schema gives, side by side, under how many answers have which parse_status."""
    lines = text.splitlines()
    titles = next(number for number, line in enumerate(lines) if line.startswith("order: parse_status "))
    assert re.match(r"order: parse_status (\w+ \d+(, )?)+ +risk: parse_status (\w+ \d+(, )?)+", lines[titles])
    assert re.search(r"order: parse_status .*\bok [1-9].* risk: parse_status .*\bok [1-9]", lines[titles])
    columns = ["order_id", "amount", "paid", "currency", "items", "customer", "score", "risk_level", "reasons"]
    assert re.findall(r"\w+", lines[titles + 2]) == columns
    assert re.search(r"\[\{\"sku\":", "".join(lines[titles + 4 :]))


@pytest.mark.spark
def test_every_answer_is_in_the_table_once(tmp_path: Path) -> None:
    done = demo("--requests", 40, "--dir", tmp_path / "demo", "--json")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert {**counts, "seconds": 0} == {
        "requests": 40, "records": 40, "delta_rows": 40, "duplicates": 0, "missing": 0, "seconds": 0
    }  # fmt: skip
    assert counts["seconds"] > 0
    assert "rows in the table" in done.stderr
    assert "Spark reads with the JVM connector\n" in done.stderr
    shows_both_schemas_typed(done.stderr)
    assert "WARN" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "demo" / "table" / "_delta_log").glob("*.json"))
    assert list((tmp_path / "demo" / "checkpoint" / "commits").iterdir())


@pytest.mark.spark
def test_a_running_servers_earlier_records_are_left_out(tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool"), "DSPARK_API_KEY": "the-hooks-key"}
    key_file = tmp_path / "key"
    key_file.write_text("the-hooks-key\n")
    with RunningServer(arguments=("--speed", "4"), settings=settings, log=tmp_path / "server.log") as running:
        httpx.post(f"{running.address}/v1/chat/completions", json=packaged_request("chat_risk"), timeout=30)
        endpoint = f"{running.address}/v1/chat/completions"
        done = demo(
            "--requests", 10, "--clients", 4, "--endpoint", endpoint, "--key-file", key_file,
            "--dir", tmp_path / "demo", "--json",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["records"], counts["delta_rows"], counts["duplicates"], counts["missing"]) == (10, 10, 0, 0)


def test_a_server_without_the_hook_is_told_before_spark_starts(tmp_path: Path) -> None:
    with RunningServer(arguments=("--no-hook",), log=tmp_path / "server.log") as running:
        done = demo("--endpoint", running.address, "--dir", tmp_path / "demo")
    assert done.returncode == 2
    assert done.stderr.startswith("dspark-json: DSPARK_JSON_ENDPOINT_ANSWER: ")
    assert not (tmp_path / "demo" / "spark.log").exists()
