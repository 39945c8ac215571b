"""``dspark-json serve``: a spool's records from its folder alone, with the hook's own routes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from integration.serving_commands import command
from unit.capture.driving import Client, ReplayApp, answer_messages, ask, closing, lines, make_hook

from dspark_json.errors import EndpointUnreachableError
from dspark_json.spool.http import HookClient, HttpSpool

if TYPE_CHECKING:
    from pathlib import Path

    from dspark_json.capture.hook import JsonOutputHook

PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
REQUEST = json.dumps(
    {"response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": {"type": "object"}}}}
).encode()


def fill(hook: JsonOutputHook, times: int) -> None:
    async def run() -> None:
        for _ in range(times):
            await ask(hook, Client(REQUEST))

    asyncio.run(run())


def hook_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> JsonOutputHook:
    return make_hook(ReplayApp(answer_messages([PLAIN])), folder, monkeypatch, DURABILITY="write")


def test_readers_get_every_record_while_the_server_is_down_and_while_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(hook_in(tmp_path, monkeypatch)) as hook:
        fill(hook, 3)
    with command("serve", str(tmp_path), API_KEY="k") as serve, HookClient(serve.address, "k", 10) as client:
        identity = client.identity()
        spool = HttpSpool(client, identity.spool_id)
        assert bytes(spool.read("0000", 0, 3).buffer) == b"".join(lines(tmp_path))
        with closing(hook_in(tmp_path, monkeypatch)) as hook:
            fill(hook, 2)
            assert spool.offsets().lanes["0000"].next == 5
            assert bytes(spool.read("0000", 3, 5).buffer) == b"".join(lines(tmp_path)[3:])
        (schema,) = spool.schemas()
        assert (schema["name"], schema["count"]) == ("order", 5)
        assert identity.folder == str(tmp_path)
        metrics = httpx.get(serve.address + "/dspark/metrics", trust_env=False).text
        assert "dspark_records_total 5\n" in metrics
        assert 'dspark_lane_next{lane="0000"} 5\n' in metrics


def test_it_may_start_before_the_spool_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "later"
    bearer = {"authorization": "Bearer k"}
    with command("serve", str(folder), API_KEY="k") as serve:
        assert b"no spool there yet" in serve.said
        with httpx.Client(base_url=serve.address, trust_env=False, headers=bearer) as client:
            answer = client.get("/dspark/v1/offsets")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "DSPARK_JSON_SPOOL_NOT_FOUND")
            assert client.get("/health/json-schema").json()["spool_id"] is None
            assert client.get("/dspark/metrics").status_code == 200
            with closing(hook_in(folder, monkeypatch)) as hook:
                fill(hook, 1)
            assert client.get("/dspark/v1/offsets").json()["lanes"]["0000"]["next"] == 1


def test_a_reader_of_one_whose_folder_has_no_spool_is_told_of_that_and_not_of_a_hook(tmp_path: Path) -> None:
    with command("serve", str(tmp_path / "later"), API_KEY="k") as serve, HookClient(serve.address, "k", 10) as client:
        with pytest.raises(EndpointUnreachableError) as caught:
            client.identity()
        assert caught.value.message == f"dspark-json serve at {serve.address} finds no spool in its folder"
        assert "Check the folder" in caught.value.remedy
        asked = httpx.get(serve.address + "/dspark/v1/offsets", trust_env=False).json()
        assert asked["error"]["message"].endswith("with the key of dspark-json serve")


def test_names_that_are_no_settings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("dspark_api_key", "hunter2")
    with command("serve", str(tmp_path), SPOLO="x") as serve:
        assert b'dspark_api_key is not a setting of the hook. Did you mean "DSPARK_API_KEY"?' in serve.said
        assert b'DSPARK_SPOLO is not a setting of the hook. Did you mean "DSPARK_SPOOL"?' in serve.said
        assert b"hunter2" not in serve.said


def test_without_a_key_records_are_given_to_nobody_and_the_start_line_says_so(tmp_path: Path) -> None:
    with command("serve", str(tmp_path)) as serve:
        for headers in ({}, {"authorization": "Basic eA=="}, {"authorization": "Bearer x"}):
            answer = httpx.get(serve.address + "/dspark/v1/offsets", headers=headers, trust_env=False)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "DSPARK_JSON_ENDPOINT_KEY")
        assert serve.end(signal.SIGTERM) == 0
        assert b"DSPARK_API_KEY is not set: records are given to nobody" in serve.said


def test_it_writes_nothing_and_says_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(hook_in(tmp_path, monkeypatch)) as hook:
        fill(hook, 3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with command("serve", str(tmp_path), API_KEY="the-secret-key") as serve:
        for key in ("the-secret-key", "another-secret"):
            httpx.get(serve.address + "/dspark/v1/offsets", headers={"authorization": f"Bearer {key}"}, trust_env=False)
        assert serve.end(signal.SIGTERM) == 0
        assert b"secret" not in serve.said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("path", "method"), [("/", "GET"), ("/v1/chat/completions", "POST"), ("/health", "GET")])
def test_it_is_no_model(tmp_path: Path, path: str, method: str) -> None:
    with command("serve", str(tmp_path)) as serve:
        answer = httpx.request(method, serve.address + path, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "DSPARK_JSON_ROUTE")


def test_a_folder_with_a_broken_spool_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "spool.json").write_text("[]")
    done = subprocess.run(
        [sys.executable, "-m", "dspark_json", "serve", str(tmp_path), "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "DSPARK_JSON_SPOOL_FORMAT" in done.stderr
