"""A server with a newer protocol: what nobody knows yet is whole in the spool, and in ``_rescued_data`` of the rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import rows_of_both_engines
from unit.capture.driving import CHAT, COMPLETIONS, RESPONSES, answer_messages, capture, event, lines

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
STREAM = "text/event-stream; charset=utf-8"


def chunk(**members: Any) -> bytes:
    return b"data: " + json.dumps(members).encode() + b"\n\n"


def answer_of(path: str) -> list[bytes]:
    """An answer that is no stream, with something new at every level."""
    new = {"new": {"deep": [1.50, None, "日"]}}
    if path == RESPONSES:
        part = {"type": "output_text", "text": "{}", **new}
        output = [{"type": "message", "content": [part], **new}, {"type": "new_item", **new}]
        return [json.dumps({"id": "r", "status": "completed", "output": output, "usage": new, **new}).encode()]
    inside = {"message": {"content": "{}", **new}} if path == CHAT else {"text": "{}"}
    choice = {"index": 0, "finish_reason": "stop", **inside, **new}
    return [json.dumps({"id": "c", "choices": [choice], "usage": new, "metrics": new, **new}).encode()]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_new_members_of_an_answer_are_kept_as_sent_and_rescued(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = answer_of(path)
    record = capture(answer_messages(bodies), tmp_path, monkeypatch, path=path)
    assert record["_dspark"]["completed"] is True
    sent = json.loads(bodies[0])
    assert {name: record[name] for name in sent} == sent
    (row,) = rows_of_both_engines(lines(tmp_path))
    rescued = json.loads(row["_rescued_data"])
    new = {"deep": [1.50, None, "日"]}
    assert rescued["new"] == new
    assert rescued["usage.new"] == new
    places = {
        CHAT: ["choices[0].new", "choices[0].message.new", "metrics.new"],
        COMPLETIONS: ["choices[0].new", "metrics.new"],
        RESPONSES: ["output[0].new", "output[0].content[0].new", "output[1].new"],
    }
    assert {place: rescued.get(place) for place in places[path]} == dict.fromkeys(places[path], new)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_new_members_of_chunks_are_joined_and_rescued(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choice(text: str, **members: Any) -> Json:
        if path == CHAT:
            return {"index": 0, "delta": {"content": text, **members}, "hue": {"h": 1}}
        return {"index": 0, "text": text, "hue": {"h": 1}, **members}

    bodies = [
        b": a comment\n\n",
        b"event: new_kind\n" + chunk(id="c", pulse=1, choices=[]),
        chunk(id="c", choices=[choice("{", mood="calm ", tokens_of=[1])]),
        chunk(id="c", choices=[choice("}", mood="and warm", tokens_of=[2])], pulse=2),
        chunk(id="c", choices=[{**choice(""), "finish_reason": "stop"}], later={"n": 7}),
        b"data: [DONE]\n\n",
    ]
    record = capture(answer_messages(bodies, content_type=STREAM), tmp_path, monkeypatch, path=path)
    meta = record["_dspark"]
    assert (meta["completed"], meta["error"]) == (True, None)
    (row,) = rows_of_both_engines(lines(tmp_path))
    at = "choices[0].message." if path == CHAT else "choices[0]."
    assert json.loads(row["_rescued_data"]) == {
        "pulse": 1,
        "later": {"n": 7},
        "choices[0].hue": {"h": 1},
        at + "mood": "calm and warm",
        at + "tokens_of": [1, 2],
    }
    assert row["choices"][0]["finish_reason"] == "stop"


def test_a_stream_of_a_response_may_be_all_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        event("response.begun", response={"id": "r", "model": "m", "status": "in_progress"}, hue=1),
        event("thought", text="日"),
        event("response.done", response={"id": "r", "status": "completed"}),
    ]
    record = capture(answer_messages(events, content_type=STREAM), tmp_path, monkeypatch, path=RESPONSES)
    assert record["unknown_events"] == [json.loads(one.partition(b"\ndata: ")[2]) for one in events]
    assert (record["id"], record["_dspark"]["error"]) == ("r", None)
    (row,) = rows_of_both_engines(lines(tmp_path))
    assert json.loads(row["_rescued_data"]) == {"unknown_events": record["unknown_events"]}
