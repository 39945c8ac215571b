"""``make test-gpu``: all that wants a GPU, in one command; the report goes to build/gpu-report.md.

Without a GPU it says so and fails: nothing ran. Where build/gpu-bundle.tar.xz lies (``make gpu-bundle`` makes it), what
is in it is used; else what is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
BUNDLE = BUILD / "gpu-bundle.tar.xz"
SITE = BUILD / "gpu-site"
REPORT = BUILD / "gpu-report.md"


def main() -> int:
    """Look for a GPU, unpack, check, test, measure."""
    started = time.monotonic()
    sys.path[:0] = [str(ROOT)]
    from dspark_json.engine.selection import GpuCheckError, Machine, check_device, check_driver

    try:
        machine = Machine(os.environ)
        driver = check_driver(machine)
        check_device(driver, machine)
    except GpuCheckError as error:
        print(f"no GPU: 0 ran ({error.message})")
        return 1
    site = unpack()
    paths = [str(ROOT), str(ROOT / "tests"), *([] if site is None else [str(site)])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "DSPARK_GPU_TESTS": "1",
        "DSPARK_GPU_REPORT": str(REPORT),
    }
    REPORT.unlink(missing_ok=True)
    failed = []
    for name, command in (
        ("doctor", ["-m", "dspark_json", "doctor", "--gpu"]),
        ("tests", ["-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", "tests/gpu"]),
        ("speed", ["tests/gpu/speed.py"]),
    ):
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    print(f"{driver.gpus[0].name}, driver {driver.version}, {time.monotonic() - started:.0f} s in all")
    print(f"failed: {', '.join(failed)}" if failed else f"all ran; the report is {REPORT}")
    return 1 if failed else 0


def unpack() -> Path | None:
    """The folder with what the bundle holds; None without a bundle. The native module goes to its place if absent."""
    if not BUNDLE.exists():
        return None
    if not SITE.exists():
        with tarfile.open(BUNDLE) as archive:
            archive.extractall(SITE, filter="tar")
    for module in SITE.glob("_native*.so"):
        target = ROOT / "dspark_json" / module.name
        if not target.exists():
            shutil.copy(module, target)
    return SITE


if __name__ == "__main__":
    sys.exit(main())
