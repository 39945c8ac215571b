"""Each way in which a GPU can be missing is an error of its own, or the reason for the other engine; never silence."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import choice_line, spans
from nvml_support import HAS_COMPILER, driver_library
from text_reader_support import HostTextReader

from dspark_json.engine import build_plan
from dspark_json.engine.cudf import MIN_BATCH_BYTES, CudfEngine
from dspark_json.engine.gpu import read_driver
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.selection import Machine, choose, take_share
from dspark_json.engine.selftest import self_test, trial
from dspark_json.errors import EngineUnavailableError
from dspark_json.source import rows
from dspark_json.source.rows import choose_engine, row_batches
from dspark_json.source.settings import reader_settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark_json.engine.text_fields import TextField
    from dspark_json.engine.text_reader import TextBatch

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler for a driver's library")


def machine(
    folder: Path, *, environment: dict[str, str] | None = None, cuda: int | None = 13, **driver: Any
) -> Machine:
    """A machine with a GPU, but for what is said."""
    return Machine(
        environment={} if environment is None else environment,
        nvml=driver_library(folder, **driver),
        cuda_of_package=lambda: cuda,
        make_reader=HostTextReader,
        trial=lambda _reader, _native: (0.010, 0.030),
    )


class WrongReader(HostTextReader):
    """Takes the last of two lines' braces for the end of one, as some version might."""

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        assert isinstance(data, memoryview)
        text = bytes(data).replace(b'\\":1.0', b'\\":100').replace(b'"a":1.0', b'"a":100')
        return super().read(memoryview(text), ends, members)


class BrokenReader(HostTextReader):
    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        raise MemoryError("std::bad_alloc: out_of_memory")


class BlindReader(HostTextReader):
    """Gives nothing but nulls: no wrong row comes of that, and no use."""

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        assert isinstance(data, memoryview)
        return super().read(memoryview(bytes(data).replace(b'"_dspark"', b'"_dspork"')), ends, members)


def missing(folder: Path) -> dict[str, tuple[Machine, str, str]]:
    """Every way: the machine, the check that fails, words of what is said."""
    for name in ("old", "none", "weak", "dead", "fine"):
        (folder / name).mkdir()
    fine = machine(folder / "fine")

    def with_reader(make: Any) -> Machine:
        return Machine({}, fine.nvml, fine.cuda_of_package, make)

    def not_installed() -> HostTextReader:
        from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf

        return CudfTextReader(import_pylibcudf())  # type: ignore[return-value]

    return {
        "no driver": (Machine({}, str(folder / "libnone.so")), "gpu_driver", "there is no NVIDIA driver"),
        "driver not loaded": (machine(folder / "dead", init=9), "gpu_driver", "Driver Not Loaded"),
        "driver too old": (machine(folder / "old", version="570.10"), "gpu_driver", "CUDA 13 needs 580 or newer"),
        "no GPU": (machine(folder / "none", count=0), "gpu_device", "the driver sees no GPU"),
        "hidden": (
            machine(folder / "fine", environment={"CUDA_VISIBLE_DEVICES": ""}),
            "gpu_device",
            "hides all 1 GPU(s)",
        ),
        "too old a GPU": (
            machine(folder / "weak", major=6),
            "gpu_device",
            "compute capability 6.0, and cuDF needs 7.0",
        ),
        "no cuDF": (with_reader(not_installed), "cudf_import", "pylibcudf can't be imported"),
        "cuDF fails": (with_reader(BrokenReader), "cudf_reads", "MemoryError: std::bad_alloc"),
        "cuDF differs": (with_reader(WrongReader), "cudf_reads", "another value of"),
        "cuDF reads nothing": (with_reader(BlindReader), "cudf_reads", "plain records were not read"),
    }


def test_each_way_a_gpu_can_be_missing_fails_gpu_accelerated_and_is_the_reason_of_auto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", None)  # not installed, wherever this runs
    for way, (where, check, words) in missing(tmp_path).items():
        with pytest.raises(EngineUnavailableError) as caught:
            choose("gpu-accelerated", NativeEngine, machine=where)
        assert f"parse_mode is gpu-accelerated, and the check {check} failed: " in caught.value.message, way
        assert words in caught.value.message, way
        assert caught.value.remedy.endswith('Or set parse_mode to "auto" or "cpu".'), way
        assert len(caught.value.remedy) > 50, way
        choice = choose("auto", NativeEngine, machine=where)
        assert choice.name == "native", way
        assert choice.make().name == "native"
        assert choice.reason == f"parse_mode is auto, and the check {check} failed: {_what(caught.value.message)}", way


def _what(message: str) -> str:
    return message.split(" failed: ", 1)[1]


def test_with_all_checks_held_the_gpu_parses_and_says_on_what(tmp_path: Path) -> None:
    found = machine(tmp_path)
    choice = choose("gpu-accelerated", NativeEngine, machine=found)
    assert (choice.name, choice.reason) == (
        "cudf",
        "parse_mode is gpu-accelerated, and all checks hold: NVIDIA H200, driver 580.65.06",
    )
    records = spans([choice_line('{"a":1}')] * 20)
    engine = choice.make()
    assert engine.parse(records, build_plan())[1].fallback == 0, "however small the batch: there is no silent fallback"
    automatic = choose("auto", NativeEngine, machine=found)
    assert automatic.reason == (
        "parse_mode is auto, and all checks hold: NVIDIA H200, driver 580.65.06; a trial batch took 10 ms there and "
        "30 ms with the native engine; batches below 16 MiB are parsed by the native engine"
    )
    assert automatic.make().parse(records, build_plan())[1].fallback == 20
    assert choose("cpu", NativeEngine, machine=found).name == "native"


def test_auto_takes_a_gpu_only_where_it_is_the_faster_one(tmp_path: Path) -> None:
    slow = replace(machine(tmp_path), trial=lambda _reader, _native: (0.050, 0.030))
    choice = choose("auto", NativeEngine, machine=slow)
    assert choice.name == "native"
    assert "the GPU is not faster: NVIDIA H200" in choice.reason
    assert "took 50 ms there and 30 ms with the native engine" in choice.reason
    assert choose("gpu-accelerated", NativeEngine, machine=slow).name == "cudf", "who requires it gets it"
    gpu_s, cpu_s = trial(HostTextReader(), NativeEngine(), 20_000)
    assert gpu_s > 0 < cpu_s


def test_an_older_driver_is_enough_for_cuda_12(tmp_path: Path) -> None:
    enough, old = (machine(tmp_path, version=version, cuda=12) for version in ("535.183", "525.1"))
    assert choose("auto", NativeEngine, machine=enough).name == "cudf"
    assert "CUDA 12 needs 535" in choose("auto", NativeEngine, machine=old).reason


def test_a_mig_instance_is_seen(tmp_path: Path) -> None:
    assert read_driver(driver_library(tmp_path, mig=1)).gpus[0].mig
    assert read_driver(driver_library(tmp_path, count=2)).gpus[0].memory == 150_754_820_096


def test_the_gpu_share_is_set_where_mps_divides_the_gpu_and_is_a_warning_where_it_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = tmp_path / "mps"
    pipe.mkdir()
    (pipe / "control").touch()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    take_share(30, environment)
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    take_share(50, environment)
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30", "who set it before has decided"
    assert not caplog.records
    alone = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    take_share(12, alone)
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in alone
    assert "gpuShare 12 % can't be kept" in caplog.text
    assert reader_settings({"path": "/x"}, {}).gpu_share == 12
    assert reader_settings({"path": "/x", "gpuShare": "40"}, {}).gpu_share == 40


def test_the_reader_says_once_which_engine_parses_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rows, "_choices", {})
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    caplog.set_level(logging.INFO)
    assert choose_engine("auto").name == "native"
    assert choose_engine("auto").name == "native"
    assert choose_engine("auto") is not choose_engine("auto"), "an engine belongs to one thread"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("engine native parses: parse_mode is auto, and the check gpu_d")
    with pytest.raises(EngineUnavailableError, match="the check gpu_d"):
        choose_engine("gpu-accelerated")


def test_what_the_gpu_did_and_did_not_is_logged_for_each_split(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    plan = build_plan()
    engine = CudfEngine(HostTextReader(), NativeEngine(), MIN_BATCH_BYTES)
    list(row_batches([spans([choice_line("x")] * 3)], engine, plan, plan.columns))  # type: ignore[list-item]
    assert "dspark_gpu_kernel_time_ms 0.000, dspark_gpu_fallback_records 3 of 3" in caplog.text


def test_the_self_test_holds_for_a_reader_that_is_right() -> None:
    assert self_test(HostTextReader(), NativeEngine()) == ""


def test_the_error_survives_the_way_to_the_user() -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        choose("gpu-accelerated", NativeEngine, machine=Machine({}, "libnone.so"))
    assert json.dumps(str(caught.value)).startswith('"DSPARK_JSON_ENGINE_UNAVAILABLE: parse_mode is gpu-accelerated')
