"""What is told to install an optional part is right for an installed package and for a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dspark_json.extras import installing

ROOT = Path(__file__).resolve().parents[2]


def test_both_an_installed_package_and_a_checkout_have_their_command() -> None:
    assert installing("demo") == "pip install 'dspark-json[demo]' (in a checkout: pip install '.[demo]')"


def test_every_extra_that_is_named_exists_and_none_is_named_in_another_way() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "dspark_json").rglob("*.py")}
    named = {name for text in sources.values() for name in re.findall(r"""(?:installing\(|extra=)['"]([\w-]+)""", text)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"demo", "proxy", "delta", "gpu"} <= named <= set(project["optional-dependencies"])
    others = [path.name for path, text in sources.items() if "pip install 'dspark-json[" in text]
    assert others == ["extras.py"]
