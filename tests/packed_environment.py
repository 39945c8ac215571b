"""An environment with this package as ``venv-pack`` packs one: an archive for Spark's ``--archives``."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import shutil
import sys
import tarfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
# Of a package that is installed for its headers and tests too.
_NEEDLESS: Final = {"tests", "include", "__pycache__"}


def make_environment(folder: Path) -> Path:
    """A virtual environment that has what a node needs, this checkout's package included; gives its interpreter."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in _required("dspark-json", set()):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." not in file.parts and not _NEEDLESS.intersection(file.parts):
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(distribution.locate_file(file)), packages / file)
    for name in ("dspark_json", "pyspark_dspark_json"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin" / "python"


def pack(environment: Path, archive: Path) -> Path:
    """Pack an environment into ``archive`` (.tar.gz)."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, arcname=".")
    return archive


def _required(name: str, seen: set[str]) -> Iterator[str]:
    """The packages that a package needs without any extra, and theirs."""
    for line in importlib.metadata.distribution(name).requires or ():
        needed = re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0]
        if needed in seen or "extra ==" in line:
            continue
        seen.add(needed)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another Python or system
            importlib.metadata.distribution(needed)
            yield needed
            yield from _required(needed, seen)
