"""A hostile answer costs bounded memory, harms no other record, and says nothing in logs or metrics that is its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from unit.capture.driving import (
    Client,
    ReplayApp,
    all_lines,
    answer_messages,
    ask,
    capture,
    closing,
    get,
    lines,
    make_hook,
    records,
    scope_for,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM = "text/event-stream"
MIB = 1 << 20
RECORD_MIB = 16
PLAIN = b'{"id":"c","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'

# Answers as (content type, head, what is repeated, tail); "%d" in the middle part counts up.
BOMBS = {
    "one line without an end": (STREAM, b'data: {"choices":[{"index":0,"delta":{"content":"', b"x", b""),
    "one event as large as a record": (
        STREAM, b'data: {"choices":[{"index":0,"delta":{"content":"', b"x", b'"}}]}\n\ndata: [DONE]\n\n',
    ),
    "a million empty events": (STREAM, b"", b"data: {}\n\n", b""),
    "events that hold nothing": (STREAM, b"", b"data:\n", b"\n\n"),
    "line feeds": (STREAM, b"", b"\n", b""),
    "carriage returns": (STREAM, b"", b"\r", b""),
    "a million empty lists": (STREAM, b'data: {"x":[', b"[],", b"[]]}\n\n"),
    "a million log probabilities": (
        STREAM, b'data: {"choices":[{"index":0,"logprobs":{"content":[', b"[],", b"[]]}}]}\n\n",
    ),
    "a million choices": (STREAM, b'data: {"choices":[', b'{"index":%d},', b'{"index":0}]}\n\n'),
    "a million choices one by one": (STREAM, b"", b'data: {"choices":[{"index":%d}]}\n\n', b""),
    "a million tool calls": (
        STREAM, b'data: {"choices":[{"index":0,"delta":{"tool_calls":[', b'{"index":%d},', b'{"index":0}]}}]}\n\n',
    ),
    "a million members": (STREAM, b'data: {"a":1', b',"%d":1', b"}\n\n"),
    "an event nested deeply": (STREAM, b"data: ", b"[", b"\n\n"),
    "a body nested deeply": ("application/json", b'{"tools":', b'{"a":', b"}"),
    "a body of control characters": ("application/json", b"", b"\x01", b""),
    "a body that is no UTF-8": ("application/json", b"", b"\xff", b""),
}  # fmt: skip

SERVER = """
import sys
sys.path[:0] = [{tests!r}]
from unit.capture.driving import *
content_type, head, unit, tail, total = {bomb!r}
number = 0

def pieces():
    global number
    yield head
    left = total - len(head) - len(tail)
    while left > 0:
        if b"%d" in unit:
            piece = b"".join(unit.replace(b"%d", b"%d" % n) for n in range(number, number + 4000))
            number += 4000
        else:
            piece = unit * (65536 // len(unit))
        piece = piece[:left // len(unit) * len(unit)] if left < len(piece) and b"%d" not in unit else piece
        if not piece:
            break
        yield piece
        left -= len(piece)
    yield tail

async def app(scope, receive, send):
    if scope["path"] != CHAT:
        return
    await receive()
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type.encode())]}})
    for piece in pieces():
        await send({{"type": "http.response.body", "body": piece, "more_body": True}})
    await send({{"type": "http.response.body", "body": b"", "more_body": False}})

class Sink(Client):
    async def send(self, message):
        pass

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

hook = JsonOutputHook(app)
hook._start({{}})
hook._appender.wait_until_opened(20)
before = peak()
asyncio.run(ask(hook, Sink(b'{{"model":"m"}}')))
app = hook.app = ReplayApp(answer_messages([{plain!r}]))
asyncio.run(ask(hook, Client(b'{{"model":"m"}}')))
hook._appender.close(100)
print(json.dumps([peak() - before, counters(hook)]))
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_answer_costs_bounded_memory_and_no_other_record(name: str, tmp_path: Path) -> None:
    size = (RECORD_MIB + 4 if name == "one line without an end" else RECORD_MIB - 1) * MIB
    source = SERVER.format(tests=str(Path(__file__).parents[2]), bomb=(*BOMBS[name], size), plain=PLAIN)
    settings = {"SPOOL": str(tmp_path / "s"), "MAX_RECORD_MB": str(RECORD_MIB), "QUEUE_MB": "64"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **{f"DSPARK_{key}": value for key, value in settings.items()}},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cost, found = json.loads(done.stdout)
    assert cost < 20 * RECORD_MIB * MIB
    assert found.get("dropped_records", 0) == found.get("hook_exceptions", 0) == 0
    hostile, plain = lines(tmp_path / "s")
    assert len(hostile) < 4 * RECORD_MIB * MIB
    assert json.loads(plain)["_dspark"]["completed"] is True
    meta = json.loads(hostile)["_dspark"]
    assert meta["seq"] == 0
    assert len(done.stderr) < 10_000, "nothing of the answer is in the log"


def test_an_endless_stream_is_not_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"' + b"x" * 60_000 + b'"}}]}\n\n'
    held = []

    async def app(scope: object, receive: object, send: object) -> None:
        for message in answer_messages([event] * 1000, content_type=STREAM):
            await send(message)  # type: ignore[operator]
            held.append(hook._desk.held)

    with closing(make_hook(app, tmp_path, monkeypatch, MAX_RECORD_MB="1")) as hook:
        asyncio.run(ask(hook, Client()))
    assert max(held) < 1.2 * MIB
    (record,) = records(tmp_path)
    assert record["_dspark"]["error"]["code"] == "record_too_large"


REQUEST_IDS = [
    b'x", "seq": 99, "lane": "9999',
    b"a\r\nx-evil: 1",
    b'line\nbreak\n{"_dspark":{}}',
    b"\x00\x1b[31mred\x7f",
    b"\xff\xfe\xe2\x80\xa8",
    b'{label="x"} 1\nevil_total 1',
    b"%s%n%(key)s{0}",
    b"\\u0022\\",
]


@pytest.mark.parametrize("request_id", REQUEST_IDS)
@pytest.mark.parametrize("where", ["request", "response", "answer"])
def test_a_request_id_stays_inside_its_string(
    request_id: bytes, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = request_id.decode("latin-1")
    body = json.dumps({**json.loads(PLAIN), **({"id": text} if where == "answer" else {})}).encode()
    messages = answer_messages([body])
    if where == "response":
        messages[0]["headers"].append((b"x-request-id", request_id))
    headers: Sequence[tuple[bytes, bytes]] = [(b"x-request-id", request_id)] if where == "request" else []
    record = capture(messages, tmp_path, monkeypatch, headers=headers)
    assert record["_dspark"]["request_id"] == text
    assert (record["_dspark"]["seq"], record["_dspark"]["lane"]) == (0, "0000")
    assert all_lines(tmp_path).count(b"\n") == 1
    assert all_lines(tmp_path).isascii() or all_lines(tmp_path).decode()
    assert text not in caplog.text

    async def metrics() -> bytes:
        with closing(make_hook(ReplayApp([]), tmp_path, monkeypatch)) as hook:
            hook._start(scope_for())
            return (await get(hook, "/dspark/metrics")).body

    found = asyncio.run(metrics()).decode()
    assert "evil" not in found
    assert all(line.startswith(("dspark_", "# ")) for line in found.splitlines())


@pytest.mark.parametrize("model", ["m\r\nERROR forged line", "\x1b[31m", "x" * 100_000])
def test_a_model_name_can_not_forge_a_log_line(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = json.dumps({"model": model, "response_format": {"type": "json_object"}}).encode()
    capture(answer_messages([PLAIN]), tmp_path, monkeypatch, request=asked)
    told = [record.getMessage() for record in caplog.records if "json_object" in record.getMessage()]
    assert len(told) == 1
    assert told[0].isprintable()
    assert len(told[0]) < 1000
