"""The steps of ``bench spark --latency`` add up, and each row belongs to the micro-batch that handed it over."""

from __future__ import annotations

from dspark_json.cli.bench.spark_latency import Batch, RowTimes, latency_result

SECOND = 1_000_000
STEPS = {
    "latestOffset": 10,
    "walCommit": 20,
    "getBatch": 0,
    "queryPlanning": 5,
    "addBatch": 60,
    "triggerExecution": 100,
}


def test_steps_add_up_to_the_mean() -> None:
    batches = [Batch(10 * SECOND, 10 * SECOND + 100_000, STEPS), Batch(11 * SECOND, 11 * SECOND + 100_000, STEPS)]
    rows = [RowTimes(at - 50_000, at - 48_000, at + 70_000) for at in (10 * SECOND, 11 * SECOND)]
    result = latency_result(rows, batches)
    assert result["p50_ms"] == result["p99_ms"] == result["mean_ms"] == 120.0
    assert result["committed_p50_ms"] == 150.0
    assert result["steps_ms"] == {
        "recording": 2.0, "waiting": 48.0, "latestOffset": 10.0, "walCommit": 20.0, "getBatch": 0.0,
        "queryPlanning": 5.0, "execution": 35.0,
    }  # fmt: skip
    assert sum(result["steps_ms"].values()) == result["mean_ms"]


def test_a_row_of_a_late_micro_batch_is_counted_to_it() -> None:
    batches = [Batch(0, 100_000, STEPS), Batch(100_000, 400_000, STEPS)]
    result = latency_result([RowTimes(90_000, 90_000, 300_000)], batches)
    assert (result["p50_ms"], result["committed_p50_ms"]) == (210.0, 310.0)
    assert result["steps_ms"]["waiting"] == 10.0
