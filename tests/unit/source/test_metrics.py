"""The tables of metrics have what is counted, under the names that users see."""

from __future__ import annotations

import re
from pathlib import Path

from typed_spools import answer, write

from dspark_json.source.metrics import READ_METRICS, STREAM_METRICS

from .worker_support import running_worker

JAVA = Path(__file__).resolve().parents[3] / "jvm-bridge/src/main/java/io/dspark/json"


def test_the_table_of_reads_is_the_connectors() -> None:
    labels = re.findall(r"^  [A-Z_]+\(\s*\"(\w+)\"", (JAVA / "ReadMetric.java").read_text(), re.MULTILINE)
    assert labels == list(READ_METRICS)


def test_the_table_of_streams_is_the_planners_and_the_adapter(tmp_path: Path) -> None:
    write(tmp_path / "spool", answer("{}"))
    with running_worker(tmp_path / "log") as worker, worker.connected() as connection:
        counted = connection.stream({"path": str(tmp_path / "spool")}).ask("stream_metrics")["metrics"]
    assert {name for name in counted if not name.startswith("lag_records.")} | {"adapter"} == set(STREAM_METRICS)
