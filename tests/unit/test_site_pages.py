"""Texts from elsewhere as pages of the site: their links lead to pages, or name the file."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("folder", "text", "page"),
    [
        ("", "[docs/spark.md](docs/spark.md#a-cluster)", "[spark](spark.md#a-cluster)"),
        ("", "[rules](SECURITY.md), [site](https://a.org/b.md)", "[rules](security.md), [site](https://a.org/b.md)"),
        ("docs", "[GPU](gpu.md), [start](../README.md)", "[GPU](gpu.md), [start](index.md)"),
        ("docs", "[here](#below)", "[here](#below)"),
        ("docs", "[alerts](../docker/prometheus/rules.yml)", "alerts (`docker/prometheus/rules.yml`)"),
        ("docs", "[`rules.yml`](../docker/prometheus/rules.yml)", "`rules.yml`"),
    ],
)  # fmt: skip
def test_links_are_those_of_pages(monkeypatch: pytest.MonkeyPatch, folder: str, text: str, page: str) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from site_pages import with_page_links

    assert with_page_links(text, Path(folder)) == page


def test_a_notebook_is_its_prose_its_code_and_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from site_pages import notebook_page

    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["3 rows\n"]},
        {"output_type": "display_data", "data": {"text/plain": "+", "text/html": "<table>\n\n</table>\n"}},
        {"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": "aGk=\n"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text"]},
        {"cell_type": "code", "source": ["rows.show()"], "outputs": outputs},
    ]
    page = notebook_page({"cells": cells})
    assert page.startswith("# Title\nText\n\n```python\nrows.show()\n```\n\n```text\n3 rows\n```\n")
    assert "<table>\n</table>" in page
    assert 'src="data:image/png;base64,aGk="' in page
