"""What a demo shows: a progress bar, a sample of the table, where things lie."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dspark_json.cli.packages import command
from dspark_json.printable import printable

if TYPE_CHECKING:
    from dspark_json.cli.demo.answers import TypedAnswers
    from dspark_json.cli.demo.folder import DemoFolder
    from dspark_json.cli.demo.verdict import Verdict

_CONTENT_CHARACTERS: Final = 60
_VALUE_CHARACTERS: Final = 12
_WIDTH: Final = 160  # where there is no terminal to ask: both tables of typed answers fit side by side
_WIDEST: Final = 1000
_QUERY: Final = """\
  from delta import configure_spark_with_delta_pip
  from pyspark.sql import SparkSession
  builder = SparkSession.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
      "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
  spark = configure_spark_with_delta_pip(builder).getOrCreate()
  spark.read.format("delta").load("{table}").selectExpr("id", "created", "usage.total_tokens").show()"""

Report = Callable[[int, int], None]
"""Told how many answers have come and how many rows are in the table."""


class Screen:
    """Speaks to people on standard output, or on standard error where that is kept for JSON."""

    def __init__(self, *, stderr: bool) -> None:
        # A descriptor of its own: the process's are pointed elsewhere while Spark starts.
        file = os.fdopen(os.dup(2 if stderr else 1), "w", encoding="utf-8")
        self._console = Console(file=file, highlight=False, width=None if file.isatty() else _WIDTH)

    def close(self) -> None:
        """Give the descriptor back."""
        self._console.file.close()

    def say(self, text: str) -> None:
        """Print lines as they are, but for what a terminal could obey."""
        self._console.print("\n".join(map(_shown, text.split("\n"))), soft_wrap=True)

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that something takes time."""
        if not self._console.is_terminal:
            self.say(f"{text} …")
            yield
            return
        with self._console.status(escape(f"{text} …")):
            yield
        self.say(f"{text}: done")

    @contextlib.contextmanager
    def progress(self, requests: int) -> Iterator[Report]:
        """Two bars, answers and rows; yields what to call with the numbers so far."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self._console) as bars:
            answers = bars.add_task("answers received ", total=requests)
            rows = bars.add_task("rows in the table", total=requests)

            def report(received: int, written: int) -> None:
                bars.update(answers, completed=received)
                bars.update(rows, completed=written)

            yield report

    def sample(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Show rows of id, created, content, tokens."""
        table = Table(title="the newest rows", title_justify="left")
        table.add_column("id", no_wrap=True)
        table.add_column("created", no_wrap=True)
        table.add_column("content", no_wrap=True, overflow="ellipsis")
        table.add_column("tokens", justify="right", no_wrap=True, min_width=6)
        for answer_id, created, content, tokens in rows:
            text = content if len(content) <= _CONTENT_CHARACTERS else content[: _CONTENT_CHARACTERS - 1] + "…"
            table.add_row(_shown(str(answer_id)), str(created), _shown(text), str(tokens))
        self._console.print(table)

    def typed(self, answers: Sequence[TypedAnswers]) -> None:
        """Show the columns of ``parsed`` that each schema gives, side by side, and how each parse went."""
        both = Table.grid(padding=(0, 2))
        tables = []
        for one in answers:
            table = Table(title=_shown(one.title), title_justify="left")
            for column in one.columns:
                table.add_column(_shown(column), no_wrap=True, overflow="ellipsis", max_width=_VALUE_CHARACTERS)
            for row in one.rows:
                table.add_row(*map(_shown, row))
            tables.append(table)
        if tables:
            both.add_row(*tables)
            self.say('choices[].parsed by schema: .option("responseSchema", …), "inline(choices)", "parsed.*"')
            unbounded = self._console.options.update(max_width=_WIDEST)
            fits = Measurement.get(self._console, unbounded, both).maximum <= self._console.width
            for shown in (both,) if fits else tables:
                self._console.print(shown)

    def closing(self, verdict: Verdict, folder: DemoFolder) -> None:
        """Say where the table lies, how to query it, and the counts."""
        self.say(f"The table:   {folder.table}")
        self.say(f"The records: {folder.spool}  ({command()} tail {folder.spool})")
        self.say("Query it in Python, where delta-spark is installed:")
        self.say(_QUERY.format(table=folder.table))
        self.say(("OK: " if verdict.agrees else "THE COUNTS DON'T AGREE: ") + verdict.sentence())


def _shown(text: str) -> str:
    """Text from outside: no markup, and nothing that a terminal would obey."""
    return escape(printable(text))
