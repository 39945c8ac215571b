"""The notebooks run as on Databricks: in a session that is there, with its ``display``, cell after cell."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")]


def run(name: str, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute a notebook's source; gives its names, and what it displayed as ``shown``."""
    shown = []

    def display(frame: DataFrame) -> None:
        shown.append(frame.collect())

    monkeypatch.syspath_prepend(str(NOTEBOOKS))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "display": display, "shown": shown}
    path = NOTEBOOKS / f"{name}.py"
    try:
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    finally:
        if "server" in names:
            names["server"].stop()
        spark.sql("USE default")
    assert all(shown)
    assert names["plt"].get_fignums()
    names["plt"].close("all")
    return names


def test_quick_start(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("quick_start", spark, tmp_path, monkeypatch)
    assert (names["first"], len(names["times"])) == (60, 65)
    assert {row["parse_status"] for row in names["shown"][2]} >= {"ok"}


def test_quality_and_evolution(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("quality_and_evolution", spark, tmp_path, monkeypatch)
    assert {row["parse_status"] for row in names["shown"][0]} == set(names["statuses"])
    assert names["repaired"]["shop-1b"] > names["plain"]["shop-1b"]
    assert "DSPARK_JSON_SCHEMA_CHANGED" in names["reason"]
    assert set(names["after"].columns) - set(names["before"].columns) == {"discount", "channel"}


def test_delta_pipeline(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("delta_pipeline", spark, tmp_path, monkeypatch)
    orders = {row["country"] for row in names["old_gold"]}, {row["country"] for row in names["new_gold"]}
    assert orders == ({"DE", "FR", "US"}, {"CH", "DE", "FR", "US"})
    answers = spark.table("dspark_shop.bronze_answers")
    refused = answers.where("error IS NOT NULL").count()
    assert sum(names["now"].values()) == answers.count() - refused
    assert names["keys"].count() == names["keys"].distinct().count() == names["now"]["silver_orders"]
    spark.sql("DROP SCHEMA dspark_shop CASCADE")
