"""``dspark-json bench serve``: arguments, and the figures of one server or of two."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.serving.arguments import add_load_arguments
from dspark_json.cli.bench.tables import print_table
from dspark_json.cli.numbers import real_above_zero
from dspark_json.errors import InvalidOptionError
from dspark_json.printable import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from dspark_json.cli.bench.serving.blocks import Block, Subject
    from dspark_json.cli.bench.serving.load import Load

SUMMARY: Final = "a model server under load: speed, latency, valid JSON, accepted drafts"
DESCRIPTION: Final = (
    "Ask a model server for JSON and tell how fast and how well it answers. The requests are streamed chat ones for\n"
    "answers by JSON Schemas that come with this package. Without --rate each worker asks again when it has its\n"
    "answer (closed loop); with it requests come at random times whatever the server does, and their times count\n"
    "from when they were due (open loop). With --baseline two servers are compared: asked in turn, block by block,\n"
    "or with --rate one after the other, each without a pause. An answer is JSON if the whole of it is one JSON\n"
    "value; requests that fail are counted and named. How many drafted tokens were accepted is told by the answers\n"
    "(vLLM's --enable-per-request-metrics with --per-request-spec-decode-metrics), else by the server's\n"
    "counters. Needs dspark-json[bench]."
)
EXAMPLES: Final = """\
examples:
  dspark-json bench serve --endpoint http://localhost:8000
  dspark-json bench serve --endpoint http://localhost:8000 --rate 8 --requests 500 --png load.png
  dspark-json bench serve --endpoint http://gpu1:8000 --baseline http://gpu2:8000 --markdown report.md

The key for asking is VLLM_API_KEY (both servers get it) or in a file (--api-key-file, --baseline-api-key-file).
The exit status is 1 where a server answered none of the requests that count.
"""

_WORKERS: Final = 16
_MOST_AT_ONCE: Final = 1000
_WIDTH: Final = 120  # where there is no terminal to ask
_SHOWN: Final = 200  # characters of a model's name
_IN_TURN: Final = "blocks_in_turn"
_ONE_RUN: Final = "one_run_each"
_NAMES: Final = ("endpoint", "baseline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench serve``."""
    parser.add_argument("--endpoint", required=True, metavar="URL", help="the server")
    parser.add_argument("--baseline", metavar="URL", help="another one, to compare it with")
    parser.add_argument("--rate", type=real_above_zero, metavar="R", help="requests a second: an open loop")
    add_load_arguments(parser, requests=200, workers=_WORKERS, note=f"; with --rate {_MOST_AT_ONCE}")
    parser.add_argument("--baseline-model", metavar="M", help="the model to ask of the baseline (as --model)")
    parser.add_argument(
        "--baseline-api-key-file", type=Path, metavar="F", help="a file whose first line is the baseline's key"
    )


def run(options: argparse.Namespace) -> int:
    """Send the load and show what came of it; 1 where a server gave no answer."""
    from dspark_json.cli.bench.serving.arguments import plan_document, plan_of, require

    require(options)
    from dspark_json.cli.bench.serving.blocks import Measurement
    from dspark_json.cli.bench.serving.figures import figures, ratios
    from dspark_json.cli.bench.serving.judging import Judge
    from dspark_json.cli.bench.serving.machine import machine
    from dspark_json.cli.bench.serving.progress import progress

    subjects = _subjects(options)
    plan = plan_of(options)
    judge = Judge(subjects[0].asking.tasks)
    with progress({subject.name: plan.requests for subject in subjects}) as on_end:
        blocks = Measurement(judge, _load(options), on_end).run(subjects, plan)
    document: dict[str, Any] = {
        "servers": [
            {"name": one.name, "address": one.server.address, "model": one.server.model, **figures(blocks[one.name])}
            for one in subjects
        ],
        "ratios": ratios(*blocks.values()) if len(blocks) > 1 else None,
        "plan": {
            **plan_document(options),
            "rate": options.rate,
            "workers": _load(options).workers,
            "order": _ONE_RUN if options.rate is not None else _IN_TURN,
        },
        "machine": machine(),
    }
    table = _show(options, document)
    if options.json:  # before the files: what can't be written may not cost the figures
        print(json.dumps(document, separators=(",", ":")), flush=True)
    _write_files(options, document, blocks, table)
    return 0 if all(one["answers"] for one in document["servers"]) else 1


def _subjects(options: argparse.Namespace) -> list[Subject]:
    from dspark_json.cli.bench.serving.arguments import asking_of
    from dspark_json.cli.bench.serving.blocks import Subject
    from dspark_json.cli.model_server import model_server

    if options.baseline is None and (options.baseline_model or options.baseline_api_key_file):
        raise InvalidOptionError("an argument for the baseline is given, but no --baseline")
    asking = asking_of(options)
    found = [Subject(_NAMES[0], model_server(options.endpoint, options.model, options.api_key_file), asking)]
    if options.baseline is not None:
        model = options.baseline_model or options.model
        server = model_server(options.baseline, model, options.baseline_api_key_file)
        found.append(Subject(_NAMES[1], server, asking))
    return found


def _load(options: argparse.Namespace) -> Load:
    from dspark_json.cli.bench.serving.load import Load

    workers = options.workers or (_WORKERS if options.rate is None else _MOST_AT_ONCE)
    return Load(workers, options.rate, options.timeout)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is shown of the figures, in the table as in the report."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    remarks: Sequence[str]


def _show(options: argparse.Namespace, document: dict[str, Any]) -> _Shown:
    from rich.markup import escape
    from rich.table import Table

    from dspark_json.cli.bench.serving.rows import remarks, server_rows

    servers, compared = document["servers"], document["ratios"]
    heads = ["", *(one["name"] for one in servers), *(["ratio"] if compared is not None else [])]
    rows = server_rows(servers, compared)
    said = [remark for one in servers for remark in remarks(one["name"], one)]
    if compared is not None and document["plan"]["order"] == _ONE_RUN:
        said.append(
            "an open loop is one run without a pause, so the servers were asked one after the other: a machine that "
            "got slower or faster meanwhile is in the ratios"
        )
    table = Table(title=escape(_title(document)), title_justify="left")
    for head in heads:
        table.add_column(head, justify="right" if head else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    print_table(table, stderr=options.json, width=_WIDTH)
    for remark in said:
        print(remark, file=sys.stderr if options.json else sys.stdout)
    return _Shown(heads, rows, said)


def _write_files(
    options: argparse.Namespace, document: dict[str, Any], blocks: Mapping[str, Sequence[Block]], shown: _Shown
) -> None:
    from dspark_json.cli.bench.serving.picture import draw_servers
    from dspark_json.cli.bench.serving.report import in_turn

    in_turn(
        *([lambda: draw_servers(options.png, blocks, _title(document))] if options.png is not None else []),
        *([lambda: _write(options, document, shown)] if options.markdown is not None else []),
    )


def _write(options: argparse.Namespace, document: dict[str, Any], shown: _Shown) -> None:
    from dspark_json.cli.bench.serving.report import bullets, circumstances, picture_link, write_report
    from dspark_json.cli.bench.serving.rows import markdown_table
    from dspark_json.cli.bench.serving.shares import percent
    from dspark_json.cli.bench.units import number

    by_schema = [
        [f"{one['name']}: {name}", str(of_it["answers"]), number(of_it["json_bytes"]), percent(of_it["json_valid"]),
         percent(of_it["schema_valid"])]
        for one in document["servers"]
        for name, of_it in one["schemas"].items()
    ]  # fmt: skip
    intervals = "In brackets: 95 % intervals over the blocks."
    write_report(
        options.markdown,
        [
            f"# {_title(document)}",
            f"{circumstances(document['plan'], document['machine'])} {intervals}",
            markdown_table(shown.heads, shown.rows),
            bullets(shown.remarks),
            markdown_table(("schema", "answers", "bytes, median", "JSON", "by the schema"), by_schema),
            picture_link(options.markdown, options.png, "latency and speed"),
        ],
    )


def _title(document: dict[str, Any]) -> str:
    named = [f"{one['name']} {one['address']} ({printable(one['model'], _SHOWN)})" for one in document["servers"]]
    return "JSON under load: " + ", ".join(named)
