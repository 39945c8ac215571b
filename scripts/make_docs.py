"""Write the documentation pages that are made from tables in the code: options, metrics, errors,
guarantees, troubleshooting.

``python scripts/make_docs.py`` writes them; ``--check`` says which of them are out of date and exits with 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from guarantees import GUARANTEES

from dspark_json import errors
from dspark_json.capture.metrics import COUNTERS, LANE_GAUGES
from dspark_json.doctor.troubleshooting import CHECKS, SPARK_TROUBLES, TROUBLES
from dspark_json.errors import DSparkJsonError
from dspark_json.monitor.exporter import LONGEST_NAME, exported
from dspark_json.options import HOOK_OPTIONS, READER_OPTIONS, options_table
from dspark_json.source.metrics import READ_METRICS, STREAM_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).resolve().parent.parent / "docs"


def options_page() -> str:
    """The options of the reader and the settings of the hook."""
    return f"""# Options

Made from `dspark_json/options.py` by `make docs`; change it there.

## Reader

Given as `spark.readStream.format("dspark-json").option(name, value)`. Names are matched whatever their case. An unknown
name is an error that names the closest known one.

{options_table(READER_OPTIONS)}
## Hook

Environment variables of the server process. A bad value keeps the server from starting; an unknown `DSPARK_` variable
is a warning.

{options_table(HOOK_OPTIONS)}"""


def metrics_page() -> str:
    """What the hook and the connector count."""
    return f"""# Metrics

Made from `dspark_json/capture/metrics.py`, `dspark_json/source/metrics.py` and `dspark_json/monitor/` by `make docs`;
change it there.

## Of the server

`GET /dspark/metrics` gives them as Prometheus text; it has counts only and needs no key. `<spool>/lanes/*/stats.json`
has the same counters for each lane; `dspark-json monitor` ([monitor.md](monitor.md)) and docker/ show them, and alert
on them. They go on over restarts from what `stats.json` tells, which is written each second: those of a killed server
lack its last second. While a process lives they never go back: where its folder is removed, they go on in the new
one's.

{_meanings({f"dspark_{name}_total": text for name, text in COUNTERS.items()})}
Of each lane, as gauges with the label `lane`:

{_meanings({f"dspark_lane_{name}": text for name, text in LANE_GAUGES.items()})}
## Of the connector

At the scan in Spark's SQL tab, and in `query.lastProgress["sources"][0]["metrics"]`, added up over all tasks:

{_meanings(READ_METRICS)}
In `lastProgress` alone, from the planner:

{_meanings(STREAM_METRICS)}
The Python source has no place for metrics in Spark: its log (`dspark_json`) tells the same, with
`[DSpark] parsed 1243 bytes in 87 µs` for each batch at level DEBUG.

## Of the monitor

`dspark-json monitor --listen` gives gauges over its window; a figure that nothing tells is left out.

{_meanings(exported())}
`dspark_monitor_contents` has the labels `model`, `schema` and `parse_status`. Clients choose the first two:
names of more than {LONGEST_NAME} characters are cut and end in `…`, those that are the same then are counted together,
and `\\`, `"` and line feeds are escaped. No other metric of this product has a text from outside in a label.
"""


def guarantees_page() -> str:
    """What is promised, when it holds, and the tests that show it."""
    lines = [
        "# Guarantees",
        "",
        "Made from `scripts/guarantees.py` by `make docs`; change it there. Each line has the tests that fail where it",
        "does not hold.",
        "",
        "| promised | when, and what not | shown by |",
        "|---|---|---|",
    ]
    for promise in GUARANTEES:
        tests = "<br>".join(f"`{path}`: {name.removeprefix('test_').replace('_', ' ')}" for path, name in promise.tests)
        lines.append(f"| **{promise.claim}** | {promise.terms} | {tests} |")
    return "\n".join(lines) + "\n"


def _meanings(table: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {text} |\n" for name, text in table.items()]
    return "".join(["| name | meaning |\n", "|---|---|\n", *rows])


def errors_page() -> str:
    """Every error code with its meaning."""
    lines = [
        "# Errors",
        "",
        "Made from `dspark_json/errors.py` by `make docs`; change it there. Each message begins with its code and ends",
        "with what to do. In Spark the text is in `query.exception()` or in the exception of the call.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    leaves = [leaf for leaf in _leaves(DSparkJsonError) if leaf.__module__ == errors.__name__]
    lines += [f"| `{leaf.code}` | {(leaf.__doc__ or '').splitlines()[0]} |" for leaf in leaves]
    return "\n".join(lines) + "\n"


def troubleshooting_page() -> str:
    """Causes and remedies of every error code, and the checks of ``dspark-json doctor``."""
    lines = [
        "# Troubleshooting",
        "",
        "Made from `dspark_json/doctor/troubleshooting.py` by `make docs`; change it there.",
        "",
        "`dspark-json doctor [ENDPOINT|SPOOL]` checks a machine, a server and its spool (without one, all in /dev/shm:",
        "several that no server writes are one line); `--gpu` says that a GPU is wanted there, `--json`",
        'gives `{"checks":[{"name","verdict","evidence","remedy"}]}`. A verdict is `ok`, `warn`, `fail` or `skipped`',
        "(not needed, not asked for, or not come to); the exit status is 1 when a check fails.",
        "",
        "## By error code",
        "",
        "| code | what is mostly behind it | what to do | checks |",
        "|---|---|---|---|",
    ]
    for trouble in TROUBLES:
        checks = ", ".join(f"`{name}`" for name in trouble.checks)
        lines.append(f"| `{trouble.code}` | {trouble.cause} | {trouble.remedy} | {checks} |")
    lines += ["", "## By what Spark says", "", "| message | what is mostly behind it | what to do |", "|---|---|---|"]
    lines += [f"| {trouble.message} | {trouble.cause} | {trouble.remedy.strip()} |" for trouble in SPARK_TROUBLES]
    lines += ["", "## The checks", "", "| check | what it looks at |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in CHECKS.items()]
    return "\n".join(lines) + "\n"


def _leaves(cls: type[DSparkJsonError]) -> list[type[DSparkJsonError]]:
    children = cls.__subclasses__()
    return [leaf for child in children for leaf in _leaves(child)] if children else [cls]


PAGES = {
    "options.md": options_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "guarantees.md": guarantees_page,
    "troubleshooting.md": troubleshooting_page,
}


def main() -> int:
    """Write or check the pages."""
    stale = []
    for name, page in PAGES.items():
        path = DOCS / name
        text = page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run make docs")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
