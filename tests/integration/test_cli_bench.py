"""``dspark-json bench`` measures what it says; how much is for people to read, not for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "bench", "capture", "--clients", "8"]
PARSE = [sys.executable, "-m", "dspark_json.cli.main", "bench", "parse", "--megabytes", "2", "--rounds", "1"]


def test_a_short_run_has_all_figures_with_their_intervals() -> None:
    done = subprocess.run([*COMMAND, "--requests", "40", "--rounds", "2", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert [(result["mode"], result["stream"]) for result in results] == [("hook", False), ("hook", True)]
    for result in results:
        assert result["rounds"] == 2
        assert result["unrecorded"] == 0
        assert result["answers"] == 2 * 2 * 40
        for name in ("cpu_us_per_answer", "added_p50_ms", "added_p99_ms", "throughput_ratio"):
            for figure in (name, f"control_{name}"):
                low, high = result[f"{figure}_ci"]
                assert low <= result[figure] <= high, figure
        assert 0 < result["throughput_ratio"] < 10
        assert result["server_cpu_us_per_answer"]["none"] > 0
    assert results[0]["cpu_us_per_event"] is None
    assert abs(results[1]["cpu_us_per_event"] * 150 - results[1]["cpu_us_per_answer"]) < 0.1


def test_a_run_of_the_proxy_has_the_server_the_forwarder_and_the_hook_apart() -> None:
    done = subprocess.run(
        [*COMMAND, "--proxy", "--requests", "40", "--rounds", "1", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert [(result["mode"], result["stream"]) for result in results] == [("proxy", False), ("proxy", True)]
    for result in results:
        assert (result["unrecorded"], result["answers"]) == (0, 80)
        for name in ("cpu_us_per_answer", "answers_per_second", "p50_ms"):
            assert all(result[name][mode] > 0 for mode in ("direct", "forward", "proxy"))
        low, high = result["proxy_added_p50_ms"]["ci"]
        assert low <= result["proxy_added_p50_ms"]["value"] <= high


def test_the_memory_run_shows_the_server_after_each_slice() -> None:
    done = subprocess.run([*COMMAND, "--memory", "400", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout.splitlines()[-1])["memory"]
    assert (memory["answers"], memory["unrecorded"]) == (400, 0)
    assert len(memory["samples"]) == 20
    assert all(10 < sample["mib"] < 1000 for sample in memory["samples"])


def test_the_parsers_see_the_same_answers_and_a_result_says_who_failed() -> None:
    done = subprocess.run([*PARSE, "--without", "from_json", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = {(r["engine"], r["content"], r["broken"]): r for r in json.loads(done.stdout.splitlines()[-1])["results"]}
    names = {"native", "reference", "pyarrow.json", "duckdb", "orjson"}
    assert set(results) == {
        (name, content, broken) for name in names for content in (False, True) for broken in (0, 0.01)
    }
    for (name, content, broken), result in results.items():
        assert result["vs_from_json"] is None
        if name == "pyarrow.json" and broken:
            assert (result["mb_per_cpu_s"], "JSON" in result["fails"]) == (None, True)
            continue
        assert result["mb_per_cpu_s"] > 0.1
        assert result["rounds"] == 1
        assert (result["typed"] is not None) is content
        if name == "reference":
            assert result["share"] < 0.02
            continue
        assert result["share"] == 1
        if not broken:
            assert result["answers"] == result["rows"]
            assert result["typed"] in {None, result["rows"]}
        elif name == "native":
            # A row for each line; of the contents the fenced ones, one in four of the broken, are read too.
            assert result["answers"] == result["rows"]
        else:
            assert result["rows"] < result["answers"]


def test_broken_answers_are_a_share_of_all_and_none_is_read_as_whole() -> None:
    done = subprocess.run(
        [*PARSE, "--broken", "1", "--json", *("--without=from_json", "--without=duckdb", "--without=reference")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "broken in turn: line cut off" in done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    orjson = next(r for r in results if r["engine"] == "orjson" and r["content"])
    native = next(r for r in results if r["engine"] == "native" and r["content"])
    assert abs(orjson["rows"] - orjson["answers"] * 3 / 4) < 1
    assert orjson["typed"] == 0
    assert native["typed"] >= native["answers"] // 4


def test_without_java_the_row_of_spark_is_left_out_with_a_note(tmp_path: Path) -> None:
    others = [f"--without={name}" for name in ("reference", "pyarrow.json", "duckdb", "orjson")]
    done = subprocess.run(
        [*PARSE, *others, "--broken", "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "left out: from_json: Spark needs Java" in done.stdout
    assert "native" in done.stdout


def test_a_wrong_share_is_refused() -> None:
    done = subprocess.run([*PARSE, "--broken", "0,1.5"], capture_output=True, text=True)
    assert done.returncode == 2
    assert '"0,1.5" is not a list of shares' in done.stderr
