"""Puts the JVM connector into a Spark session; ``python -m dspark_json.spark`` prints the path of its jar.

With the jar on Spark's class path ``format("dspark-json")`` is the connector, without it the Python source: the same
options, rows, offsets and checkpoints.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json import __version__
from dspark_json.errors import ConnectorMissingError, DSparkJsonError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

__all__ = ["configure_spark", "connector_jar"]

_log = logging.getLogger(__name__)

_DELTA: Final = "4.4.0"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_INTERPRETERS: Final = ("spark.dspark.python", "spark.pyspark.python")


def connector_jar() -> Path:
    """The connector's jar; ``ConnectorMissingError`` where it is not part of this installation."""
    jar = Path(__file__).parent / "jars" / f"dspark-json-spark-{__version__}.jar"
    if not jar.is_file():
        raise ConnectorMissingError(
            f"{jar} is not there: this installation of dspark-json has no JVM connector",
            remedy="Install a wheel, or build the jar in a checkout with `make jar`. Without it the Python source "
            "reads the same, more slowly.",
        )
    return jar


def configure_spark(builder: SparkSession.Builder, delta: bool = False) -> SparkSession.Builder:
    """Add the connector to a session that is yet to be made, and with ``delta`` also Delta Lake; gives the builder.

    Jars, packages and session extensions of the builder's own, or of ``spark-defaults.conf``, stay. The worker
    processes run this interpreter unless the builder or ``PYSPARK_PYTHON`` names another one. Where a JVM is running
    already (``spark-submit``, a notebook with a session) its class path can't be changed: a warning says so, and
    ``docs/spark.md`` what to do. Raises ``ConnectorMissingError``.
    """
    jar = connector_jar()
    _warn_of_running_jvm(jar)
    _append(builder, "spark.jars", str(jar))
    if not os.environ.get("PYSPARK_PYTHON") and not any(_given(builder, name) for name in _INTERPRETERS):
        builder.config("spark.dspark.python", sys.executable)
    if delta:
        _append(builder, "spark.jars.packages", _delta_package())
        _append(builder, "spark.sql.extensions", _DELTA_EXTENSION)
        if not _given(builder, _CATALOG):
            builder.config(_CATALOG, _DELTA_CATALOG)
    return builder


def _append(builder: SparkSession.Builder, name: str, item: str) -> None:
    """Add an item to a setting that is a list, unless it is in there."""
    items = [one.strip() for one in _given(builder, name).split(",") if one.strip()]
    # Of a package another version may be wanted.
    if not any(one == item or one.startswith(f"{item.rpartition(':')[0]}:") for one in items):
        items.append(item)
    builder.config(name, ",".join(items))


def _given(builder: SparkSession.Builder, name: str) -> str:
    """What the builder has for a setting, else ``spark-defaults.conf``, else nothing."""
    options: dict[str, str] = builder._options  # noqa: SLF001 - there is no other way
    return str(options.get(name) or _defaults().get(name, ""))


def _defaults() -> dict[str, str]:
    """The settings of ``spark-defaults.conf``, which a setting of the builder would replace."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return dict(_settings(lines))


def _settings(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Names and values, in the form of Java's properties files as far as Spark's own uses it."""
    for line in lines:
        found = re.fullmatch(r"\s*([^\s#!=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*", line)
        if found is not None:
            yield found[1], found[2]


def _delta_package() -> str:
    """Delta's package for this Spark, of the version of the Python package ``delta-spark`` if that is installed."""
    from pyspark import __version__ as spark_version

    release = ".".join(spark_version.split(".")[:2])
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        version = _DELTA
    return f"io.delta:delta-spark_{release}_2.13:{version}"


def _warn_of_running_jvm(jar: Path) -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001
        return
    _log.warning(
        "a JVM is running already, and its class path can't be changed: give it the connector with --jars %s "
        "(docs/spark.md), else the Python source reads",
        jar,
    )


def main() -> int:
    """Print the jar's path."""
    try:
        print(connector_jar())  # noqa: T201 - it is what is asked for
    except DSparkJsonError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
