"""``dspark-json parse``: what the parsing rules make of records or contents, one JSON object a line."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.errors import EngineUnavailableError, InvalidOptionError

if TYPE_CHECKING:
    import argparse

    from dspark_json.engine import Engine

SUMMARY: Final = "parse answers by a content schema and say how each one went"
DESCRIPTION: Final = (
    "Parse the answers in a file, or their contents, as the Spark source does, and print one JSON object a line:\n"
    "  parsed   the value as the content type has it, by column names\n"
    "  status   what parse_status says: ok, fenced, mismatch, truncated, invalid, …\n"
    "  rescued  what found no column or has another type, by its path inside parsed; null if there is nothing\n"
    "FILE holds records as a spool keeps them (a segment, or what `dspark-json tail --json` prints) or responses of\n"
    'the API, one a line: each choice gives a line that begins with "seq" and "index". With --content it holds\n'
    'contents, one a line, as JSON strings or null. "error" says why there is nothing to parse: the server\'s message\n'
    "where the request failed (parsed and status are null then), or that the line can't be read."
)
EXAMPLES: Final = """\
examples:
  dspark-json parse answers.ndjson --content-schema order.schema.json
  dspark-json tail http://localhost:8000 --json | dspark-json parse - --content-schema 'amount DOUBLE, paid BOOLEAN'
  echo '"{\\"amount\\": \\"12\\"}"' | dspark-json parse - --content --content-schema 'amount DOUBLE'

The exit status is 0 whatever the answers hold, 2 if the file or the schema can't be read.
"""

_ENGINES: Final = ("native", "reference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``parse``."""
    parser.add_argument("file", metavar="FILE", help="a file of one record, response or content a line; - is stdin")
    parser.add_argument(
        "--content-schema",
        required=True,
        metavar="S",
        help="a JSON Schema or Spark DDL: a file (.json, .ddl, .sql) or the text itself",
    )
    parser.add_argument("--content", action="store_true", help="the lines are contents: JSON strings, or null")
    parser.add_argument(
        "--finish-reason",
        metavar="R",
        help="why the server stopped writing the contents (with --content): stop, length",
    )
    parser.add_argument(
        "--repair", choices=("auto", "strict"), default="auto", help="whether what stands around a value is taken off"
    )
    parser.add_argument("--engine", default=_ENGINES[0], metavar="E", help=f"the parse engine: {', '.join(_ENGINES)}")


def run(options: argparse.Namespace) -> int:
    """Print what comes of each line."""
    from dspark_json.cli.lines import line_batches
    from dspark_json.cli.outcomes import AnswerParser
    from dspark_json.schema.content_schema import content_type_from

    if options.finish_reason is not None and not options.content:
        raise InvalidOptionError(
            "--finish-reason is given without --content",
            remedy="Records and responses say themselves why each choice ended.",
        )
    parser = AnswerParser(_engine(options.engine), content_type_from(options.content_schema), options.repair)
    lines = unreadable = 0
    with contextlib.closing(line_batches(options.file)) as batches:
        for batch in batches:
            outcomes = parser.contents(batch, options.finish_reason) if options.content else parser.records(batch)
            for outcome in outcomes:
                text = outcome.text(numbered=not options.content)
                output.write(text.encode() + b"\n")
                unreadable += outcome.unreadable
            lines += len(batch)
            output.flush()
    if unreadable:
        output.note(f"{unreadable} of {lines} lines can't be read")
    return 0


def _engine(name: str) -> Engine:
    from dspark_json.engine.native import NativeEngine
    from dspark_json.engine.reference import ReferenceEngine

    if name not in _ENGINES:
        raise EngineUnavailableError(f'there is no engine "{name}"', remedy=f"Engines are: {', '.join(_ENGINES)}.")
    return NativeEngine() if name == "native" else ReferenceEngine()
