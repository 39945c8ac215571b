"""The control routes answer for the golden spool as the golden files say (tests/golden/README.md)."""

from __future__ import annotations

import base64
import json
import os
import shutil
from typing import TYPE_CHECKING

import httpx
import pytest
from unit.capture.driving import TESTS, serving

from dspark_json.capture.appender import Appender
from dspark_json.capture.control import ControlRoutes
from dspark_json.capture.settings import HookSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

GOLDEN = TESTS / "golden/v1"
EXCHANGES = sorted((GOLDEN / "http").glob("*.json"))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that answers for a copy of the golden spool; no writer is started on it."""
    folder: Path = tmp_path_factory.mktemp("golden") / "spool"
    shutil.copytree(GOLDEN / "spool", folder)
    settings = HookSettings.from_environment({"DSPARK_API_KEY": "k", "PATH": os.environ["PATH"]})
    appender = Appender(settings, lambda _: None)
    appender.folder = folder
    routes = ControlRoutes(settings, appender)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        await routes.answer(scope["path"], scope, send)

    with serving(app) as found:
        yield found
    routes.close()


def test_there_are_golden_answers() -> None:
    assert len(EXCHANGES) >= 15


@pytest.mark.parametrize("path", EXCHANGES, ids=lambda path: path.stem)
def test_the_answer_is_the_golden_one(path: Path, port: int) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    method, target = golden["request"].split()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        answer = client.request(method, target, headers={"authorization": "Bearer k"})
    assert answer.status_code == golden["status"]
    expected = base64.b64decode(golden["body_base64"]) if "body_base64" in golden else golden["body"].encode()
    assert answer.headers["content-type"] == golden["headers"]["content-type"]
    if golden["status"] == 200:
        assert answer.content == expected
        for name, value in golden["headers"].items():
            assert answer.headers[name] == value
        return
    found, wanted = answer.json()["error"], json.loads(expected)["error"]
    assert answer.headers["content-length"] == str(len(answer.content))
    del found["message"], wanted["message"]
    assert found == wanted
