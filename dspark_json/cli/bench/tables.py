"""Tables of figures, printed for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table, *, stderr: bool, width: int) -> None:
    """Print to standard error or output; ``width`` columns where there is no terminal to ask."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    Console(stderr=stderr, width=None if terminal else width).print(table)
