"""A spool that is full, read-only, gone or can't be opened never stops the server, and is told loudly."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unit.capture.driving import (
    PLAIN,
    Client,
    ask,
    close,
    closing,
    counters,
    get,
    make_hook,
    plain_app,
    records,
    scope_for,
    serve,
    wait_for,
)

from dspark_json.capture import notices
from dspark_json.errors import SpoolWriteError

if TYPE_CHECKING:
    import pytest


APP = plain_app()


def test_a_spool_that_can_not_be_opened_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "spool"
    folder.write_text("a file where the spool should be")
    with closing(make_hook(APP, folder, monkeypatch)) as hook:
        serve(hook, 5)
        wait_for(lambda: counters(hook).get("dropped_records") == 5)
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 2
        assert "answers are NOT kept, serving goes on: DSPARK_JSON_SPOOL_WRITE" in errors[0]
        assert str(folder) in errors[0]
        assert "DROPPED" in errors[1]
        assert "DSpark JSON mode enabled" not in caplog.text
        folder.unlink()
        hook._appender.wait_until_opened(5)
        wait_for(lambda: hook._appender._writer is not None)
        serve(hook)
    assert len(records(folder)) == 1
    assert counters(hook)["dropped_records"] == 5, "what was counted before the spool was open is kept"
    assert "DSpark JSON mode enabled" in caplog.text


def test_records_that_fail_to_be_written_are_dropped_and_later_ones_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        serve(hook)
        writer = hook._appender._writer
        assert writer is not None
        writer._settings = type(writer._settings)(min_free_ratio=1.0)  # no file system is that empty
        writer._space_checked = float("-inf")
        serve(hook, 2)
        writer._settings = type(writer._settings)()
        writer._space_checked = float("-inf")
        serve(hook)
    found = counters(hook)
    assert len(records(tmp_path)) == 2
    assert (found["dropped_records"], found["unrecorded_answers"]) == (2, 2)
    assert SpoolWriteError.code in caplog.text
    assert "free space" in caplog.text


def test_a_folder_that_is_removed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "spool"
    with closing(make_hook(APP, folder, monkeypatch, DURABILITY="write")) as hook:
        serve(hook)
        first = json.loads((folder / "spool.json").read_text())["spool_id"]
        shutil.rmtree(folder)
        wait_for((folder / "spool.json").exists)
        serve(hook)
        assert json.loads((folder / "spool.json").read_text())["spool_id"] != first
        assert len(records(folder)) == 1
        assert counters(hook).get("unrecorded_answers", 0) == 0
    assert SpoolWriteError.code in caplog.text


FULL = """
import asyncio, os, resource, signal, sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
body = b'{{"pad":"' + b"x" * 900 + b'"}}'
hook = JsonOutputHook(ReplayApp(answer_messages([body])))
async def run():
    for _ in range(20):
        assert (await ask(hook, Client())).body == body
asyncio.run(run())
found = counters(hook)
close(hook)
print(json.dumps([found, len(records(Path(os.environ["DSPARK_SPOOL"])))]))
"""


def test_a_full_disk_drops_records_and_keeps_those_before(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[2])
    environment = {**os.environ, "DSPARK_SPOOL": str(tmp_path / "s"), "DSPARK_DURABILITY": "write"}
    done = subprocess.run(
        [sys.executable, "-c", FULL.format(tests=tests)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, kept = json.loads(done.stdout)
    assert 0 < kept < 20
    assert found["records"] == kept
    assert found["dropped_records"] == found["unrecorded_answers"] == 20 - kept
    assert "could not be written" in done.stderr
    assert "Raise the limit on the size of a file" in done.stderr


def test_control_routes_say_that_no_spool_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "spool"
    folder.write_text("a file where the spool should be")

    async def run() -> None:
        before = await get(hook, "/dspark/v1/offsets", key="k")
        assert before.sent[0]["status"] == 503
        await ask(hook, Client(), scope_for())
        for path in ("/dspark/v1/offsets", "/dspark/v1/spools/x/lanes/0000/records"):
            answer = await get(hook, path, key="k", query="from=0&to=1" if "lanes" in path else "")
            assert answer.sent[0]["status"] == 503
            assert json.loads(answer.body)["error"]["code"].startswith("DSPARK_JSON_SPOOL")
        health = json.loads((await get(hook, "/health/json-schema", key="k")).body)
        assert health["json_output_hook_enabled"] is True
        assert health["spool_id"] is None
        metrics = await get(hook, "/dspark/metrics")
        assert metrics.sent[0]["status"] == 200

    with closing(make_hook(APP, folder, monkeypatch, API_KEY="k")) as hook:
        asyncio.run(run())


def test_control_routes_work_after_the_writer_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await ask(hook, Client())
        await asyncio.to_thread(hook._appender.close)
        answer = await get(hook, "/dspark/v1/offsets", key="k")
        assert json.loads(answer.body)["lanes"]["0000"]["next"] == 1
        assert (await ask(hook, Client())).body == PLAIN, "answers after the end are served too"

    with closing(make_hook(APP, tmp_path, monkeypatch, API_KEY="k")) as hook:
        asyncio.run(run())
    assert counters(hook)["dropped_records"] == 1


def test_a_failing_pass_over_one_answer_keeps_its_text_and_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dspark_json.capture import making, recording

    make = recording.make_recording
    odd = b'{"guided_json":1}'  # nothing for a native draft

    def sometimes(captured: Any, *arguments: Any, **more: Any) -> object:
        if captured.request == [odd]:
            raise ZeroDivisionError
        return make(captured, *arguments, **more)

    async def run() -> None:
        for request in (b"{}", odd, b"{}"):
            await ask(hook, Client(request))

    monkeypatch.setattr(making, "make_recording", sometimes)
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    found = records(tmp_path)
    assert [record["_dspark"]["completed"] for record in found] == [True, False, True]
    assert found[1]["_dspark"]["body"] == PLAIN.decode()
    assert found[1]["_dspark"]["error"]["code"] == "capture_failed"
    assert counters(hook)["hook_exceptions"] == 1
    assert "ZeroDivisionError" in caplog.text


def test_trouble_is_told_each_second_at_first_and_each_minute_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr("dspark_json.capture.notices.time.monotonic", lambda: now[0])
    notice = notices.Notice()
    for tick in range(20_000):
        now[0] = tick / 100
        notice.say("trouble")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 10 + 3
    assert messages[0] == "DSpark JSON: trouble"
    assert messages[1] == "DSpark JSON: trouble (99 more since the last line)"
    assert messages[10] == "DSpark JSON: trouble (5999 more since the last line)"


def test_closing_twice_is_closing_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_hook(APP, tmp_path, monkeypatch)
    close(hook)
    serve(hook)
    close(hook)
    close(hook)
    assert len(records(tmp_path)) == 1
