"""Checks of the GPU path, in the order in which one needs the other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.device import layout
from dspark_json.doctor.check import Check, failed, fine, skipped, warned
from dspark_json.doctor.ipc import RING_BYTES, ring_problem
from dspark_json.engine.gpu import is_mps_running
from dspark_json.engine.selection import GpuCheckError, Machine, check_device, check_driver, check_import
from dspark_json.engine.selftest import self_test
from dspark_json.errors import DeviceError, EngineUnavailableError
from dspark_json.spool.lane import is_held
from dspark_json.spool.lane_files import lane_names
from dspark_json.spool.layout import lane_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dspark_json.device.memory import DeviceMemory
    from dspark_json.engine.gpu import Driver
    from dspark_json.engine.text_reader import TextReader

__all__ = ["GPU_CHECKS", "check_container", "check_gpu", "check_pid_namespace"]

GPU_CHECKS: Final = ("gpu_driver", "gpu_device", "gpu_mig", "cudf_import", "cudf_reads", "gpu_ipc", "mps")
_NOT_WANTED: Final = "no GPU was asked for (--gpu)"
_SHM: Final = Path("/dev/shm")  # noqa: S108 - what --ipc is about
_DOCKER_SHM: Final = 64 << 20  # what a container gets unless told otherwise


def check_gpu(
    *,
    wanted: bool,
    machine: Machine | None = None,
    make: Callable[[Path], DeviceMemory] | None = None,
) -> list[Check]:
    """The checks ``GPU_CHECKS``; after one that fails those that need it are skipped.

    Unless a GPU is ``wanted``, a missing one is no failure. ``machine`` and ``make`` (the memory of a ring) are the
    real ones unless given.
    """
    place = machine or Machine(os.environ)
    checks: list[Check] = []
    try:
        driver = check_driver(place)
        checks.append(fine("gpu_driver", driver.version))
        check_device(driver, place)
        checks += [fine("gpu_device", _described(driver)), _mig(driver)]
        reader = check_import(place)
        checks += [fine("cudf_import", "pylibcudf loads"), _reads(reader), _ipc(make or _cuda_memory)]
    except GpuCheckError as error:
        if wanted:
            checks.append(failed(error.check, error.message, error.remedy))
        else:
            checks.append(skipped(error.check, f"{error.message}; {_NOT_WANTED}"))
    checks.append(_mps(place) if len(checks) > 1 else skipped("mps", "no GPU"))
    return _with_the_rest(checks)


def check_container(*, gpu: bool = False) -> Check:
    """``container``: what the flags ``--gpus``, ``--ipc`` and ``--pid`` of a container leave visible.

    Where a ``gpu`` is wanted, one that the container does not show is a warning.
    """
    if not (Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()):
        return fine("container", "this is no Docker or Podman container")
    shown = Path("/dev/nvidiactl").exists()
    seen = [f"/dev/nvidiactl {'is' if shown else 'is not'} there (--gpus)"]
    shm = os.statvfs(_SHM) if _SHM.is_dir() else None
    private = shm is not None and shm.f_frsize * shm.f_blocks <= _DOCKER_SHM
    size = "as small as a container's own" if private else "larger than a container's own by default"
    first = _first_process()
    space = "the host's" if first in {"systemd", "init"} else "its own"
    seen += [f"{_SHM} is {size} (--ipc)", f"process 1 is {first!r}: {space} PID namespace (--pid)"]
    if private:
        return warned(
            "container",
            "; ".join(seen),
            "Server and reader in one container, or both with --ipc=host (and --pid=host for the device ring).",
        )
    if gpu and not shown:
        return warned("container", "; ".join(seen), "Start the container with --gpus all, on a host with a driver.")
    return fine("container", "; ".join(seen))


def check_pid_namespace(folders: Sequence[Path]) -> Check:
    """``pid_namespace``: the writers of the spools' device rings are of this PID namespace, as CUDA IPC asks.

    Raises ``OSError`` where the lanes can't be looked at.
    """
    found = []
    for lane, raw in (ring for folder in folders for ring in _rings(folder)):
        header = layout.unpack_header(raw)
        if header is None or not _is_written(lane):
            continue
        if not _holds(header.pid, lane / "lock"):
            return failed(
                "pid_namespace",
                f"the writer of lane {lane.name} says it is process {header.pid}, and that one here is another",
                "Run server and reader in one container, or both with --pid=host (and --ipc=host).",
            )
        found.append(f"lane {lane.name} is written by process {header.pid}")
    if not found:
        return skipped("pid_namespace", "no device ring is in use (DSPARK_DEVICE_RING of the server)")
    return fine("pid_namespace", ", ".join(found))


def _rings(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """The lanes of a spool that have a device ring, each with the header of its file."""
    for name in lane_names(folder):
        lane = lane_folder(folder, name)
        try:
            with (lane / layout.RING_FILE).open("rb") as file:
                yield lane, file.read(layout.HEADER_BYTES)
        except FileNotFoundError:
            continue


def _described(driver: Driver) -> str:
    return ", ".join(
        f"{gpu.name} (compute capability {gpu.architecture[0]}.{gpu.architecture[1]}, {gpu.memory >> 30} GiB)"
        for gpu in driver.gpus
    )


def _mig(driver: Driver) -> Check:
    cut = [gpu.name for gpu in driver.gpus if gpu.mig]
    if cut:
        return warned(
            "gpu_mig",
            f"{', '.join(cut)} is cut into MIG instances: memory can't be shared between processes there",
            "The device ring can't be read; the spool is. Parsing on the GPU works within one instance.",
        )
    return fine("gpu_mig", "no GPU is cut into MIG instances")


def _reads(reader: TextReader) -> Check:
    from dspark_json.engine.native import NativeEngine

    remedy = "Set parse_mode to cpu, and please report this with the versions of pylibcudf and the driver."
    try:
        problem = self_test(reader, NativeEngine())
    except EngineUnavailableError as error:
        return failed("cudf_reads", error.message, error.remedy)
    except Exception as error:  # noqa: BLE001 - CUDA, cuDF and rmm raise errors of many kinds
        problem = f"{type(error).__name__}: {error}"
    if problem:
        return failed("cudf_reads", problem, remedy)
    return fine("cudf_reads", "the rows of the self-test are those of the native engine")


def _ipc(make: Callable[[Path], DeviceMemory]) -> Check:
    remedy = (
        "CUDA IPC needs Linux without MIG, one PID and IPC namespace for both processes (--pid=host --ipc=host), and "
        "no expandable segments; without it the spool is read."
    )
    try:
        problem = ring_problem(make)
    except (DeviceError, OSError) as error:
        problem = str(error)
    if problem:
        return failed("gpu_ipc", problem, remedy)
    return fine("gpu_ipc", "a second process reads what this one put into a ring")


def _mps(place: Machine) -> Check:
    if is_mps_running(place.environment):
        return fine("mps", "CUDA's multi-process service runs: gpuShare can be kept")
    return warned(
        "mps",
        "CUDA's multi-process service does not run: parsing and the model take turns on the whole GPU",
        "Start it as the server's user: nvidia-cuda-mps-control -d",
    )


def _cuda_memory(_lane: Path) -> DeviceMemory:
    from dspark_json.device.cuda import CudaMemory

    return CudaMemory.make(0, RING_BYTES)


def _with_the_rest(checks: list[Check]) -> list[Check]:
    """All checks in their order, those that were not come to as skipped."""
    done = {check.name: check for check in checks}
    before = next((name for name in GPU_CHECKS if name in done and done[name].verdict in {"fail", "skipped"}), "")
    return [done.get(name, skipped(name, f"needs {before}")) for name in GPU_CHECKS]


def _holds(pid: int, lock: Path) -> bool:
    """Whether a process of this PID namespace has the lane's lock open."""
    try:
        wanted = lock.stat()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = entry.stat()
            except OSError:
                continue
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except PermissionError:
        return Path(f"/proc/{pid}").exists()  # another user's: all that can be said
    except OSError:
        pass
    return False


def _is_written(lane: Path) -> bool:
    """Whether somebody writes the lane now; what a writer that ended has left tells nothing."""
    try:
        return is_held(lane)
    except OSError:
        return False


def _first_process() -> str:
    try:
        return Path("/proc/1/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "unknown"
