"""The documentation says what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_pages_made_from_tables_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts/make_docs.py", "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_tests_that_show_a_guarantee_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from guarantees import GUARANTEES

    for guarantee in GUARANTEES:
        for file, name in guarantee.tests:
            assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (guarantee.claim, name)


def test_the_contributors_map_stays_short_and_names_only_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 90
    for word in text.split("`")[1::2]:
        if word.endswith(".py") or (word.endswith("/") and " " not in word and not word.startswith("~")):
            assert (ROOT / word).exists(), word


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/answers.md",
        "docs/articles.md",
        "docs/bench.md",
        "docs/deploy.md",
        "docs/gpu.md",
        "docs/metrics.md",
        "docs/performance.md",
        "docs/proxy.md",
        "docs/spark.md",
        "docs/troubleshooting.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8")):
        assert target.startswith("http") or ((ROOT / page).parent / target).exists(), target


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_the_package_alone_pulls_in_no_spark() -> None:
    needed = {re.split(r"[<>=!~ ;\[]", line)[0] for line in requires("dspark-json") or [] if "extra ==" not in line}
    assert needed == {"httpx", "orjson", "pyarrow"}
