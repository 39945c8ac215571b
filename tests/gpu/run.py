"""``make test-gpu``: all that wants a GPU, in one command; what came of it goes to build/gpu-report.md and .json.

Without a GPU it says so and fails: nothing ran, and there is no report. The one of an earlier run is kept as
gpu-report.previous.md and .json. Where build/gpu-bundle.tar.xz lies (``make gpu-bundle`` makes it), what is in it is
used; else what is installed. ``--out DIR`` puts the reports elsewhere, ``--seconds N`` is the time for all,
``--bundle FILE`` another bundle.

A GPU is lent by the minute, perhaps once. So what is quick and tells most comes first, a step that fails or takes too
long ends no other, and the reports are written anew after each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
BUNDLE = BUILD / "gpu-bundle.tar.xz"
SITE = BUILD / "gpu-site"
REPORT = "gpu-report.md"
DOCUMENT = "gpu-report.json"
SPEED = "gpu-speed.jsonl"
SECONDS = 450.0
SHORTEST = 5.0  # what is not worth beginning a step for
TAIL = 4_000  # characters of a step's output that are kept

_PYTEST = ("-m", "pytest", "-q", "-W", "default")
STEPS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("packages", 60, ("tests/gpu/packages.py",)),
    ("doctor", 90, ("-m", "dspark_json", "doctor", "--gpu")),
    ("speed to 16 MiB", 90, ("tests/gpu/speed.py", "--sizes", "1,16")),
    ("ring", 90, (*_PYTEST, "tests/gpu/test_ring.py")),
    ("engine", 120, (*_PYTEST, "tests/gpu/test_engine.py", "-k", "not 256")),
    ("speed from 64 MiB", 150, ("tests/gpu/speed.py", "--sizes", "64,256")),
    ("256 MiB", 90, (*_PYTEST, "tests/gpu/test_engine.py", "-k", "256")),
)


@dataclass(slots=True)
class Step:
    """What came of a step; ``verdict`` is ``ok``, ``failed``, ``timed out`` or ``not run``."""

    name: str
    verdict: str
    seconds: float
    output: str


def main() -> int:
    """Look for a GPU, unpack, and do all steps."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=BUILD, metavar="DIR")
    parser.add_argument("--bundle", type=Path, default=BUNDLE, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N")
    given = parser.parse_args()
    set_aside(given.out)
    sys.path[:0] = [str(ROOT)]
    from dspark_json.engine.selection import GpuCheckError, Machine, check_device, check_driver

    try:
        machine = Machine(os.environ)
        driver = check_driver(machine)
        check_device(driver, machine)
    except GpuCheckError as error:
        print(f"no GPU: 0 ran ({error.message})")
        return 1
    told = f"{driver.gpus[0].name}, driver {driver.version}, {os.cpu_count()} cores, Python {sys.version.split()[0]}"
    print(told, flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    environment = surroundings(unpack(given.bundle), given.out)
    steps: list[Step] = []
    for name, limit, command in STEPS:
        left = given.seconds - (time.monotonic() - started)
        steps.append(run(name, command, min(limit, left), environment))
        report(given.out, told, time.monotonic() - started, steps)
    failed = [step for step in steps if step.verdict != "ok"]
    print(f"{time.monotonic() - started:.0f} s in all; the report is {given.out / REPORT}")
    print("; ".join(f"{step.name}: {step.verdict}" for step in failed) or "all ran")
    return 1 if failed else 0


def set_aside(out: Path) -> None:
    """Give what an earlier run has told another name: it is not to be taken for this one's."""
    for told in (out / name for name in (REPORT, DOCUMENT, SPEED)):
        if told.exists():
            told.replace(told.with_suffix(f".previous{told.suffix}"))


def surroundings(site: Path | None, out: Path) -> dict[str, str]:
    """The environment of the steps."""
    paths = [str(ROOT), str(ROOT / "tests"), *([] if site is None else [str(site)]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "DSPARK_GPU_TESTS": "1",
        "DSPARK_GPU_SPEED": str(out / SPEED),
    }


def run(name: str, command: tuple[str, ...], limit: float, environment: dict[str, str]) -> Step:
    """One step; its output is shown as it comes, and kept."""
    print(f"== {name}", flush=True)
    if limit < SHORTEST:
        print("no time left", flush=True)
        return Step(name, "not run", 0.0, "")
    began = time.monotonic()
    output: list[str] = []
    # In a session of its own, so that what it has started ends with it.
    with subprocess.Popen(
        ["timeout", "--signal=INT", "--kill-after=5", f"{limit:.0f}", sys.executable, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            output.append(line)
        status = process.wait()
    verdict = {0: "ok", 124: "timed out", 137: "timed out"}.get(status, "failed")
    seconds = time.monotonic() - began
    print(f"== {name}: {verdict}, {seconds:.0f} s", flush=True)
    return Step(name, verdict, round(seconds, 1), "".join(output)[-TAIL:])


def report(out: Path, told: str, seconds: float, steps: list[Step]) -> None:
    """Write both reports, of the steps that there were so far."""
    speed = out / SPEED
    rows = [json.loads(line) for line in speed.read_text().splitlines()] if speed.exists() else []
    document = {"machine": told, "seconds": round(seconds, 1), "steps": [asdict(one) for one in steps], "speed": rows}
    (out / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    lines = [told, "", "| step | verdict | s |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.verdict} | {one.seconds:.0f} |" for one in steps]
    tables = [row for row in rows if "content" in row]
    if tables:
        names = list(dict.fromkeys(name for row in tables for name in row))
        lines += ["", "MB of lines per second; shares of the time in %, memory in MiB.", ""]
        lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        lines += [f"| {' | '.join(str(row.get(name, '')) for name in names)} |" for row in tables]
    lines += ["", *(f"{name}: {value}" for row in rows if "content" not in row for name, value in row.items())]
    (out / REPORT).write_text("\n".join(lines) + "\n", encoding="utf-8")


def unpack(bundle: Path) -> Path | None:
    """The folder with what the bundle holds; None without a bundle. The native module goes to its place if absent."""
    if not bundle.exists():
        return None
    if not SITE.exists() or SITE.stat().st_mtime < bundle.stat().st_mtime:
        shutil.rmtree(SITE, ignore_errors=True)
        partial = SITE.with_name(SITE.name + ".part")
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(bundle) as archive:
            archive.extractall(partial, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
        os.utime(partial)
        partial.rename(SITE)
    for module in SITE.glob("_native*.so"):
        target = ROOT / "dspark_json" / module.name
        if not target.exists():
            shutil.copy(module, target)
    return SITE


if __name__ == "__main__":
    sys.exit(main())
