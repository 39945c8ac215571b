"""When a demo has waited long enough."""

from __future__ import annotations

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from dspark_json.cli.demo.clients import demo_requests
from dspark_json.cli.demo.run import DemoRun
from dspark_json.cli.model_server import model_server, served_model
from dspark_json.errors import EndpointAnswerError, InvalidOptionError
from dspark_json.replay import RunningServer
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_answers_that_leave_no_record_are_not_waited_for(tmp_path: Path) -> None:
    LaneWriter.open(tmp_path / "spool", WriterSettings(min_free_ratio=0.0)).close()
    access = SpoolReader(tmp_path / "spool")
    with RunningServer(arguments=("--no-hook", "--speed", "100"), log=tmp_path / "log") as running:
        run = DemoRun(lambda: 0, access, access.offsets())
        requests = list(demo_requests(4, served_model(running.address, None), any_model=False))
        began = time.monotonic()
        receipts = run.until_all_in_table(running.address, requests, 2, lambda _received, _rows: None)
    assert time.monotonic() - began < 20
    assert [receipt.problem for receipt in receipts] == [""] * 4
    assert run.records() == 0


def test_records_that_are_there_are_waited_for_until_they_are_rows(tmp_path: Path) -> None:
    settings = {"DSPARK_SPOOL": str(tmp_path / "spool"), "DSPARK_DURABILITY": "write"}
    with RunningServer(arguments=("--speed", "100"), settings=settings, log=tmp_path / "log") as running:
        access = SpoolReader(tmp_path / "spool")
        asked = 0

        def rows() -> int:
            nonlocal asked
            asked += 1
            return 4 if asked > 5 else 0

        run = DemoRun(rows, access, access.offsets())
        requests = list(demo_requests(4, served_model(running.address, None), any_model=False))
        run.until_all_in_table(running.address, requests, 2, lambda _received, _rows: None)
        assert (run.records(), asked) == (4, 6)


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("hunter2\n", "hünter2"):
        monkeypatch.setenv("VLLM_API_KEY", key)
        with pytest.raises(InvalidOptionError) as caught:
            model_server("http://127.0.0.1:1", None)
        assert "nter2" not in str(caught.value)


@pytest.mark.parametrize("body", ["<html>hello</html>", "{}", None])
def test_a_plain_web_server_is_said_to_be_no_openai_type_one(tmp_path: Path, body: str | None) -> None:
    if body is not None:
        (tmp_path / "v1").mkdir()
        (tmp_path / "v1" / "models").write_text(body)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(EndpointAnswerError, match="is no OpenAI-type server"):
            served_model(f"http://127.0.0.1:{server.server_port}", None)
        server.shutdown()
