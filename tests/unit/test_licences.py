"""What the wheel ships of others may be shipped under Apache-2.0."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Permissive licences that ask for no more than a notice.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met: every part of an AND, one part of an OR."""
    plain = expression.replace("/", " OR ").replace(" WITH LLVM-exception", "")
    while (inner := re.search(r"\(([^()]*)\)", plain)) is not None:
        plain = plain.replace(inner[0], "MIT" if allowed(inner[1]) else "refused")
    return all(any(one.strip() in ALLOWED for one in part.split(" OR ")) for part in plain.split(" AND "))


def test_every_crate_of_the_native_engine_has_a_permissive_licence() -> None:
    listed = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", ROOT / "native/Cargo.toml"],
        capture_output=True,
        text=True,
        check=True,
    )
    packages = json.loads(listed.stdout)["packages"]
    assert len(packages) > 10
    assert [p["name"] for p in packages if not allowed(p["license"] or "none")] == []


def test_the_judge_of_licences_refuses_what_is_not_listed() -> None:
    assert allowed("MIT OR Apache-2.0")
    assert allowed("(MIT OR GPL-3.0) AND Unicode-3.0")
    assert not allowed("GPL-3.0")
    assert not allowed("MIT AND GPL-3.0")
    assert not allowed("none")
