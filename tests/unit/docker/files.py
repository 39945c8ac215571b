"""The files of ``docker/``, and what is in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"


def document(path: str) -> Any:
    """The one document of a YAML file."""
    return yaml.safe_load((DOCKER / path).read_text(encoding="utf-8"))


def documents(path: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((DOCKER / path).read_text(encoding="utf-8")))


def instructions() -> list[tuple[str, str, str]]:
    """``(stage, instruction, rest)`` of the Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", "", (DOCKER / "Dockerfile").read_text(encoding="utf-8"))
    stage, found = "", []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(None, 1)
        if word == "FROM":
            stage = rest.split(" AS ")[1]
        found.append((stage, word, rest))
    return found


def copied(stage: str) -> dict[str, Path]:
    """The files that a stage copies from the repository: place in the image → place here."""
    places = {}
    for where, word, rest in instructions():
        if where == stage and word == "COPY" and "--from" not in rest:
            *sources, target = shlex.split(rest)
            for source in sources:
                name = f"{target}{Path(source).name}" if target.endswith("/") else target
                places[name] = ROOT / source
    return places
