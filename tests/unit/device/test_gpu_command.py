"""``make test-gpu`` where there is no GPU, and what of its bundle can be tested without one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_without_a_gpu_nothing_ran_and_the_status_says_so() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/run.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode != 0
    assert done.stdout.startswith("no GPU: 0 ran (")


def test_the_tests_that_need_a_gpu_are_no_part_of_the_others() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "DSPARK_GPU_TESTS"},
    )
    assert "no tests collected" in shown.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_bundle_keeps_the_machine_code_of_its_architectures_alone(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("gpu_bundle", ROOT / "scripts/gpu_bundle.py")
    assert spec is not None
    assert spec.loader is not None
    bundle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bundle)

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
