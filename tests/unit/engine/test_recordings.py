"""The declared rows hold everything that a real vLLM server sent for chat and completions: nothing is rescued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine_support import line, parse

from dspark_json.engine import build_plan
from dspark_json.schema.jsonschema import from_json_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "fixtures" / "vllm"


def exchanges() -> Iterator[tuple[str, int, str]]:
    """(path, status, body) of each recorded answer that was no stream."""
    for text in (FOLDER / "asgi-exchanges.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(text)
        bodies = [message["body"] for message in one["messages"] if message["type"] == "body"]
        yield one["path"], one["messages"][0]["status"], "".join(bodies)
    for one in json.loads((FOLDER / "exchanges-spec-decode.json").read_text(encoding="utf-8")):
        yield one.get("path", ""), one["status"], "".join(one["chunks"])


def as_line(path: str, status: int, body: str) -> bytes:
    return line(body.strip()[1:-1], f'"path":"{path}","status":{status}')


def test_nothing_of_a_chat_or_completions_answer_is_rescued_or_mismatched() -> None:
    kept = [one for one in exchanges() if one[2].startswith("{") and '"object":"response"' not in one[2]]
    batch, stats = parse([as_line(*one) for one in kept])
    assert stats.records > 40
    assert (stats.corrupt, stats.mismatches) == (0, 0)
    assert set(batch.column("_rescued_data").to_pylist()) == {None}


def test_every_value_sent_is_in_its_column() -> None:
    """All leaves of an answer, by path, against the row's; columns that differ by rule have tests of their own."""

    def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for name, member in value.items():
                yield from leaves(member, f"{path}.{name}")
        elif isinstance(value, list):
            for i, item in enumerate(value):
                yield from leaves(item, f"{path}[{i}]")
        elif value is not None:
            yield path, value

    ruled = (".created", ".error.code", ".stop_reason")
    checked = 0
    for path, status, body in exchanges():
        if not body.startswith("{") or '"object":"response"' in body:
            continue
        batch, _ = parse([as_line(path, status, body)])
        row = dict(leaves(batch.to_pylist(maps_as_pydicts="strict")[0], ""))
        for place, value in leaves(json.loads(body), ""):
            if not place.endswith(ruled):
                assert row[place] == value, place
                checked += 1
    assert checked > 1000


def test_answers_to_a_schema_become_typed() -> None:
    recorded = (FOLDER / "asgi-exchanges.jsonl").read_text(encoding="utf-8").splitlines()
    formats = [json.loads(text)["request"].get("response_format", {}).get("json_schema", {}) for text in recorded]
    schema = next(one["schema"] for one in formats if one.get("name") == "order")
    plan = build_plan(content_type=from_json_schema(schema))
    answers = (FOLDER / "answers.ndjson").read_text(encoding="utf-8").splitlines()
    orders = [text for text in answers if "order_id" in text]
    batch, _ = parse([as_line("/v1/chat/completions", 200, text) for text in orders], plan)
    for text, made in zip(orders, batch.to_pylist(), strict=True):
        content = json.loads(text)["choices"][0]["message"]["content"]
        choice = made["choices"][0]
        if choice["parse_status"] == "ok":
            assert choice["parsed"] == json.loads(content) | {"customer": choice["parsed"]["customer"]}
    statuses = [made["choices"][0]["parse_status"] for made in batch.to_pylist()]
    assert statuses.count("ok") > len(orders) / 2
