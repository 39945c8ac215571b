"""``dspark-json bench spark``: arguments, and the speeds as tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.tables import print_table
from dspark_json.cli.bench.units import byte_rate, number
from dspark_json.cli.choices import some_of
from dspark_json.cli.numbers import positive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

SUMMARY: Final = "answers into Spark, beside Spark's from_json"
DESCRIPTION: Final = (
    "How many answers become rows of a Spark sink in a CPU second: by the JVM connector and by the Python source,\n"
    "beside readStream.text + from_json + from_json of the content, and readStream.json + from_json of the content.\n"
    "All read the same bytes in micro-batches of one size on the same cores in one JVM, in turn. CPU is that\n"
    "of the JVM and of all processes it has started. Columns: all with the typed content, three (id, created, usage),\n"
    'or content (id and the typed content). "narrow schema" is one cut by hand to what is selected. Needs Java 17 and\n'
    "dspark-json[demo]."
)
EXAMPLES: Final = """\
examples:
  dspark-json bench spark
  dspark-json bench spark --megabytes 50 --sinks noop --columns three,content --json
  dspark-json bench spark --latency
"""

# As in `spark_pipelines` and `spark_streams`, which are not imported before they are needed.
_SINKS: Final = ("noop", "delta")
_COLUMNS: Final = ("all", "three", "content")
_ADAPTERS: Final = ("jvm", "python", "json_files")
_TRIGGER_MS: Final = 100
_WIDTH: Final = 130  # where there is no terminal to ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench spark``."""
    parser.add_argument("--megabytes", type=positive, default=200, metavar="N", help="size of the answers (200)")
    parser.add_argument("--batches", type=positive, default=4, metavar="N", help="micro-batches they come in (4)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="rounds; the median counts (5)")
    parser.add_argument("--cores", type=positive, default=2, metavar="N", help="cores of the local Spark (2)")
    for name, known in (("sinks", _SINKS), ("columns", _COLUMNS), ("adapters", _ADAPTERS)):
        words = ",".join(known)
        parser.add_argument(f"--{name}", type=some_of(known), default=known, metavar="NAMES", help=f"some of {words}")
    parser.add_argument(
        "--latency",
        action="store_true",
        help="instead, the time from the end of an answer to its row in a sink, at a trigger of 100 ms",
    )
    parser.add_argument("--rate", type=positive, default=500, metavar="N", help="answers a second for --latency (500)")
    parser.add_argument("--seconds", type=positive, default=30, metavar="S", help="length of --latency (30)")
    parser.add_argument(
        "--warm-up", type=positive, default=40, metavar="S", help="of the same load before --latency, left out (40)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, as the last line")


def document(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, print the tables, and return what ``--json`` prints."""
    from dspark_json.cli.packages import require_java, require_packages

    require_packages("pyspark", *(("delta",) if "delta" in options.sinks else ()), extra="demo")
    require_java()
    return _latency(options, say) if options.latency else _speeds(options, say)


def _speeds(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from dspark_json.cli.bench.spark_streams import StreamPlan, measure_streams

    names = ("megabytes", "batches", "rounds", "cores", "sinks", "columns", "adapters")
    plan = StreamPlan(**{name: getattr(options, name) for name in names})
    results = measure_streams(plan, say)
    for sink in plan.sinks:
        for columns in plan.columns:
            _print_speeds([r for r in results if (r["sink"], r["columns"]) == (sink, columns)], stderr=options.json)
    _print_spent(results, stderr=options.json)
    return {"results": results, "plan": asdict(plan)}


def _latency(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from dspark_json.cli.bench.spark_latency import LatencyPlan, measure_latency
    from dspark_json.cli.bench.spark_streams import REMEDY

    plan = LatencyPlan(options.rate, options.seconds, options.warm_up, _TRIGGER_MS, options.cores, tuple(options.sinks))
    results = measure_latency(plan, say, REMEDY)
    _print_latency(results, stderr=options.json)
    for result in results:
        say(_conditions(result))
    return {"latency": results, "plan": asdict(plan)}


def _print_speeds(results: list[dict[str, Any]], *, stderr: bool) -> None:
    from rich.table import Table

    sink, columns = results[0]["sink"], results[0]["columns"]
    table = Table(title=f"{columns} → {sink} (median over rounds, 95 % confidence interval)", title_justify="left")
    table.add_column("", no_wrap=True)
    unit, factor = byte_rate(result["mb_per_s"] for result in results)
    for title in ("records/CPU s", "records/s", unit, "CPU s", "p50, p99, ms", "times, CPU", "clock"):
        table.add_column(title, justify="right")
    narrow = "ratio_narrow_cpu" in results[0]
    if narrow:
        table.add_column("times narrow, CPU", justify="right")
    for result in results:
        table.add_row(
            _label(result),
            f"{result['records_per_cpu_s']:,}",
            f"{result['records_per_s']:,}",
            number(factor * result["mb_per_s"]),
            f"{result['cpu_s']:.2f}",
            f"{result['batch_p50_ms']:,}, {result['batch_p99_ms']:,}",
            _shown(result, "ratio_cpu"),
            f"{result['ratio_wall']:.2f}",
            *([_shown(result, "ratio_narrow_cpu")] if narrow else []),
        )
    print_table(table, stderr=stderr, width=_WIDTH)


def _print_latency(results: list[dict[str, Any]], *, stderr: bool) -> None:
    from rich.table import Table

    table = Table(title="answer finished → row handed to the sink, ms", title_justify="left")
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(result["sink"], justify="right")
    rows = {
        "p50": "p50_ms",
        "p99": "p99_ms",
        "p50 until the micro-batch is committed": "committed_p50_ms",
        "p99 until the micro-batch is committed": "committed_p99_ms",
        "mean": "mean_ms",
    }
    for title, name in rows.items():
        table.add_row(title, *(f"{result[name]:.1f}" for result in results))
    for step in results[0]["steps_ms"]:
        table.add_row(f"  {step}", *(f"{result['steps_ms'][step]:.1f}" for result in results))
    table.add_row("  of it waiting for the worker", *(f"{result['worker_ms']:.1f}" for result in results))
    table.add_row("commitOffsets, after the rows", *(f"{result['commit_ms']:.1f}" for result in results))
    table.add_row("micro-batches, p50", *(f"{r['batches']}, {r['batch_p50_ms']:.1f}" for r in results))
    print_table(table, stderr=stderr, width=_WIDTH)


def _conditions(result: dict[str, Any]) -> str:
    """What was measured and what was not, and who shared the machine."""
    used = ", ".join(f"{name.replace('_', ' ')} {cores:.2f}" for name, cores in result["cores_used"].items())
    return (
        f"{result['sink']}: {result['answers']} answers; {result['left_out']} before them are left out: Spark was "
        f"cold, and what had piled up was read first. Cores used, of {result['cores']}: {used}"
    )


def _print_spent(results: list[dict[str, Any]], *, stderr: bool) -> None:
    from rich.table import Table

    table = Table(title="where the CPU seconds go (medians)", title_justify="left")
    table.add_column("", no_wrap=True)
    parts = {
        "python_user": "Python: user",
        "python_system": "Python: kernel",
        "tasks_user": "tasks: user",
        "tasks_system": "tasks: kernel",
        "compiler": "JIT",
        "memory": "GC",
        "helpers": "helpers",
        "others": "driver, rest",
    }
    for title in parts.values():
        table.add_column(title, justify="right")
    for result in results:
        spent = result["spent_s"]
        title = f"{result['columns']} → {result['sink']}: {_label(result)}"
        table.add_row(title, *(f"{spent[part]:.2f}" for part in parts))
    print_table(table, stderr=stderr, width=_WIDTH)


def _label(result: dict[str, Any]) -> str:
    return f"{result['adapter']}, narrow schema" if result["narrow"] else str(result["adapter"])


def _shown(result: dict[str, Any], name: str) -> str:
    low, high = result[f"{name}_ci"]
    return f"{result[name]:.2f} ({low:.2f} to {high:.2f})"
