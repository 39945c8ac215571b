"""Texts for what travels between the worker and its JVM, and on to the executors: JSON, with types as Arrow IPC.

No pickle: what comes over a socket is only ever read as data. A text is made and read by one release (the two sides
check that they are of one version) and means nothing to the JVM, which hands it back as it is.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from dspark_json.engine.base import ParsePlan
from dspark_json.schema.profiles import Profile
from dspark_json.source.read_task import ReadTask
from dspark_json.source.row_type import RowType
from dspark_json.source.schema_location import KeptTypes
from dspark_json.source.splits import Split
from dspark_json.source.type_settings import TypeSettings

__all__ = [
    "rows_from",
    "rows_text",
    "schema_from",
    "schema_text",
    "split_from",
    "split_text",
    "task_from",
    "task_text",
]


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as base64 of its IPC message."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from(text: str) -> pa.Schema:
    """The Arrow schema in such a text."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def rows_text(row_type: RowType) -> str:
    """The rows of a query, as resolved once: files and servers are not asked again."""
    return json.dumps(
        {
            "settings": asdict(row_type.settings),
            "content_type": _type_text(row_type.content_type),
            "tool_type": _type_text(row_type.tool_type),
            "kept": asdict(row_type.kept),
        }
    )


def rows_from(text: str) -> RowType:
    """The rows in such a text."""
    given = json.loads(text)
    profiles = [
        Profile(**{**one, "fields": tuple((path, ddl) for path, ddl in one["fields"])})
        for one in given["settings"]["profiles"]
    ]
    kept = given["kept"]
    tools = None if kept["tools"] is None else tuple(kept["tools"])
    return RowType(
        TypeSettings(**{**given["settings"], "profiles": tuple(profiles)}),
        _type_from(given["content_type"]),
        _type_from(given["tool_type"]),
        KeptTypes(**{**kept, "tools": tools, "hashes": tuple(kept["hashes"])}),
    )


def task_text(task: ReadTask) -> str:
    """All that reading takes, the key too: this text goes to tasks and nowhere else."""
    plan = _values(task.plan)
    plan["columns"] = schema_text(task.plan.columns)
    plan["declared"] = schema_text(task.plan.declared)
    plan["content_type"] = _type_text(task.plan.content_type)
    plan["tool_type"] = _type_text(task.plan.tool_type)
    plan["tools"] = None if task.plan.tools is None else sorted(task.plan.tools)
    return json.dumps({**_values(task), "plan": plan, "wanted": schema_text(task.wanted)})


def task_from(text: str) -> ReadTask:
    """The task in such a text."""
    given = json.loads(text)
    plan = given["plan"]
    plan["columns"] = schema_from(plan["columns"])
    plan["declared"] = schema_from(plan["declared"])
    plan["content_type"] = _type_from(plan["content_type"])
    plan["tool_type"] = _type_from(plan["tool_type"])
    plan["tools"] = None if plan["tools"] is None else frozenset(plan["tools"])
    return ReadTask(**{**given, "plan": ParsePlan(**plan), "wanted": schema_from(given["wanted"])})


def split_text(split: Split) -> str:
    """A split; no key is in it."""
    return json.dumps(asdict(split))


def split_from(text: str) -> Split:
    """The split in such a text."""
    return Split(**json.loads(text))


def _values(value: ReadTask | ParsePlan) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _type_text(kind: pa.DataType | None) -> str | None:
    return None if kind is None else schema_text(pa.schema([pa.field("", kind)]))


def _type_from(text: str | None) -> pa.DataType | None:
    return None if text is None else schema_from(text).field(0).type
