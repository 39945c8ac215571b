"""``dspark-json bench parse``: arguments, and the speeds as a table."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.tables import print_table
from dspark_json.cli.numbers import positive

if TYPE_CHECKING:
    from collections.abc import Callable

SUMMARY: Final = "the parse engines, beside other parsers"
DESCRIPTION: Final = (
    "How many MB of answers a core parses in a second: this package's engines (the reference on 1 % of the data),\n"
    "pyarrow.json, DuckDB, orjson and Spark's from_json, on the same records, in turn, each on one thread. The\n"
    "records are those of a spool, of answers made from recorded ones with other ids, numbers and strings. Each\n"
    'parser makes all columns of a record and, "with content", the typed content of its choice; orjson makes Python\n'
    "objects. Seconds are CPU seconds of all threads; for Spark those of its JVM, less what it takes to read the\n"
    "lines. Broken answers are a line cut off, a content cut off, a content in a code fence and a control character\n"
    "in a content's string, in turn. Needs dspark-json[demo]; DuckDB and Spark (with Java 17) are left out where\n"
    "they are not installed."
)
EXAMPLES: Final = """\
examples:
  dspark-json bench parse
  dspark-json bench parse --megabytes 64 --rounds 3 --json
  dspark-json bench parse --without from_json --without reference --broken 0,0.01,0.1
"""

# As in `bench.parse`, which is not imported before it is needed.
_PARSERS: Final = ("native", "reference", "pyarrow.json", "duckdb", "orjson", "from_json")
_WIDTH: Final = 120  # where there is no terminal to ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench parse``."""
    parser.add_argument("--megabytes", type=positive, default=200, metavar="N", help="size of the answers (200)")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="rounds; the median counts (5)")
    parser.add_argument(
        "--broken", type=_shares, default=(0.0, 0.01), metavar="SHARES", help="shares of broken answers (0,0.01)"
    )
    parser.add_argument(
        "--without",
        choices=_PARSERS,
        action="append",
        default=[],
        metavar="NAME",
        help=f"leave one out (may be given more than once): {', '.join(_PARSERS)}",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object, as the last line")


def document(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, print the table, and return what ``--json`` prints."""
    from dspark_json.cli.bench.parse import ParsePlan, measure_parse

    plan = ParsePlan(options.megabytes, options.rounds, options.broken, tuple(options.without))
    results = measure_parse(plan, say)
    _print_table(results, stderr=options.json)
    return {"results": results, "plan": asdict(plan)}


def _print_table(results: list[dict[str, Any]], *, stderr: bool) -> None:
    from rich.table import Table

    table = Table(title="MB parsed per CPU second (times from_json), median over rounds", title_justify="left")
    table.add_column("", no_wrap=True)
    kinds = sorted({(result["content"], result["broken"]) for result in results})
    for content, broken in kinds:
        what = "with content" if content else "envelope"
        table.add_column(f"{what}, {broken:.3g} broken" if broken else what, justify="right")
    for engine in dict.fromkeys(result["engine"] for result in results):
        found = {(r["content"], r["broken"]): r for r in results if r["engine"] == engine}
        share = max(result.get("share", 1.0) for result in found.values())
        title = engine if share == 1 else f"{engine} ({share:.1%} of the data)"
        table.add_row(title, *(_shown(found[kind]) for kind in kinds))
        if "mb_per_cpu_s_with_reading" in found[kinds[0]]:
            table.add_row("  with reading the lines", *(f"{found[k]['mb_per_cpu_s_with_reading']:.1f}" for k in kinds))
    print_table(table, stderr=stderr, width=_WIDTH)


def _shown(result: dict[str, Any]) -> str:
    if result["mb_per_cpu_s"] is None:
        return "fails"
    ratio = "" if result["vs_from_json"] is None else f" ({result['vs_from_json']:.2f}×)"
    return f"{result['mb_per_cpu_s']:.1f}{ratio}"


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        shares = ()
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of shares from 0 to 1, like 0,0.01')
    return shares
