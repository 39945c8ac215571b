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
    "worker": 7,
    "commitOffsets": 3,
    "triggerExecution": 100,
}


def batch(begin: int, end: int, *rows: RowTimes) -> Batch:
    return Batch(begin, end, STEPS, rows)


def test_steps_add_up_to_the_mean() -> None:
    result = latency_result(
        [batch(at, at + 100_000, RowTimes(at - 50_000, at - 48_000, at + 70_000)) for at in (10 * SECOND, 11 * SECOND)]
    )
    assert result["p50_ms"] == result["p99_ms"] == result["mean_ms"] == 120.0
    assert result["committed_p50_ms"] == 150.0
    assert result["steps_ms"] == {
        "recording": 2.0, "waiting": 48.0, "latestOffset": 10.0, "walCommit": 20.0, "getBatch": 0.0,
        "queryPlanning": 5.0, "execution": 35.0,
    }  # fmt: skip
    assert sum(result["steps_ms"].values()) == result["mean_ms"]
    assert (result["worker_ms"], result["commit_ms"]) == (7.0, 3.0)


def test_quantiles_are_of_rows_and_not_of_micro_batches() -> None:
    late = [RowTimes(0, 0, 300_000)] * 98
    result = latency_result([batch(0, 100_000, RowTimes(0, 0, 50_000)), batch(100_000, 400_000, *late)])
    assert (result["p50_ms"], result["committed_p50_ms"]) == (300.0, 400.0)
    assert (result["answers"], result["batches"]) == (99, 2)
    assert result["steps_ms"]["waiting"] == round(100 * 98 / 99, 1)
