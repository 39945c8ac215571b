"""The live page on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dspark_json.monitor.figures import METRICS
from dspark_json.monitor.text import GROUP_HEAD, alert_line, group_cells, headline, shown
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from dspark_json.monitor.alerts import AlertWatch
    from dspark_json.monitor.figures import Figures

__all__ = ["Page", "rendered"]

_COLUMNS: Final = 6  # a name and a figure, three times
_MOST_GROUPS: Final = 20


class Page:
    """Shows each look in the place of the last one; a context manager. What is logged stands above it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._live = Live(console=Console(highlight=False), auto_refresh=False, transient=False)

    def show(self, figures: Figures, alerts: Sequence[AlertWatch]) -> None:
        """Show a look."""
        self._live.update(rendered(self._target, figures, alerts), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def rendered(target: str, figures: Figures, alerts: Sequence[AlertWatch]) -> RenderableType:
    """A look as what rich prints."""
    parts: list[RenderableType] = [Text(headline(target, figures), style="bold"), _totals(figures)]
    if figures.groups:
        parts.append(_groups(figures))
    parts += [Text(alert_line(watch), style="bold red" if watch.firing else "green") for watch in alerts]
    parts += [Text(f"DOWN: {printable(why)}", style="bold red") for why in figures.down.values()]
    parts += [Text(f"note: {printable(note)}", style="yellow") for note in figures.notes]
    return Group(*parts)


def _totals(figures: Figures) -> Table:
    table = Table.grid(padding=(0, 3))
    for column in range(_COLUMNS):
        table.add_column(justify="right" if column % 2 else "left", style="bold" if column % 2 else "dim", no_wrap=True)
    cells = [(metric.name, shown(metric, figures.value(metric.name))) for metric in METRICS]
    cells.append(("acceptance from", figures.acceptance_told_by or shown(METRICS[0], None)))
    cells.append(("lost records", f"{figures.lost:,}"))
    pairs = _COLUMNS // 2
    for start in range(0, len(cells), pairs):
        table.add_row(*(Text(text) for pair in cells[start : start + pairs] for text in pair))
    return table


def _groups(figures: Figures) -> Table:
    table = Table(title_justify="left")
    for name in GROUP_HEAD:
        words = name in {"model", "schema", "parse_status"}
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "parse_status")
    largest = sorted(figures.groups.items(), key=lambda item: -item[1].answers)
    for group, tally in largest[:_MOST_GROUPS]:
        table.add_row(*map(Text, group_cells(*group, tally)))
    if len(largest) > _MOST_GROUPS:
        table.caption = f"and {len(largest) - _MOST_GROUPS} more"
    return table
