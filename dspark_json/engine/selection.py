"""Which engine parses, and why: ``parse_mode`` (DESIGN §7). Never a silent fallback.

``gpu-accelerated`` is the GPU engine or an error with the check that failed. ``auto`` is the GPU engine where all
checks hold and it is the faster one in a trial, else the native one; the reason is kept and logged.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.engine.cudf import MIN_BATCH_BYTES, CudfEngine
from dspark_json.engine.gpu import NVML, Driver, cuda_of_pylibcudf, is_mps_running, read_driver
from dspark_json.engine.selftest import self_test, trial
from dspark_json.errors import DSparkJsonError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from dspark_json.engine.base import Engine
    from dspark_json.engine.text_reader import TextReader

__all__ = ["DEFAULT_GPU_SHARE", "Choice", "GpuCheckError", "Machine", "choose", "find_gpu"]

_log = logging.getLogger(__name__)

DEFAULT_GPU_SHARE: Final = 12  # percent of the GPU's threads
OLDEST_DRIVER: Final = {12: 535, 13: 580}
OLDEST_ARCHITECTURE: Final = (7, 0)
_SHARE_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


class GpuCheckError(Exception):
    """A check that a GPU engine needs failed; ``check`` is its name, the texts are as in our errors."""

    def __init__(self, message: str, *, check: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.check = check
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine's name, why it is that one, and how one more of it is made: each thread needs its own."""

    name: str
    reason: str
    make: Callable[[], Engine]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the checks look; all but the environment as the real machine has it unless a test gives another."""

    environment: MutableMapping[str, str]
    nvml: str = NVML
    cuda_of_package: Callable[[], int | None] = cuda_of_pylibcudf
    make_reader: Callable[[], TextReader] | None = None
    trial: Callable[[TextReader, Engine], tuple[float, float]] = trial


def choose(
    parse_mode: str,
    native: Callable[[], Engine],
    *,
    gpu_share: int = DEFAULT_GPU_SHARE,
    machine: Machine | None = None,
) -> Choice:
    """The engine for ``auto``, ``cpu`` or ``gpu-accelerated``; ``native`` makes the one of the CPU.

    Raises ``EngineUnavailableError`` for ``gpu-accelerated`` where a check fails: it names the check, what was found
    and what to do.
    """
    if parse_mode == "cpu":
        return Choice("native", "parse_mode is cpu", native)
    least = MIN_BATCH_BYTES if parse_mode == "auto" else 0
    place = machine or Machine(os.environ)
    try:
        reader, found = find_gpu(native(), gpu_share, place)
    except GpuCheckError as error:
        if parse_mode == "auto":
            reason = f"parse_mode is auto, and the check {error.check} failed: {error.message}"
            return Choice("native", reason, native)
        raise EngineUnavailableError(
            f"parse_mode is {parse_mode}, and the check {error.check} failed: {error.message}",
            remedy=f'{error.remedy} Or set parse_mode to "auto" or "cpu".'.lstrip(),
        ) from error
    if parse_mode == "auto":
        gpu_s, cpu_s = place.trial(reader, native())
        found += f"; a trial batch took {gpu_s * 1e3:.0f} ms there and {cpu_s * 1e3:.0f} ms with the native engine"
        if gpu_s >= cpu_s:
            return Choice("native", f"parse_mode is auto, and the GPU is not faster: {found}", native)
    small = f"; batches below {least >> 20} MiB are parsed by the native engine" if least else ""
    reason = f"parse_mode is {parse_mode}, and all checks hold: {found}{small}"
    return Choice("cudf", reason, lambda: CudfEngine(reader, native(), least))


def find_gpu(native: Engine, gpu_share: int, machine: Machine) -> tuple[TextReader, str]:
    """A text reader on a GPU and what it runs on, after all checks; ``GpuCheckError`` at the first that fails."""
    driver = check_driver(machine)
    check_device(driver, machine)
    take_share(gpu_share, machine.environment)
    reader = check_import(machine)
    try:
        problem = self_test(reader, native)
    except Exception as error:
        raise _cudf_failed(f"{type(error).__name__}: {error}") from error
    if problem:
        raise _cudf_failed(f"its rows are not those of the native engine: {problem}")
    return reader, f"{driver.gpus[0].name}, driver {driver.version}"


def check_driver(machine: Machine) -> Driver:
    """The check ``gpu_driver``: there is a driver, new enough for the CUDA version of the installed cuDF."""
    try:
        driver = read_driver(machine.nvml)
    except EngineUnavailableError as error:
        raise GpuCheckError(error.message, check="gpu_driver", remedy=error.remedy) from error
    cuda = machine.cuda_of_package() or min(OLDEST_DRIVER)
    if driver.branch < OLDEST_DRIVER[cuda]:
        raise GpuCheckError(
            f"the NVIDIA driver is {driver.version}, and CUDA {cuda} needs {OLDEST_DRIVER[cuda]} or newer",
            check="gpu_driver",
            remedy="Update the driver of the host, or install 'dspark-json[gpu]' for CUDA 12.",
        )
    return driver


def check_device(driver: Driver, machine: Machine) -> None:
    """The check ``gpu_device``: a GPU that this process may see, of an architecture that cuDF is made for."""
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if not driver.gpus:
        raise GpuCheckError(
            "the driver sees no GPU",
            check="gpu_device",
            remedy="`nvidia-smi -L` must list one; containers need --gpus.",
        )
    if visible is not None and visible.strip() in {"", "-1", "NoDevFiles"}:
        raise GpuCheckError(
            f'CUDA_VISIBLE_DEVICES is "{visible}" and hides all {len(driver.gpus)} GPU(s)',
            check="gpu_device",
            remedy="Unset it for the process that parses.",
        )
    best = max(driver.gpus, key=lambda gpu: gpu.architecture)
    if best.architecture < OLDEST_ARCHITECTURE:
        raise GpuCheckError(
            f"{best.name} has compute capability {_dotted(best.architecture)}, and cuDF needs "
            f"{_dotted(OLDEST_ARCHITECTURE)}",
            check="gpu_device",
            remedy="Use a GPU of the Volta generation or a later one.",
        )


def check_import(machine: Machine) -> TextReader:
    """The check ``cudf_import``: pylibcudf is installed and loads."""
    try:
        return _cudf_reader() if machine.make_reader is None else machine.make_reader()
    except DSparkJsonError as error:
        raise GpuCheckError(error.message, check="cudf_import", remedy=error.remedy) from error


def take_share(percent: int, environment: MutableMapping[str, str]) -> None:
    """Take no more than this part of the GPU's threads, where the multi-process service divides them; else warn.

    CUDA reads the variable when it is first used, so it is set before that.
    """
    if _SHARE_VARIABLE in environment:
        return  # somebody has decided already
    if is_mps_running(environment):
        environment[_SHARE_VARIABLE] = str(percent)
    else:
        _log.warning(
            "gpuShare %d %% can't be kept: CUDA's multi-process service (MPS) does not run here, so parsing and the "
            "model take turns on the whole GPU",
            percent,
        )


def _cudf_reader() -> TextReader:
    from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf

    return CudfTextReader(import_pylibcudf())


def _cudf_failed(what: str) -> GpuCheckError:
    return GpuCheckError(
        f"cuDF does not read JSON as it must ({what})",
        check="cudf_reads",
        remedy="Please report it with what `dspark-json doctor --gpu` shows.",
    )


def _dotted(architecture: tuple[int, int]) -> str:
    return f"{architecture[0]}.{architecture[1]}"
