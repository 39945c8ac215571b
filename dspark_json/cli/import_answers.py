"""``dspark-json import``: answers that somebody has in files become records of a spool."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.errors import RecordedLineError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from dspark_json.capture.recording import Recording
    from dspark_json.capture.settings import RequestCapture
    from dspark_json.cli.lines import Line
    from dspark_json.spool.writer import LaneWriter

SUMMARY: Final = "put answers of a log or a batch into a spool"
DESCRIPTION: Final = (
    "Put the answers of a file into a spool, one record each, in their order. A line is an answer as the API gives it\n"
    '(chat.completion, text_completion, response, or {"error": …}), or the output of a batch as `vllm run-batch` and\n'
    "OpenAI write it, whose custom_id becomes _dspark.request_id. A file of any size is read piece by piece.\n"
    "The spool is made if it is not there. DSPARK_* variables apply as for the hook, so members of an answer that are\n"
    "named after what requests hold (prompt, tools, …) become null unless DSPARK_CAPTURE_REQUESTS=full; but there is\n"
    "no request to compare an error with, and an import deletes nothing by age or size. A line\n"
    "that can't be imported is told with its number, and the others are imported all the same."
)
EXAMPLES: Final = """\
examples:
  dspark-json import batch_output.jsonl --spool /data/spool
  zcat log.jsonl.gz | dspark-json import - --spool /data/spool --json

A second import of a file gives its answers a second time: each record has a number of its own.
The exit status is 0 if every line is imported, 1 if some are not, 2 if the file or the spool fails.
"""

_SHOWN_BAD_LINES: Final = 20
_TOO_LONG: Final = RecordedLineError(
    "it is longer than DSPARK_MAX_RECORD_MB", remedy="Set DSPARK_MAX_RECORD_MB higher for the import."
)


@dataclass(slots=True)
class _Counts:
    """What became of the lines; ``failed`` are answers of failed requests, which are imported too."""

    lines: int = 0
    imported: int = 0
    failed: int = 0
    bad: list[tuple[int, RecordedLineError]] = field(default_factory=list)
    bad_lines: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``import``."""
    parser.add_argument("file", metavar="FILE", help="a file of one answer a line; - is stdin")
    parser.add_argument("--spool", required=True, type=Path, metavar="DIR", help="the folder of the spool")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Import the file, then say what became of it."""
    from dspark_json.capture.settings import HookSettings
    from dspark_json.cli.lines import line_batches
    from dspark_json.cli.spool_folder import named_by, require_spool_or_empty
    from dspark_json.spool.writer import LaneWriter

    spool = options.spool.expanduser().absolute()
    require_spool_or_empty(spool)
    settings = HookSettings.from_environment(os.environ)
    for warning in settings.warnings:
        output.note(warning)
    counts = _Counts()
    with contextlib.closing(line_batches(options.file, settings.max_record)) as batches:
        first = next(batches, None)  # a file that can't be read makes no spool
        with named_by("--spool"), LaneWriter.open(spool, settings.writer) as writer:
            start = writer.next_seq
            try:
                if first is not None:
                    _append(writer, first, settings.capture_requests, counts)
                for batch in batches:
                    _append(writer, batch, settings.capture_requests, counts)
                writer.sync()
            except BaseException:
                output.note(
                    f"{writer.next_seq - start} answers were imported before this; the lines after them are not"
                )
                raise
            _tell(writer, start, counts, as_json=options.json)
    return 1 if counts.bad_lines else 0


def _append(writer: LaneWriter, lines: Sequence[Line], mode: RequestCapture, counts: _Counts) -> None:
    recordings = list(_recordings(lines, mode, counts))
    writer.append([recording.record for recording in recordings])
    counts.lines += len(lines)
    counts.imported += len(recordings)
    counts.failed += sum(recording.failed for recording in recordings)


def _recordings(lines: Sequence[Line], mode: RequestCapture, counts: _Counts) -> Iterator[Recording]:
    from dspark_json.capture.imported import imported_exchange
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.recording import Recording, make_recording, salvage

    pacer = Pacer()
    pacer.stretch = math.inf  # there is no server beside this
    for line in lines:
        if line.is_cut:
            _note_bad(line.number, _TOO_LONG, counts)
            continue
        try:
            captured = imported_exchange(line.text)
        except RecordedLineError as error:
            _note_bad(line.number, error, counts)
            continue
        pacer.restart()
        try:
            yield make_recording(captured, mode, pacer, lambda *_: None)
        except Exception as problem:  # noqa: BLE001 - as the hook does: kept as text rather than lost
            record = salvage(captured, problem, mode, pacer)
            yield Recording(record, failed=True, disconnected=False, untyped_model=None)


def _note_bad(number: int, error: RecordedLineError, counts: _Counts) -> None:
    counts.bad_lines += 1
    if counts.bad_lines <= _SHOWN_BAD_LINES:
        counts.bad.append((number, error))
        output.note(f"{error.code}: line {number} can't be imported: {error.message}. {error.remedy}")
    elif counts.bad_lines == _SHOWN_BAD_LINES + 1:
        output.note("more lines can't be imported; they are counted")


def _tell(writer: LaneWriter, start: int, counts: _Counts, *, as_json: bool) -> None:
    if as_json:
        document = {
            "spool": str(writer.folder),
            "spool_id": writer.spool_id,
            "lane": writer.lane,
            "first": start,
            "next": writer.next_seq,
            "lines": counts.lines,
            "imported": counts.imported,
            "failed_requests": counts.failed,
            "not_imported": counts.bad_lines,
            "errors": [{"line": number, "code": error.code, "message": error.message} for number, error in counts.bad],
        }
        output.write(json.dumps(document).encode() + b"\n")
        return
    of_failed = f" ({counts.failed} of failed requests)" if counts.failed else ""
    text = f"imported {counts.imported} of {counts.lines} answers{of_failed} into {writer.folder}, lane {writer.lane}"
    if writer.next_seq > start:
        text += f", records {start} to {writer.next_seq - 1}"
    output.write(text.encode("utf-8", "replace") + b"\n")
    if counts.bad_lines:
        output.note(f"{counts.bad_lines} of {counts.lines} lines are not imported")
