"""The GPU's checks, on machines that are as a test wants them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from nvml_support import HAS_COMPILER, driver_library
from text_reader_support import HostTextReader
from unit.device.rings import open_writer

from dspark_json.device import layout
from dspark_json.device.memory import HostMemory
from dspark_json.doctor.check import Check
from dspark_json.doctor.gpu import GPU_CHECKS, check_container, check_gpu, check_pid_namespace
from dspark_json.doctor.ipc import RING_BYTES, ring_problem
from dspark_json.engine.selection import Machine
from dspark_json.errors import DeviceError
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from pathlib import Path

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler for a driver's library")


def host(lane: Path) -> HostMemory:
    return HostMemory.make(lane, RING_BYTES)


def machine(folder: Path, **driver: Any) -> Machine:
    return Machine({}, driver_library(folder, **driver), lambda: 13, HostTextReader)


def verdicts(checks: list[Check]) -> dict[str, str]:
    assert [check.name for check in checks] == list(GPU_CHECKS)
    for check in checks:
        assert check.evidence
        assert check.remedy or check.verdict not in {"warn", "fail"}, check
    return {check.name: check.verdict for check in checks}


@needs_compiler
def test_on_a_machine_with_a_gpu_all_checks_are_made(tmp_path: Path) -> None:
    checks = check_gpu(wanted=True, machine=machine(tmp_path), make=host)
    assert verdicts(checks) == {name: "warn" if name == "mps" else "ok" for name in GPU_CHECKS}
    found = {check.name: check.evidence for check in checks}
    assert found["gpu_driver"] == "580.65.06"
    assert found["gpu_device"] == "NVIDIA H200 (compute capability 9.0, 140 GiB)"
    assert found["gpu_ipc"] == "a second process reads what this one put into a ring"


def test_without_a_gpu_nothing_fails_unless_one_is_wanted(tmp_path: Path) -> None:
    nowhere = Machine({}, str(tmp_path / "libnone.so"))
    checks = check_gpu(wanted=False, machine=nowhere)
    assert set(verdicts(checks).values()) == {"skipped"}
    assert {check.remedy for check in checks} == {""}, "who asked for no GPU is told to install nothing"
    wanted = check_gpu(wanted=True, machine=nowhere)
    assert verdicts(wanted)["gpu_driver"] == "fail"
    assert wanted[1] == Check("gpu_device", "skipped", "needs gpu_driver")


@needs_compiler
@pytest.mark.parametrize(
    ("driver", "name", "verdict"),
    [
        ({"version": "570.1"}, "gpu_driver", "fail"),
        ({"count": 0}, "gpu_device", "fail"),
        ({"major": 6}, "gpu_device", "fail"),
        ({"mig": 1}, "gpu_mig", "warn"),
    ],
)
def test_what_a_driver_tells_decides(tmp_path: Path, driver: dict[str, Any], name: str, verdict: str) -> None:
    found = verdicts(check_gpu(wanted=True, machine=machine(tmp_path, **driver), make=host))
    assert found[name] == verdict
    after = GPU_CHECKS[GPU_CHECKS.index(name) + 1 : -1]
    assert {found[other] for other in after} == ({"skipped"} if verdict == "fail" else {"ok"})


@needs_compiler
def test_a_ring_that_no_second_process_can_open_fails(tmp_path: Path) -> None:
    def refused(_lane: Path) -> HostMemory:
        raise DeviceError("CUDA refuses ipcGetMemHandle: cudaErrorNotSupported")

    def elsewhere(_lane: Path) -> HostMemory:
        return HostMemory.make(tmp_path, RING_BYTES)  # not where the second process looks

    for make, words in ((refused, "cudaErrorNotSupported"), (elsewhere, "No such file")):
        (failed,) = [c for c in check_gpu(wanted=True, machine=machine(tmp_path), make=make) if c.verdict == "fail"]
        assert failed.name == "gpu_ipc"
        assert words in failed.evidence
        assert "--pid=host" in failed.remedy


def test_a_second_process_reads_the_ring_of_this_one() -> None:
    assert ring_problem(host) == ""

    class Lying(HostMemory):
        def write(self, offset: int, data: bytes) -> None:
            super().write(offset, data.replace(b"7", b"8"))

    assert ring_problem(lambda lane: Lying.make(lane, RING_BYTES)) == "it read other bytes than were put there"


def test_the_writer_of_a_ring_must_be_a_process_of_this_namespace(tmp_path: Path) -> None:
    assert check_pid_namespace([]).verdict == "skipped"
    with LaneWriter.open(tmp_path) as writer:
        lane = tmp_path / "lanes" / writer.lane
        assert check_pid_namespace([tmp_path]).verdict == "skipped"
        ring = open_writer(lane)
        found = check_pid_namespace([tmp_path])
        assert (found.verdict, found.evidence) == ("ok", f"lane 0000 is written by process {os.getpid()}")
        # As from another container: the number is one that here some other process has.
        raw = (lane / layout.RING_FILE).read_bytes()
        header = layout.unpack_header(raw)
        assert header is not None
        other = layout.RingHeader(
            header.kind, header.entries, header.generation, header.size, header.device, header.handle, os.getppid()
        )
        with (lane / layout.RING_FILE).open("r+b") as file:
            file.write(other.pack())
        found = check_pid_namespace([tmp_path])
        assert found.verdict == "fail"
        assert "--pid=host" in found.remedy
        ring.close()


def test_the_container_check_says_what_is_visible() -> None:
    found = check_container()
    assert found.verdict in {"ok", "warn"}
    assert "container" in found.evidence or "--gpus" in found.evidence
    wanted = check_container(gpu=True)
    assert (wanted.verdict == "warn" and "--gpus all" in wanted.remedy) == ("is not there" in wanted.evidence)
