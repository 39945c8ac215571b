"""``dspark-json replay``: recorded exchanges go through the real hook, which writes its spool."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.errors import RecordedLineError, SpoolNotFoundError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

    from dspark_json.replay.exchanges import RecordedExchange

SUMMARY: Final = "run recorded exchanges through the hook"
DESCRIPTION: Final = (
    "Run recorded exchanges through the real hook, which keeps their answers in a spool as it would in a server: for\n"
    "tests, demos and back-fills. FILE holds one exchange a line, or all in one JSON array; each is an object:\n"
    '  {"path", "request", "messages": [{"type":"start","status","headers"}, {"type":"body","body","more"}, …]}\n'
    '  {"path", "request", "status", "headers" or "content_type", "chunks": [texts], "end": "complete"|"disconnect"}\n'
    '  {"request", "body": text} or {"request", "events": [texts]}\n'
    "DSPARK_* variables set the hook up. Exchanges on other routes leave no record."
)
EXAMPLES: Final = """\
examples:
  dspark-json replay exchanges.jsonl --spool /tmp/spool
  DSPARK_CAPTURE_REQUESTS=full dspark-json replay - --spool /tmp/spool --json < exchanges.jsonl

The exit status is 0 if every exchange on a covered route has its record, 1 if not, 2 if the file or the spool fails.
"""

_SHOWN_BAD: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``replay``."""
    parser.add_argument("file", metavar="FILE", help="a file of recorded exchanges; - is stdin")
    parser.add_argument("--spool", required=True, type=Path, metavar="DIR", help="the folder of the spool")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Replay the file, then say how many records that made."""
    from dspark_json.capture.settings import HookSettings
    from dspark_json.cli.spool_folder import require_spool_or_empty
    from dspark_json.replay.through_hook import HookReplay, is_covered

    spool = options.spool.expanduser().absolute()
    require_spool_or_empty(spool)
    # Each record is waited for, so none can be dropped because a queue is full.
    settings = replace(HookSettings.from_environment(os.environ), spool=spool, durability="write")
    before = _records(spool)
    counts = {"exchanges": 0, "covered": 0, "not_replayed": 0}
    with contextlib.closing(_exchanges(options.file)) as found:
        first = next(found, None)  # a file that can't be read makes no spool
        with HookReplay(settings) as hook:
            for number, exchange in itertools.chain(() if first is None else (first,), found):
                if isinstance(exchange, RecordedLineError):
                    counts["not_replayed"] += 1
                    _note_bad(number, exchange, counts["not_replayed"])
                else:
                    counts["exchanges"] += 1
                    counts["covered"] += is_covered(exchange)
                    hook.run(exchange)
    made = _records(spool) - before
    if options.json:
        output.write(json.dumps({"spool": str(spool), **counts, "records": made}).encode() + b"\n")
    else:
        text = f"{counts['exchanges']} exchanges, {counts['covered']} on covered routes: {made} records in {spool}\n"
        output.write(text.encode("utf-8", "replace"))
    return 0 if made == counts["covered"] and not counts["not_replayed"] else 1


def _records(spool: Path) -> int:
    """How many records a spool has had."""
    from dspark_json.spool.reader import SpoolReader

    try:
        return sum(extent.next for extent in SpoolReader(spool).offsets().lanes.values())
    except SpoolNotFoundError:
        return 0


def _exchanges(file: str) -> Generator[tuple[int, RecordedExchange | RecordedLineError], None, None]:
    """The exchanges of a file with their line's number, or their place in the one array that it is."""
    from dspark_json.capture.jsontext import loads
    from dspark_json.cli.lines import line_batches

    with contextlib.closing(line_batches(file)) as batches:
        lines = itertools.chain.from_iterable(batches)
        first = next(lines, None)
        if first is None:
            return
        if first.text.lstrip().startswith(b"["):
            whole = b"\n".join([first.text, *(line.text for line in lines)])
            try:
                array = loads(whole)
            except ValueError:
                yield first.number, RecordedLineError("the array that begins there is not JSON")
                return
            yield from ((number, _exchange(recorded)) for number, recorded in enumerate(array, start=1))
            return
        for line in itertools.chain((first,), lines):
            try:
                recorded = loads(line.text)
            except ValueError:
                yield line.number, RecordedLineError("it is not JSON")
            else:
                yield line.number, _exchange(recorded)


def _exchange(recorded: object) -> RecordedExchange | RecordedLineError:
    from dspark_json.replay.exchanges import RecordedExchange

    try:
        return RecordedExchange.of(recorded)
    except RecordedLineError as error:
        return _something_else(recorded) or error


def _something_else(recorded: object) -> RecordedLineError | None:
    """What is given instead of an exchange, where another command or no command is for it."""
    from dspark_json.capture.imported import is_answer

    if isinstance(recorded, dict) and "_dspark" in recorded:
        return RecordedLineError("it is a record of a spool", remedy="Read that spool itself.")
    if is_answer(recorded):
        return RecordedLineError("it is an answer without its exchange", remedy="Use `dspark-json import` for those.")
    return None


def _note_bad(number: int, error: RecordedLineError, count: int) -> None:
    if count <= _SHOWN_BAD:
        output.note(f"{error.code}: exchange {number} can't be replayed: {error.message}. {error.remedy}".rstrip())
    elif count == _SHOWN_BAD + 1:
        output.note("more exchanges can't be replayed; they are counted")
