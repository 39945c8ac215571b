"""The committed notebooks are those of their sources, executed, and tell nothing of the machine that did it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLACES = re.compile(r"/(?:tmp|home|root|var|work|Users)/|127\.0\.0\.1|localhost:")


def test_they_have_the_cells_of_their_sources() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts/make_notebooks.py", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert check.returncode == 0, check.stdout + check.stderr
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_have_results_and_a_plot_and_name_no_place(path: Path) -> None:
    code = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert "image/png" in kinds
    assert "text/html" in kinds
    for output in outputs:
        texts = [
            *output.get("text", []),
            *(text for kind, text in output.get("data", {}).items() if kind != "image/png"),
        ]
        assert not PLACES.search(json.dumps(texts)), output
