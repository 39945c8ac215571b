"""``dspark-json bench``: arguments, and figures as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench import parse_command, spark_command
from dspark_json.cli.bench.tables import print_table
from dspark_json.cli.numbers import positive, seconds_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

SUMMARY: Final = "measure what the hook costs, how fast answers are parsed, and how fast Spark has them"
DESCRIPTION: Final = "Measure this product on this machine."
_seconds: Final = seconds_up_to(3600)
_WIDTH: Final = 150  # where there is no terminal to ask
EXAMPLES: Final = """\
examples:
  dspark-json bench capture
  dspark-json bench parse --megabytes 64
  dspark-json bench spark --sinks noop
"""

_CAPTURE_EXAMPLES: Final = """\
examples:
  dspark-json bench capture
  dspark-json bench capture --seconds 5 --rounds 9 --json
  dspark-json bench capture --memory 100000
  dspark-json bench capture --proxy
"""

_CAPTURE_DESCRIPTION: Final = (
    "What the hook adds to a server: CPU per answer and per server-sent event, latency, throughput, with the hook and\n"
    "without it in turn. The server is a process of its own that answers at once from memory (1.5 KB, or a stream of\n"
    "150 events); latency is measured at 40 % of its full speed. The servers take turns four times a second; CPU and\n"
    "throughput are lower quartiles of these slices, what they are while nothing slows the machine down. A control, a\n"
    "second server without the hook, shows what is only noise. Needs two idle cores to mean much, and\n"
    "dspark-json[demo]."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench``."""
    subjects = parser.add_subparsers(dest="subject", metavar="SUBJECT", required=True)
    capture = subjects.add_parser(
        "capture",
        help="the hook",
        description=_CAPTURE_DESCRIPTION,
        epilog=_CAPTURE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    size = capture.add_mutually_exclusive_group()
    size.add_argument("--seconds", type=_seconds, default=2.0, metavar="S", help="length of each measurement (2)")
    size.add_argument("--requests", type=positive, metavar="N", help="answers of each measurement, instead")
    capture.add_argument("--rounds", type=positive, default=5, metavar="N", help="rounds (5)")
    capture.add_argument("--clients", type=positive, default=64, metavar="N", help="connections (64)")
    capture.add_argument(
        "--durability",
        choices=("async", "write", "fsync"),
        default="async",
        help="the hook's DSPARK_DURABILITY (async)",
    )
    what = capture.add_mutually_exclusive_group()
    what.add_argument("--proxy", action="store_true", help="instead, measure dspark-json proxy before the server")
    what.add_argument("--memory", type=positive, metavar="N", help="instead, watch the server's memory over N answers")
    capture.add_argument("--json", action="store_true", help="print the figures as one JSON object, as the last line")
    for name, module in (("parse", parse_command), ("spark", spark_command)):
        subject = subjects.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subject)


def run(options: argparse.Namespace) -> int:
    """Measure and show."""
    from dspark_json.cli.packages import require_packages

    require_packages("httpx", "orjson", "rich", "uvicorn", extra="demo")
    show = sys.stderr if options.json else sys.stdout

    def say(text: str) -> None:
        print(text, file=show, flush=True)

    if options.subject == "parse":
        document = parse_command.document(options, say)
    elif options.subject == "spark":
        document = spark_command.document(options, say)
    else:
        measure = _memory if options.memory else _proxy if options.proxy else _capture
        document = measure(options, say)
    if options.json:
        print(json.dumps(document, separators=(",", ":")))
    return 0


def _memory(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from dspark_json.cli.bench.memory import measure_memory

    memory = measure_memory(options.memory, options.clients, say, durability=options.durability)
    say(f"growth: {memory['growth_mib_per_100000']} MiB per 100,000 answers; without a record: {memory['unrecorded']}")
    return {"memory": memory}


def _proxy(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from dspark_json.cli.bench.capture import Plan, plan_document
    from dspark_json.cli.bench.proxy import measure_proxy, shown

    plan = Plan(options.rounds, options.clients, options.seconds, options.requests, options.durability)
    results = measure_proxy(plan, say)
    for line in shown(results):
        say(line)
    return {"results": results, "plan": plan_document(plan)}


def _capture(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from dspark_json.cli.bench.capture import Plan, measure_capture, plan_document

    plan = Plan(options.rounds, options.clients, options.seconds, options.requests, options.durability)
    results = measure_capture(plan, say)
    _print_table(results, stderr=options.json)
    return {"results": results, "plan": plan_document(plan)}


def _print_table(results: list[dict[str, Any]], *, stderr: bool) -> None:
    from rich.table import Table

    table = Table(title="what the hook adds (95 % confidence interval)", title_justify="left")
    table.add_column("")
    for result in results:
        kind = "streamed" if result["stream"] else "not streamed"
        table.add_column(kind, justify="right")
        table.add_column(f"control, {kind}", justify="right")
    rows = (
        ("CPU per answer, µs", "cpu_us_per_answer", 1),
        ("CPU per event, µs", "cpu_us_per_event", 2),
        ("CPU per answer when paced, µs", "paced_cpu_us_per_answer", 1),
        ("first byte, p50, ms", "added_first_p50_ms", 3),
        ("first byte, p99, ms", "added_first_p99_ms", 3),
        ("p50, ms", "added_p50_ms", 3),
        ("p99, ms", "added_p99_ms", 3),
        ("throughput, ratio", "throughput_ratio", 3),
    )
    for title, name, digits in rows:
        table.add_row(title, *(_shown(r, prefix + name, digits) for r in results for prefix in ("", "control_")))
    for title, name in (
        ("server's CPU per answer, µs", "server_cpu_us_per_answer"),
        ("answers/s", "answers_per_second"),
    ):
        cells = (cell for r in results for cell in (f"{r[name]['hook']}, {r[name]['none']}", f"{r[name]['control']}"))
        table.add_row(f"{title}: with, without", *cells)
    table.add_row("answers without a record", *(cell for r in results for cell in (str(r["unrecorded"]), "")))
    print_table(table, stderr=stderr, width=_WIDTH)


def _shown(result: dict[str, Any], name: str, digits: int) -> str:
    if result[name] is None:
        return "-"
    low, high = result[f"{name}_ci"]
    return f"{result[name]:.{digits}f}  ({low:.{digits}f} to {high:.{digits}f})"
