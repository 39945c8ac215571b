"""``dspark-json bench spec-sweep``: arguments, and the figures over the speculation length."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.serving.arguments import add_load_arguments
from dspark_json.cli.bench.tables import print_table
from dspark_json.cli.choices import some_of
from dspark_json.cli.numbers import seconds_up_to
from dspark_json.errors import DSparkJsonError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json.cli.bench.serving.sweep import Best, Point, Sweep

SUMMARY: Final = "a server at each speculation length: which one is fastest"
DESCRIPTION: Final = (
    "Start a server once for each speculation length, ask it for JSON, and tell which length gives the most tokens a\n"
    "second, and by how much. The command is run as it is, without a shell; {k} in it is the length, {port} a free\n"
    "port. Whatever it starts in its process group is ended before the next one. Any of vLLM's speculation methods\n"
    'will do; DSpark itself ("method": "dspark") needs a GPU. With --grammar on,off each server is asked with and\n'
    "without structured output in turn, which shows how many answers are malformed without it. The spread is that of\n"
    "blocks on one start; what differs from start to start it does not show. Fewer than 50 requests, or 3 blocks, of\n"
    "each length name no best one. Needs dspark-json[bench]."
)
EXAMPLES: Final = """\
examples:
  dspark-json bench spec-sweep --lengths 2..12 --png sweep.png --serve 'vllm serve Qwen/Qwen3-8B --port {port}
    --speculative-config.method dspark --speculative-config.model deepseek-ai/dspark_qwen3_8b_block7
    --speculative-config.num_speculative_tokens {k}'
  dspark-json bench spec-sweep --lengths 2,4,6 --grammar on,off --markdown sweep.md --serve '…'

The key for asking is VLLM_API_KEY, which vLLM takes as its own too, or in a file (--api-key-file). The exit status is 1
where a length has no answers.
"""

_WORKERS: Final = 8
_WIDTH: Final = 130  # where there is no terminal to ask
_MOST_SECONDS: Final = 86_400.0
_LONGEST: Final = 1000
_INTERVALS: Final = "In brackets: 95 % intervals over the blocks of one start of the server."
_TITLE: Final = "JSON by speculation length"
_GRAMMARS: Final = ("on", "off")
_HEADS: Final = (
    "length", "grammar", "tokens/s", "drafts accepted", "tokens a step", "p50, ms", "p99, ms", "malformed", "failed",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench spec-sweep``."""
    parser.add_argument("--serve", required=True, metavar="COMMAND", help="starts the server; {k} is the length")
    parser.add_argument("--lengths", required=True, type=lengths, metavar="L", help="such as 2..12 or 2,4,6")
    parser.add_argument("--endpoint", metavar="URL", help="where it listens (http://127.0.0.1:8000, or {port})")
    parser.add_argument(
        "--grammar", type=some_of(_GRAMMARS), default=_GRAMMARS[:1], metavar="on,off", help="structured output (on)"
    )
    parser.add_argument(
        "--start-timeout", type=seconds_up_to(_MOST_SECONDS), default=1800.0, metavar="S", help="of a start (1800)"
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="where the servers' output goes (a new folder)")
    add_load_arguments(parser, requests=100, workers=_WORKERS)


def run(options: argparse.Namespace) -> int:
    """Measure each length and show what came of it; 1 where one of them has no answers."""
    from dspark_json.cli.bench.serving.arguments import plan_document, require

    require(options)
    from dspark_json.cli.bench.serving.command_keys import without_keys
    from dspark_json.cli.bench.serving.machine import machine
    from dspark_json.cli.bench.serving.sweep import best_length, too_few_for_best

    def say(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    sweep = _sweep(options)
    too_few = too_few_for_best(sweep.plan.requests, len(sweep.plan.ranges())) if len(options.lengths) > 1 else ""
    if too_few:
        say(too_few)
    points, failed = _measure(options, sweep, say)
    best = {grammar: best_length([one for one in points if one.grammar == grammar]) for grammar in options.grammar}
    document: dict[str, Any] = {
        "results": [point.document() for point in points],
        "best": {grammar: None if one is None else one.document() for grammar, one in best.items()},
        "failed": failed,
        "plan": {**plan_document(options), "grammar": list(options.grammar), "serve": without_keys(options.serve)},
        "machine": machine(),
    }
    rows, said = _show(options, document, best, say)
    if options.json:  # before the files: what can't be written may not cost the figures
        print(json.dumps(document, separators=(",", ":")), flush=True)
    _write_files(options, document, rows, said)
    return 0 if not failed and all(one["answers"] for one in document["results"]) else 1


def lengths(text: str) -> tuple[int, ...]:
    """Speculation lengths: ``2..12`` or ``2,4,6``, rising and without doubles."""
    span = re.fullmatch(r"([0-9]{1,4})\.\.([0-9]{1,4})", text)
    if span is not None:
        found = range(int(span[1]), int(span[2]) + 1)
    elif re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text):
        found = sorted({int(number) for number in text.split(",")})  # type: ignore[assignment]
    else:
        raise argparse.ArgumentTypeError(f'"{text}" is neither FIRST..LAST nor lengths separated by commas')
    if not found or found[0] < 1 or found[-1] > _LONGEST:
        raise argparse.ArgumentTypeError(f'"{text}" does not name lengths from 1 to {_LONGEST}')
    return tuple(found)


def _sweep(options: argparse.Namespace) -> Sweep:
    from dspark_json.cli.bench.serving.arguments import asking_of, plan_of
    from dspark_json.cli.bench.serving.launched import Launch
    from dspark_json.cli.bench.serving.load import Load
    from dspark_json.cli.bench.serving.sweep import Sweep
    from dspark_json.spool.os_errors import reason

    launch = Launch.of(options.serve, options.endpoint)
    try:
        logs = options.logs or Path(tempfile.mkdtemp(prefix="dspark-spec-sweep-"))
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOptionError(f'--logs "{options.logs}" can\'t be a folder: {reason(error)}') from None
    return Sweep(
        launch=launch,
        askings={grammar: asking_of(options, grammar=grammar == "on") for grammar in options.grammar},
        plan=plan_of(options),
        load=Load(options.workers or _WORKERS, None, options.timeout),
        patience=options.start_timeout,
        logs=logs,
        model=options.model,
        key_file=options.api_key_file,
    )


def _measure(
    options: argparse.Namespace, sweep: Sweep, say: Callable[[str], None]
) -> tuple[list[Point], dict[int, str]]:
    """All lengths; a failure is fatal while nothing has been measured, else it is kept with the others."""
    from dspark_json.cli.bench.serving.judging import Judge
    from dspark_json.cli.bench.serving.progress import progress

    judge = Judge(next(iter(sweep.askings.values())).tasks)
    points: list[Point] = []
    failed: dict[int, str] = {}
    say(f"the servers' output goes to {sweep.logs}")
    total = sweep.plan.requests * len(sweep.askings)
    with progress({f"length {length}": total for length in options.lengths}) as on_end:
        for length in options.lengths:
            try:
                points += sweep.measure(length, judge, on_end)
            except DSparkJsonError as error:
                if not points:
                    raise
                failed[length] = str(error)
                say(f"length {length}: {error}")
            else:
                say(f"length {length}: measured")
    return points, failed


def _show(
    options: argparse.Namespace,
    document: dict[str, Any],
    best: dict[str, Best | None],
    say: Callable[[str], None],
) -> tuple[list[list[str]], list[str]]:
    """Print the figures; returns the table's rows and what is to be known of them."""
    from rich.table import Table

    from dspark_json.cli.bench.serving.rows import remarks

    results = document["results"]
    rows = [_row(result) for result in results]
    said = [
        *(f"grammar {grammar}: {_best_sentence(one)}" for grammar, one in best.items()),
        *(remark for one in results for remark in remarks(f"length {one['length']}, grammar {one['grammar']}", one)),
        *(f"length {length} has no figures: {why}" for length, why in document["failed"].items()),
    ]
    table = Table(title="speculation length (95 % intervals over blocks)", title_justify="left")
    for head in _HEADS:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*row)
    print_table(table, stderr=options.json, width=_WIDTH)
    for line in said:
        say(line)
    return rows, said


def _write_files(
    options: argparse.Namespace, document: dict[str, Any], rows: Sequence[Sequence[str]], said: Sequence[str]
) -> None:
    from dspark_json.cli.bench.serving.picture import draw_sweep
    from dspark_json.cli.bench.serving.report import in_turn

    in_turn(
        *([lambda: draw_sweep(options.png, document["results"], _TITLE)] if options.png is not None else []),
        *([lambda: _write(options, document, rows, said)] if options.markdown is not None else []),
    )


def _write(
    options: argparse.Namespace, document: dict[str, Any], rows: Sequence[Sequence[str]], said: Sequence[str]
) -> None:
    from dspark_json.cli.bench.serving.report import bullets, circumstances, picture_link, write_report
    from dspark_json.cli.bench.serving.rows import markdown_table

    write_report(
        options.markdown,
        [
            f"# {_TITLE}",
            f"At each length {circumstances(document['plan'], document['machine'])} {_INTERVALS}",
            f"```\n{document['plan']['serve']}\n```",
            markdown_table(_HEADS, rows),
            bullets(said),
            picture_link(options.markdown, options.png, "speed, acceptance and latency by speculation length"),
        ],
    )


def _row(result: dict[str, Any]) -> list[str]:
    from dspark_json.cli.bench.serving.rows import acceptance_length, acceptance_rate, with_interval
    from dspark_json.cli.bench.serving.shares import percent
    from dspark_json.cli.bench.units import number

    return [
        str(result["length"]),
        result["grammar"],
        with_interval(result, "output_tokens_per_second"),
        acceptance_rate(result),
        acceptance_length(result),
        number(result["latency_ms_p50"]),
        number(result["latency_ms_p99"]),
        percent(result["malformed"]),
        str(result["requests"] - result["answers"]),
    ]


def _best_sentence(best: Best | None) -> str:
    return "no answer that says how many tokens it has, so no length is best" if best is None else best.sentence()
