"""How fast answers are parsed: by this package's engines and by others, on the same bytes, in turn."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.answers import BROKEN_KINDS, MEGABYTE, AnswerFile, content_type, write_answers
from dspark_json.cli.bench.statistics import median_over_rounds
from dspark_json.cli.packages import require_java, require_packages
from dspark_json.errors import DSparkJsonError, MissingPackageError
from dspark_json.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    from dspark_json.cli.bench.parsers import Parser, Pass

PARSERS: Final = ("native", "reference", "pyarrow.json", "duckdb", "orjson", "from_json")
BASELINE: Final = "from_json"

_REFERENCE_SHARE: Final = 0.01  # it takes a hundred times as long

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ParsePlan:
    """What to measure: on how many MB, how often, with which shares of broken answers, without which parsers."""

    megabytes: int
    rounds: int
    broken: tuple[float, ...]
    without: tuple[str, ...]


@dataclass(slots=True)
class Cell:
    """One parser on one file, with content or without: a pass each round, or why there is none."""

    passes: list[Pass] = field(default_factory=list)
    failure: str | None = None

    @property
    def speeds(self) -> list[float]:
        """MB per CPU second, round by round."""
        return [done.bytes / MEGABYTE / done.cpu_s for done in self.passes]


Key = tuple[str, bool, float]  # parser, with content, share of broken answers


def measure_parse(plan: ParsePlan, say: Say) -> list[dict[str, Any]]:
    """Measure all parsers; returns a result of each, with content and without, for ``--json``."""
    with scratch_folder("dspark-bench-") as folder:
        files = {}
        for number, broken in enumerate(plan.broken):
            file = write_answers(folder / f"answers-{number}.ndjson", plan.megabytes * MEGABYTE, broken)
            files[broken] = file
            say(f"{len(file.ends)} answers, {file.bytes / MEGABYTE:.0f} MB, {file.broken} of them broken")
        if any(plan.broken):
            say(f"broken in turn: {BROKEN_KINDS}")
        with contextlib.ExitStack() as running:
            cells = _measured(_parsers(plan, folder, running, say), files, plan.rounds, say)
    return [_result(key, cells, files[key[2]]) for key in cells]


def _parsers(plan: ParsePlan, folder: Path, running: contextlib.ExitStack, say: Say) -> list[Parser]:
    from dspark_json.cli.bench.parsers import DuckDbParser, EngineParser, OrjsonParser, PyArrowParser
    from dspark_json.engine.native import NativeEngine
    from dspark_json.engine.reference import ReferenceEngine

    kind = content_type()

    def from_json() -> Parser:
        from dspark_json.cli.bench.from_json import FromJsonParser
        from dspark_json.cli.bench.spark_session import local_spark

        return FromJsonParser(
            running.enter_context(local_spark(folder, remedy="Leave it out with --without from_json.")), kind
        )

    makers: dict[str, Callable[[], Parser]] = {
        "native": lambda: EngineParser(NativeEngine(), kind),
        "reference": lambda: EngineParser(
            ReferenceEngine(), kind, limit=int(plan.megabytes * MEGABYTE * _REFERENCE_SHARE)
        ),
        "pyarrow.json": lambda: PyArrowParser(kind),
        "duckdb": lambda: DuckDbParser(kind),
        "orjson": OrjsonParser,
        "from_json": from_json,
    }
    made = []
    for name in PARSERS:
        lacking = None if name in plan.without else _lacking(name)
        if lacking is not None:
            say(f"left out: {name}: {lacking}")
        elif name not in plan.without:
            made.append(makers[name]())
    if not made:
        raise DSparkJsonError("there is no parser left to measure", remedy="Name fewer with --without.")
    return made


def _lacking(name: str) -> str | None:
    """What an optional parser needs and this machine doesn't have."""
    if name == "duckdb" and importlib.util.find_spec("duckdb") is None:
        return "duckdb is not installed (pip install duckdb)"
    if name == "from_json":
        try:
            require_packages("pyspark", extra="spark")
            require_java()
        except MissingPackageError as error:
            return f"{error.message} ({error.remedy})"
    return None


def _measured(parsers: Sequence[Parser], files: dict[float, AnswerFile], rounds: int, say: Say) -> dict[Key, Cell]:
    from dspark_json.cli.bench.parsers import ParserFailedError

    cells = {
        (parser.name, content, broken): Cell() for parser in parsers for content in (False, True) for broken in files
    }
    # Round 0 is to warm up: code is compiled, memory is got, pages are read.
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}" if number else "warming up")
        for content in (False, True):
            for broken, file in files.items():
                # The order changes from round to round, so that a machine that gets slower or faster favours none.
                for parser in parsers if number % 2 else reversed(parsers):
                    cell = cells[parser.name, content, broken]
                    if cell.failure is not None:
                        continue
                    try:
                        done = parser.run(file, content=content)
                    except ParserFailedError as error:
                        cell.failure = " ".join(str(error).split())[:200]
                    else:
                        cell.passes += [done] if number else []
    return cells


def _result(key: Key, cells: dict[Key, Cell], file: AnswerFile) -> dict[str, Any]:
    name, content, broken = key
    cell, baseline = cells[key], cells.get((BASELINE, content, broken))
    result: dict[str, Any] = {"engine": name, "content": content, "broken": broken}
    if cell.failure is not None:
        return {**result, "mb_per_cpu_s": None, "vs_from_json": None, "fails": cell.failure}
    speed = median_over_rounds(cell.speeds)
    result |= {"mb_per_cpu_s": round(speed.value, 2), "mb_per_cpu_s_ci": [round(speed.low, 2), round(speed.high, 2)]}
    result |= {"vs_from_json": None, "vs_from_json_ci": None}
    if baseline is not None and baseline.passes:
        ratio = median_over_rounds([mine / its for mine, its in zip(cell.speeds, baseline.speeds, strict=True)])
        result |= {
            "vs_from_json": round(ratio.value, 3),
            "vs_from_json_ci": [round(ratio.low, 3), round(ratio.high, 3)],
        }
    last = cell.passes[-1]
    if last.reading_s is not None:
        with_reading = median(p.bytes / MEGABYTE / (p.cpu_s + (p.reading_s or 0.0)) for p in cell.passes)
        result["mb_per_cpu_s_with_reading"] = round(with_reading, 2)
    return {
        **result,
        "cpu_s": round(median(done.cpu_s for done in cell.passes), 4),
        "rounds": len(cell.passes),
        "bytes": last.bytes,
        "share": round(last.bytes / file.bytes, 4),
        "answers": file.within(last.bytes),
        "rows": last.rows,
        "typed": last.typed,
    }
