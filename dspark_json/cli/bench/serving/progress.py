"""Progress bars on standard error, where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def progress(totals: Mapping[str, int]) -> Iterator[Callable[[str], None]]:
    """A bar for each name; yields what to call with a name whenever one more of it is done."""
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {name: bars.add_task(name, total=total) for name, total in totals.items()}
        yield lambda name: bars.advance(tasks[name])
