"""The hook's mirror: what it puts into the ring, and that no failure of it costs a record or an answer."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from unit.capture.driving import (
    closing,
    counters,
    get,
    lines,
    make_hook,
    plain_app,
    serve,
    wait_for,
)
from unit.device.rings import held, open_reader

from dspark_json.capture.settings import HookSettings
from dspark_json.device import layout
from dspark_json.device.reader import RingReader
from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path


APP = plain_app()


def lane_of(folder: Path) -> Path:
    return folder / "lanes" / "0000"


def test_records_appended_after_the_first_ones_are_in_the_ring_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dspark_json")
    settings = {"DEVICE_RING": "on", "DEVICE": "host", "DEVICE_BUFFER_MB": "2"}
    with closing(make_hook(APP, tmp_path, monkeypatch, **settings)) as hook:
        serve(hook, 1)
        wait_for(lambda: "device ring of 2 MiB for lane 0000 (device host)" in caplog.text)
        serve(hook, 20)
        wait_for(lambda: counters(hook).get("records", 0) == 21)
        wait_for(lambda: counters(hook).get("device_ring_records", 0) >= 20)
        mirrored = counters(hook)["device_ring_records"]
        with open_reader(lane_of(tmp_path)) as reader:
            assert reader.header.size == 2 << 20
            assert reader.header.pid == os.getpid()
            found = held(reader, lines(tmp_path), 0)
        assert list(found) == list(range(21))[-mirrored:]
        text = asyncio.run(get(hook, "/dspark/metrics")).body.decode()
        assert f"dspark_device_ring_records_total {mirrored}\n" in text
        assert "dspark_device_ring_failures_total 0\n" in text
    assert RingReader.open(lane_of(tmp_path))[0] is None, "withdrawn when the server ended"


def test_no_ring_is_made_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        serve(hook, 3)
        wait_for(lambda: counters(hook).get("records", 0) == 3)
    assert not (lane_of(tmp_path) / layout.RING_FILE).exists()


@pytest.mark.parametrize(("ring", "failures", "level"), [("on", 1, "ERROR"), ("auto", 0, "INFO")])
def test_without_a_gpu_the_server_serves_and_one_line_says_so(
    ring: str,
    failures: int,
    level: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="dspark_json")
    # What a machine without cupy, a driver or a GPU gives; where there is one, it is not seen.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with closing(make_hook(APP, tmp_path, monkeypatch, DEVICE_RING=ring)) as hook:
        serve(hook, 1)
        wait_for(lambda: "evice ring" in caplog.text)
        serve(hook, 5)
        wait_for(lambda: counters(hook).get("records", 0) == 6)
        assert counters(hook).get("device_ring_failures", 0) == failures
        assert counters(hook).get("hook_exceptions", 0) == 0
    told = [record for record in caplog.records if "device ring" in record.getMessage()]
    assert [record.levelname for record in told] == [level]
    assert "DSPARK_JSON_DEVICE" in told[0].getMessage()


def test_a_ring_that_fails_later_is_given_up_withdrawn_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dspark_json")
    settings = {"DEVICE_RING": "on", "DEVICE": "host", "DEVICE_BUFFER_MB": "1"}
    with closing(make_hook(APP, tmp_path, monkeypatch, **settings)) as hook:
        serve(hook, 1)
        wait_for(lambda: hook._appender._mirror._ring is not None)
        os.close(hook._appender._mirror._ring._memory._descriptor)  # type: ignore[union-attr]
        serve(hook, 3)
        wait_for(lambda: counters(hook).get("device_ring_failures", 0) == 1)
        serve(hook, 3)
        wait_for(lambda: counters(hook).get("records", 0) == 7)
        assert counters(hook)["device_ring_failures"] == 1
        assert RingReader.open(lane_of(tmp_path))[0] is None
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "serving and the spool go on" in errors[0]


def test_a_spool_made_anew_has_a_ring_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "spool"
    settings = {"DEVICE_RING": "on", "DEVICE": "host", "DEVICE_BUFFER_MB": "1"}
    with closing(make_hook(APP, folder, monkeypatch, **settings)) as hook:
        serve(hook, 1)
        wait_for(lambda: hook._appender._mirror._ring is not None)
        shutil.rmtree(folder)
        wait_for((lane_of(folder) / "lock").exists)
        serve(hook, 1)
        wait_for(lambda: RingReader.open(lane_of(folder))[0] is not None)
        serve(hook, 2)
        wait_for(lambda: counters(hook).get("records", 0) >= 3)
        with open_reader(lane_of(folder)) as reader:
            assert held(reader, lines(folder), 0)
    assert counters(hook).get("device_ring_failures", 0) == 0


def test_the_settings_have_the_names_of_the_articles_too() -> None:
    assert HookSettings.from_environment({"vllm.json_output_buffer_size_mb": "64"}).device.size == 64 << 20
    assert HookSettings.from_environment({"DSPARK_DEVICE": " 01 "}).device.device == "1"
    assert HookSettings.from_environment({}).device.size == 128 << 20
    for bad in (
        {"DSPARK_DEVICE": "-1"},
        {"DSPARK_DEVICE_RING": "yes"},
        {"DSPARK_DEVICE_BUFFER_MB": "1", "vllm.json_output_buffer_size_mb": "2"},
    ):
        with pytest.raises(InvalidOptionError):
            HookSettings.from_environment(bad)


def test_neither_cupy_nor_pylibcudf_is_imported_with_the_package_or_by_a_hook_without_a_ring() -> None:
    code = (
        "import sys, dspark_json; dspark_json.JsonOutputHook\n"
        "import dspark_json.device.reader, dspark_json.device.writer, dspark_json.device.cuda\n"
        "import dspark_json.engine, dspark_json.source.rows\n"
        "print(sorted({'cupy', 'cudf', 'pylibcudf', 'rmm', 'numba'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
