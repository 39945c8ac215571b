"""``configure_spark``: what it adds to a session that is yet to be made, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from dspark_json import __version__, configure_spark, spark
from dspark_json.errors import ConnectorMissingError

if TYPE_CHECKING:
    from pathlib import Path

DELTA = "io.delta:delta-spark_4.2_2.13"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file where the connector's jar is looked for."""
    monkeypatch.setattr(spark, "__file__", str(tmp_path / "spark.py"))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    found = tmp_path / "jars" / f"dspark-json-spark-{__version__}.jar"
    found.parent.mkdir()
    found.touch()
    return found


def settings(builder: SparkSession.Builder) -> dict[str, str]:
    return dict(builder._options)


def test_the_jar_and_this_interpreter_are_added(jar: Path) -> None:
    builder = SparkSession.Builder().config("spark.app.name", "mine")
    assert configure_spark(builder) is builder
    assert settings(builder) == {
        "spark.app.name": "mine",
        "spark.jars": str(jar),
        "spark.dspark.python": sys.executable,
    }


def test_delta_comes_with_its_packages_and_extensions(jar: Path) -> None:
    given = settings(configure_spark(SparkSession.Builder(), delta=True))
    assert given["spark.jars.packages"].startswith(f"{DELTA}:4.4.0")
    assert given["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert given["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_what_the_user_has_given_stays(jar: Path) -> None:
    builder = SparkSession.Builder()
    for name, value in {
        "spark.jars": "/mine.jar, /other.jar",
        "spark.jars.packages": f"org.x:y:1,{DELTA}:4.4.1",
        "spark.sql.extensions": "my.Extension",
        "spark.sql.catalog.spark_catalog": "my.Catalog",
        "spark.pyspark.python": "/my/python",
    }.items():
        builder.config(name, value)
    for _ in range(2):  # and twice is as good as once
        given = settings(configure_spark(builder, delta=True))
        assert given == {
            "spark.jars": f"/mine.jar,/other.jar,{jar}",
            "spark.jars.packages": f"org.x:y:1,{DELTA}:4.4.1",
            "spark.sql.extensions": "my.Extension,io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "my.Catalog",
            "spark.pyspark.python": "/my/python",
        }


def test_what_spark_defaults_has_stays_too(jar: Path, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.jars   /site.jar\nspark.sql.extensions=site.Extension\n"
        "spark.dspark.python: /site/python\n"
    )
    assert settings(configure_spark(SparkSession.Builder(), delta=True)) | {"spark.jars.packages": ""} == {
        "spark.jars": f"/site.jar,{jar}",
        "spark.jars.packages": "",
        "spark.sql.extensions": "site.Extension,io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def test_an_interpreter_named_in_the_environment_is_left_to_spark(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/env/python")
    assert "spark.dspark.python" not in settings(configure_spark(SparkSession.Builder()))


def test_a_jvm_that_runs_already_is_warned_of(
    jar: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    configure_spark(SparkSession.Builder())
    assert f"--jars {jar}" in caplog.text


def test_an_installation_without_the_jar_is_a_named_error(jar: Path) -> None:
    jar.unlink()
    builder = SparkSession.Builder()
    with pytest.raises(ConnectorMissingError, match="make jar"):
        configure_spark(builder)
    assert settings(builder) == {}


def test_the_jars_path_can_be_asked_for_on_the_command_line() -> None:
    shown = subprocess.run([sys.executable, "-m", "dspark_json.spark"], capture_output=True, text=True)
    if shown.returncode == 0:
        assert shown.stdout.strip() == str(spark.connector_jar())
    else:
        assert (shown.stdout, shown.stderr[:29]) == ("", "DSPARK_JSON_CONNECTOR_MISSING")
