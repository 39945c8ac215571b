"""``dspark-json bench capture`` measures what it says; how much is for people to read, not for a test."""

from __future__ import annotations

import json
import subprocess
import sys

COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "bench", "capture", "--clients", "8"]


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
            low, high = result[f"{name}_ci"]
            assert low <= result[name] <= high, name
        assert 0 < result["throughput_ratio"] < 10
        assert result["server_cpu_us_per_answer"]["none"] > 0
    assert results[0]["cpu_us_per_event"] is None
    assert abs(results[1]["cpu_us_per_event"] * 150 - results[1]["cpu_us_per_answer"]) < 0.1


def test_the_memory_run_shows_the_server_after_each_slice() -> None:
    done = subprocess.run([*COMMAND, "--memory", "400", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout.splitlines()[-1])["memory"]
    assert (memory["answers"], memory["unrecorded"]) == (400, 0)
    assert len(memory["samples"]) == 20
    assert all(10 < sample["mib"] < 1000 for sample in memory["samples"])
