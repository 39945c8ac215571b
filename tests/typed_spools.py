"""Spools whose requests name schemas: the registry is filled before the records, as the hook does it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dspark_json.schema.registry import RegisteredSchema, register
from dspark_json.spool.record import Record
from dspark_json.spool.schemas import SchemaStore
from dspark_json.spool.writer import LaneWriter, WriterSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SETTINGS = WriterSettings(segment_bytes=1 << 20, retention_bytes=1 << 30, min_free_ratio=0.0)


def schema(name: str | None, first_seen: int, kind: str = "content", **properties: str) -> RegisteredSchema:
    """A registered schema of an object with these properties and their types."""
    document = {"type": "object", "properties": {key: {"type": value} for key, value in properties.items()}}
    return register("tool" if kind == "tool" else "content", name, document, first_seen)


def answer(
    content: str | None, asked: RegisteredSchema | None = None, *, finish_reason: str = "stop", **message: Any
) -> Record:
    """The record of a chat answer with one choice."""
    meta: Mapping[str, Any] = {
        "path": "/v1/chat/completions",
        "status": 200,
        "completed": True,
        "schema": None if asked is None else {"name": asked.name, "hash": asked.hash},
    }
    choice = {"index": 0, "message": {"content": content, **message}, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "created": 1_764_400_000, "choices": [choice]}
    return Record(json.dumps(meta).encode()[1:-1], json.dumps(body).encode()[1:-1])


def tool_answer(name: str, arguments: str) -> Record:
    """The record of an answer that calls one tool."""
    call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return answer(None, finish_reason="tool_calls", tool_calls=[call])


def write(folder: Path, *records: Record, registers: tuple[RegisteredSchema, ...] = ()) -> None:
    """Register schemas, then append records to the spool's first lane."""
    writer = LaneWriter.open(folder, SETTINGS)
    try:
        store = SchemaStore(folder)
        for one in registers:
            assert store.put(one.hash, one.to_document())
        if records:
            writer.append(list(records))
    finally:
        writer.close()
