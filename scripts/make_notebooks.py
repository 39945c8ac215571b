"""Make the .ipynb files of ``notebooks/`` from their Databricks sources, executed, with their outputs.

``python scripts/make_notebooks.py [NAME …]`` executes each in a kernel of its own, with a Spark of its own; ``--check``
says which notebooks have other cells than their source and exits with 1, and executes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = ROOT / "notebooks"
_FIRST: Final = "# Databricks notebook source\n"
_BREAK: Final = "\n# COMMAND ----------\n"
_MAGIC: Final = "# MAGIC"
_MARKDOWN: Final = f"{_MAGIC} %md\n"
_IMAGE: Final = "image/png"
_CELL_SEC: Final = 900
_METADATA: Final = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Spark's own log is for the terminal, not for the notebook.
_KERNEL_ARGUMENTS: Final = ["--IPKernelApp.capture_fd_output=False"]
_SPARK: Final = {
    "spark.jars.ivy": str(ROOT / "build" / "ivy"),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def sources() -> dict[str, Path]:
    """The Databricks sources by their names."""
    return {path.stem: path for path in sorted(NOTEBOOKS.glob("*.py")) if path.read_text().startswith(_FIRST)}


def cells(source: str) -> list[dict[str, Any]]:
    """The cells of a Databricks source, as a notebook has them."""
    found: list[dict[str, Any]] = []
    for number, text in enumerate(source.removeprefix(_FIRST).split(_BREAK)):
        cell = text.strip("\n") + "\n"
        about: dict[str, Any] = {"id": f"cell-{number:02}", "metadata": {}}
        if cell.startswith(_MARKDOWN):
            lines = cell.removeprefix(_MARKDOWN).splitlines()
            prose = "\n".join(line.removeprefix(_MAGIC).removeprefix(" ") for line in lines)
            found.append({"cell_type": "markdown", **about, "source": _lines(prose)})
        else:
            code = {"execution_count": None, "outputs": []}
            found.append({"cell_type": "code", **about, **code, "source": _lines(cell.rstrip("\n"))})
    return found


def stale() -> list[str]:
    """The notebooks that are not there or whose cells are not those of their source."""
    return [name for name, path in sources().items() if _written(path) != [_stable(c) for c in cells(path.read_text())]]


def make(path: Path) -> None:
    """Execute a source and write its notebook."""
    import nbformat
    from nbclient import NotebookClient

    document = {"cells": cells(path.read_text()), "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    notebook = nbformat.reads(json.dumps(document), as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_CELL_SEC,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=_KERNEL_ARGUMENTS,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                _refuse_traces(path.stem, output)
    text = json.dumps({**document, "cells": [_plain(cell) for cell in notebook.cells]}, indent=1, ensure_ascii=False)
    path.with_suffix(".ipynb").write_text(text + "\n")


def _refuse_traces(name: str, output: Any) -> None:
    """What is committed names no place of the machine that it was made on."""
    text = json.dumps(
        {**output, "data": {kind: data for kind, data in output.get("data", {}).items() if kind != _IMAGE}}
    )
    places = (str(ROOT), str(Path.home()), tempfile.gettempdir(), socket.gethostname())
    for place in places:
        if re.search(rf"(?<!\w){re.escape(place)}(?!\w)", text):
            raise SystemExit(f"{name}: an output names {place}, a place of this machine: {text[:300]}")


def _written(path: Path) -> list[dict[str, Any]]:
    notebook = path.with_suffix(".ipynb")
    return [_stable(cell) for cell in json.loads(notebook.read_text())["cells"]] if notebook.exists() else []


def _stable(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: cell[name] for name in ("cell_type", "source")}


def _plain(cell: Any) -> dict[str, Any]:
    """A cell as it was given, with its outputs."""
    plain: dict[str, Any] = json.loads(json.dumps(cell))
    plain["source"] = _lines(plain["source"])
    return plain


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> int:
    """Make or check the notebooks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--check", action="store_true", help="compare the cells, execute nothing")
    arguments = parser.parse_args()
    if arguments.check:
        names = stale()
        if names:
            print(f"out of date: {', '.join(names)}; run make notebooks")
        return 1 if names else 0
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = [f"--conf {name}={value}" for name, value in _SPARK.items()]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*settings, "pyspark-shell"])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.pop("DSPARK_API_KEY", None)
    for name, path in sources().items():
        if not arguments.names or name in arguments.names:
            print(f"executing {name} …", flush=True)
            make(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
