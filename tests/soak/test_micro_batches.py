"""The connector gives back all it takes, micro-batch after micro-batch; the long form is ``make soak``."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from soak.held import Held, growth, growth_by_cuts, left_over

TESTS = Path(__file__).resolve().parents[1]
BATCHES = 500


@pytest.mark.spark
@pytest.mark.timeout(900)  # 500 micro-batches are a minute on two cores, and far more where others want them too
def test_micro_batches_and_reads_cut_short_leave_nothing_behind() -> None:
    path = os.pathsep.join(filter(None, (str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "soak.micro_batches", "--batches", str(BATCHES), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=880,
    )
    assert done.stdout, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["failures"] == [], outcome
    assert done.returncode == 0
    assert outcome["batches"] == BATCHES
    assert outcome["rows"] == 4 * BATCHES
    assert outcome["most_arrow"] > 1 << 20, "the large records went through Arrow memory"
    assert outcome["cut_reads"] > 0


def look(batches: int, **more: Any) -> Held:
    held = Held(
        f"{batches}",
        batches,
        arrow=0,
        allocators=0,
        heap=60 << 20,
        direct=8_000,
        files=100,
        worker=50 << 20,
        worker_threads=6,
        worker_files=12,
    )
    return dataclasses.replace(held, **more)


def test_a_run_that_fills_its_caches_and_then_stays_as_it_is_holds() -> None:
    looks = [look(500 * number, heap=(60 << 20) + (min(number, 5) << 20)) for number in range(1, 21)]
    noise = [200_000, -200_000, 0, 100_000]
    looks = [dataclasses.replace(held, heap=held.heap + noise[n % 4]) for n, held in enumerate(looks)]
    assert growth(looks) == []


@pytest.mark.parametrize(("name", "each"), [("heap", 200), ("worker", 200), ("files", 0.01), ("worker_threads", 0.01)])
def test_what_grows_with_each_micro_batch_is_found(name: str, each: float) -> None:
    looks = [look(500 * number) for number in range(1, 21)]
    grown = [dataclasses.replace(held, **{name: getattr(held, name) + int(each * held.batches)}) for held in looks]
    (found,) = growth(grown)
    assert found.startswith(name)


@pytest.mark.parametrize(
    ("name", "each"), [("heap", 256 << 10), ("worker", 8 << 20), ("files", 1), ("worker_files", 1)]
)
def test_what_grows_with_each_read_that_is_cut_short_is_found(name: str, each: int) -> None:
    before = look(500)
    after = dataclasses.replace(before, **{name: getattr(before, name) + 20 * each})
    (found,) = growth_by_cuts(before, after, 20)
    assert found.startswith(name)
    assert growth_by_cuts(before, before, 20) == []


def test_arrow_memory_may_not_be_left_even_once() -> None:
    looks = [look(500 * number, arrow=64 if number == 3 else 0) for number in range(1, 21)]
    assert len(growth(looks)) == 1
    assert len(left_over([look(1, allocators=1)])) == 1
