"""``make test-gpu`` where there is no GPU, and what of its bundle can be tested without one."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nvml_support import HAS_COMPILER, driver_library

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[3]
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler")


def program(path: str) -> ModuleType:
    """A script as a module."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses look there
    spec.loader.exec_module(made)
    return made


def test_without_a_gpu_nothing_ran_the_status_says_so_and_no_report_of_an_earlier_run_is_taken_for_this_one(
    tmp_path: Path,
) -> None:
    names = ("gpu-report.md", "gpu-report.json", "gpu-speed.jsonl")
    for name in names:
        (tmp_path / name).write_text(f"{name} of an earlier run")
    done = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/run.py", "--out", tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode != 0
    assert done.stdout.startswith("no GPU: 0 ran (")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {name.replace(".", ".previous."): f"{name} of an earlier run" for name in names}


def test_the_tests_that_need_a_gpu_are_no_part_of_the_others() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "DSPARK_GPU_TESTS"},
    )
    assert "no tests collected" in shown.stdout


@needs_compiler
def test_what_there_is_no_time_for_is_not_run_and_the_reports_say_what_was(tmp_path: Path) -> None:
    library = Path(driver_library(tmp_path))
    library.rename(tmp_path / "libnvidia-ml.so.1")
    done = subprocess.run(
        [
            *(sys.executable, ROOT / "tests/gpu/run.py", "--out", tmp_path / "out"),
            *("--seconds", str(program("tests/gpu/run.py").SHORTEST + 0.5), "--bundle", tmp_path / "none"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stdout.startswith("NVIDIA H200, driver 580.65.06, ")
    report = json.loads((tmp_path / "out/gpu-report.json").read_text(encoding="utf-8"))
    verdicts = {step["name"]: step["verdict"] for step in report["steps"]}
    assert list(verdicts) == [name for name, _, _ in program("tests/gpu/run.py").STEPS]
    assert verdicts["packages"] != "not run", "the one that there was time for, if not for all of it on a busy machine"
    assert verdicts["256 MiB"] == "not run"
    assert "native" in report["steps"][0]["output"] or verdicts["packages"] == "timed out"
    table = (tmp_path / "out/gpu-report.md").read_text(encoding="utf-8")
    assert "| 256 MiB | not run | 0 |" in table


def test_a_step_that_takes_too_long_is_ended_and_what_it_said_is_kept() -> None:
    run = program("tests/gpu/run.py").run
    step = run("slow", ("-c", "import time; print('begun', flush=True); time.sleep(60)"), 5, dict(os.environ))
    assert (step.verdict, step.output.splitlines()[0]) == ("timed out", "begun")
    assert step.seconds < 15
    assert run("wrong", ("-c", "raise SystemExit(3)"), 30, dict(os.environ)).verdict == "failed"


def test_the_report_has_the_speeds_that_were_measured_and_what_was_raised(tmp_path: Path) -> None:
    rows = [
        {"self-test": "holds"},
        {"content": "text", "MiB": 1, "GPU, host": "MemoryError", "4 cores": 7},
        {"content": "text", "MiB": 16, "GPU, host": 5, "GPU, device": 6, "4 cores": 8},
    ]
    (tmp_path / "gpu-speed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program("tests/gpu/run.py").report(tmp_path, "a GPU", 1.0, [])
    text = (tmp_path / "gpu-report.md").read_text(encoding="utf-8")
    assert "| content | MiB | GPU, host | 4 cores | GPU, device |" in text
    assert "| text | 1 | MemoryError | 7 |  |" in text
    assert "| text | 16 | 5 | 8 | 6 |" in text
    assert "self-test: holds" in text


@needs_compiler
def test_a_bundle_has_a_library_with_nvcomps_names_and_nothing_of_it(tmp_path: Path) -> None:
    bundle = program("scripts/gpu_bundle.py")
    site = tmp_path / "site"
    for folder in ("libcudf/lib64", "nvidia/libnvcomp/lib64"):
        (site / folder).mkdir(parents=True)
    source = "int nvcompOne(void); int nvcompTwo(void); int other(void) { return nvcompOne() + nvcompTwo(); }"
    (tmp_path / "cudf.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", site / "libcudf/lib64/libcudf.so", tmp_path / "cudf.c"], check=True)
    place = site / "nvidia/libnvcomp/lib64"
    (place / "libnvcomp.so.5").write_bytes(b"x" * 1000)
    (place / "libnvcomp_cpu.so.5").write_bytes(b"x" * 1000)
    bundle.replace_nvcomp(site)
    bundle.share_namespace(site)
    assert [path.name for path in place.iterdir()] == ["libnvcomp.so.5"]
    library = ctypes.CDLL(str(place / "libnvcomp.so.5"))
    assert (library.nvcompOne(), library.nvcompTwo()) == (bundle.NVCOMP_ERROR, bundle.NVCOMP_ERROR)
    bundle.pack(site, tmp_path / "b.tar.xz")
    with tarfile.open(tmp_path / "b.tar.xz") as archive:
        archive.extractall(tmp_path / "back", **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    assert (tmp_path / "back/nvidia/libnvcomp/lib64/libnvcomp.so.5").read_bytes() == (
        place / "libnvcomp.so.5"
    ).read_bytes()
    shown = subprocess.run(
        [sys.executable, "-c", "import nvidia; print(*nvidia.__path__)"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{site}:{tmp_path / 'back'}"},
        check=True,
    ).stdout
    assert {str(site / "nvidia"), str(tmp_path / "back/nvidia")} <= set(shown.split())


@needs_compiler
def test_a_bundle_keeps_the_machine_code_of_its_architectures_alone(tmp_path: Path) -> None:
    bundle = program("scripts/gpu_bundle.py")

    def image(architecture: int, code: bytes) -> bytes:
        head = bundle.IMAGE.pack(2, 0x101, 64, len(code)) + bytes(12) + struct.pack("<I", architecture)
        return head.ljust(64, b"\0") + code

    images = image(80, b"A" * 96) + image(90, b"B" * 96) + image(100, b"C" * 96)
    fat = bundle.CONTAINER.pack(bundle.CONTAINER_MAGIC, 1, 16, len(images)) + images
    listed = ",".join(str(byte) for byte in fat)
    (tmp_path / "fat.c").write_text(
        f'__attribute__((section(".nv_fatbin"), used, aligned(8))) static unsigned char fat[] = {{{listed}}};\n'
        "int answer(void) { return 42; }\n"
    )
    library = tmp_path / "libfat.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "fat.c"], check=True)
    size = library.stat().st_size
    bundle.keep_architectures(library, {90})
    data = library.read_bytes()
    assert len(data) == size
    assert (b"A" * 96 in data, b"B" * 96 in data, b"C" * 96 in data) == (False, True, False)
    library.write_bytes(b"no library")
    bundle.keep_architectures(library, {90})
    assert library.read_bytes() == b"no library"
