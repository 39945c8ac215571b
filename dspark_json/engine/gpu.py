"""What a machine has of GPUs, as the driver's library NVML tells it: no CUDA context is made (DESIGN §7)."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Driver", "Gpu", "cuda_of_pylibcudf", "is_mps_running", "read_driver"]

NVML: Final = "libnvidia-ml.so.1"
MPS_FOLDER: Final = "/tmp/nvidia-mps"  # noqa: S108 - CUDA's documented default
_TEXT_BYTES: Final = 96


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``architecture`` is its compute capability; ``mig`` is whether it is cut into instances."""

    name: str
    architecture: tuple[int, int]
    memory: int
    mig: bool


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's version (``580.65.06``) and the GPUs that it sees."""

    version: str
    gpus: tuple[Gpu, ...]

    @property
    def branch(self) -> int:
        """The first number of the version; 0 where it has none."""
        first = self.version.partition(".")[0]
        return int(first) if first.isdigit() else 0


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read_driver(library: str = NVML) -> Driver:
    """Ask NVML. Raises ``EngineUnavailableError`` where there is no driver, or it does not work."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise EngineUnavailableError(
            f"there is no NVIDIA driver ({error})",
            remedy="Install the driver; a container needs --gpus all (or the device plugin) to see the host's.",
        ) from error
    _call(nvml, "nvmlInit_v2")
    try:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        _call(nvml, "nvmlSystemGetDriverVersion", text, ctypes.c_uint(_TEXT_BYTES))
        count = ctypes.c_uint()
        _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return Driver(text.value.decode("ascii", "replace"), tuple(_gpu(nvml, i) for i in range(count.value)))
    finally:
        nvml.nvmlShutdown()


def cuda_of_pylibcudf() -> int | None:
    """The CUDA version that the installed pylibcudf is made for: 12, 13, or None where none is installed."""
    for cuda in (13, 12):
        try:
            version(f"pylibcudf-cu{cuda}")
        except PackageNotFoundError:
            continue
        return cuda
    return None


def is_mps_running(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether CUDA's multi-process service is at its place: its control pipe is there."""
    return Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_FOLDER, "control").exists()


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    name = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(nvml, "nvmlDeviceGetName", handle, name, ctypes.c_uint(_TEXT_BYTES))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(nvml, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    memory = _Memory()
    _call(nvml, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    # Fails where a GPU has no such mode at all.
    has_mode = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(mode), ctypes.byref(pending)) == 0
    return Gpu(
        name=name.value.decode("utf-8", "replace"),
        architecture=(major.value, minor.value),
        memory=memory.total,
        mig=has_mode and mode.value == 1,
    )


def _call(nvml: ctypes.CDLL, name: str, *arguments: object) -> None:
    status = getattr(nvml, name)(*arguments)
    if status != 0:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        said = (nvml.nvmlErrorString(status) or b"").decode("utf-8", "replace")
        raise EngineUnavailableError(
            f"the NVIDIA driver does not work: {name} says {said or status}",
            remedy="`nvidia-smi` must work for this user; after an update of the driver the host may need a restart.",
        )
