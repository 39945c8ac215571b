"""The hook's memory is bounded, and what goes beyond is counted (DESIGN §2 rules 3 and 7)."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import (
    Client,
    ReplayApp,
    answer_messages,
    ask,
    capture,
    closing,
    counters,
    make_hook,
    records,
    scope_for,
)

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "text/event-stream"
HEAD = b'data: {"id":"c","object":"chat.completion.chunk","created":7,"model":"m","choices":[]}\n\n'
MIB = 1 << 20


def event(size: int) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * size + b'"}}]}\n\n'


@pytest.mark.parametrize("durability", ["async", "write"])
def test_a_stream_above_the_limit_is_recorded_without_choices(
    durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [HEAD, *([event(100_000)] * 15), b"data: [DONE]\n\n"]
    messages = answer_messages(bodies, content_type=STREAM)
    app = ReplayApp(messages)

    async def run() -> None:
        client = await ask(hook, Client(b'{"model":"asked"}'))
        assert client.body == b"".join(bodies)
        assert hook._desk.held == 0

    with closing(make_hook(app, tmp_path, monkeypatch, MAX_RECORD_MB="1", DURABILITY=durability)) as hook:
        asyncio.run(run())
    (record,) = records(tmp_path)
    meta = record.pop("_dspark")
    assert record == {"id": "c", "object": "chat.completion", "created": 7, "model": "m"}
    assert meta["error"]["code"] == "record_too_large"
    assert (meta["completed"], meta["disconnected"], meta["request_id"]) == (False, False, "c")
    found = counters(hook)
    assert found["oversize_records"] == 1
    assert found["oversize_bytes"] == sum(map(len, bodies))


def test_a_body_above_the_limit_is_recorded_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b'{"id":"c","pad":"', *([b"x" * 100_000] * 15), b'"}']
    record = capture(answer_messages(bodies), tmp_path, monkeypatch, MAX_RECORD_MB="1")
    assert list(record) == ["_dspark"]
    assert record["_dspark"]["error"]["code"] == "record_too_large"
    assert record["_dspark"]["body"] is None


def test_an_answer_of_exactly_the_limit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"pad":"' + b"x" * (MIB - 10) + b'"}'
    assert len(body) == MIB
    record = capture(answer_messages([body]), tmp_path / "a", monkeypatch, MAX_RECORD_MB="1")
    assert len(record["pad"]) == MIB - 10
    record = capture(answer_messages([body + b" "]), tmp_path / "b", monkeypatch, MAX_RECORD_MB="1")
    assert record["_dspark"]["error"]["code"] == "record_too_large"


def test_answers_under_way_share_a_limit_and_give_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        messages = answer_messages([HEAD, event(400_000), b"data: [DONE]\n\n"], content_type=STREAM)
        for message in messages[:3]:
            await send(message)
        await going.wait()
        for message in messages[3:]:
            await send(message)

    async def run() -> None:
        tasks = [asyncio.create_task(ask(hook, Client())) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert hook._desk.held <= MIB + 1000
        going.set()
        await asyncio.gather(*tasks)
        await ask(hook, Client())
        assert hook._desk.held == 0

    with closing(make_hook(app, tmp_path, monkeypatch, ASSEMBLY_MB="1")) as hook:
        asyncio.run(run())
    errors = [(record["_dspark"]["error"] or {}).get("code") for record in records(tmp_path)]
    assert sorted(errors, key=str) == [None, None, None, "assembly_full", "assembly_full", "assembly_full"]
    assert errors[-1] is None
    assert counters(hook)["oversize_records"] == 3


def test_the_bytes_of_a_large_request_are_let_go_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            seen.append(hook._desk.held)
        seen.append(hook._desk.held)
        for message in answer_messages([b"{}"]):
            await send(message)

    async def run() -> None:
        await ask(hook, Client(b"x" * MIB, cuts=16))

    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    assert max(seen) <= 256 << 10
    assert seen[-1] == 0


@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_whole_request_is_kept_up_to_the_record_limit(
    megabytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b'"' + b"x" * (megabytes * MIB - 2) + b'"'
    record = capture(
        answer_messages([b"{}"]), tmp_path, monkeypatch, request=request, CAPTURE_REQUESTS="full", MAX_RECORD_MB="2"
    )
    assert record["_dspark"]["request"] == ({"body": request.decode()} if megabytes == 1 else None)


def test_what_the_queue_can_not_hold_is_dropped_counted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"pad":"' + b"x" * 300_000 + b'"}'

    async def run() -> None:
        for _ in range(10):
            assert (await ask(hook, Client())).body == body

    with closing(make_hook(ReplayApp(answer_messages([body])), tmp_path, monkeypatch, QUEUE_MB="1")) as hook:
        asyncio.run(run())
    found = counters(hook)
    kept = len(records(tmp_path))
    assert 0 < kept < 10
    assert found["dropped_records"] == 10 - kept
    assert found["dropped_bytes"] == (10 - kept) * len(body)
    assert caplog.text.count("DROPPED: the queue is full") == 1, "at first once a second"


def test_an_answer_larger_than_the_queue_is_taken_when_the_queue_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture(answer_messages([b'{"pad":"' + b"x" * (2 * MIB) + b'"}']), tmp_path, monkeypatch, QUEUE_MB="1")
    assert len(record["pad"]) == 2 * MIB


def test_memory_is_flat_over_many_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = answer_messages([HEAD, *([event(50)] * 20), b"data: [DONE]\n\n"], content_type=STREAM)

    async def run(times: int) -> None:
        for number in range(times):
            headers = [(b"x-request-id", b"%d" % number)]
            await ask(hook, Client(b'{"model":"m%d"}' % number), scope_for(headers=headers))

    app = ReplayApp(stream)
    with closing(make_hook(app, tmp_path, monkeypatch, DURABILITY="write", RETENTION_MB="1")) as hook:

        async def measured() -> int:
            await run(200)
            app.requests.clear()
            before = tracemalloc.get_traced_memory()[0]
            await run(2_000)
            app.requests.clear()
            return tracemalloc.get_traced_memory()[0] - before

        tracemalloc.start()
        try:
            growth = asyncio.run(measured())
        finally:
            tracemalloc.stop()
        assert hook._desk.held == 0
        assert hook._appender.backlog.weight == 0
    assert growth < 200_000
