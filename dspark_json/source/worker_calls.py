"""What the worker does for each ``op`` of the protocol (``worker_protocol``) but for reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark_json.errors import InvalidOptionError
from dspark_json.options import secret_names
from dspark_json.source.admission import ReadLimits
from dspark_json.source.query import Query
from dspark_json.source.rows import choose_engine
from dspark_json.source.texts import rows_from, rows_text, schema_from, schema_text, task_text
from dspark_json.source.worker_streams import Streams, WorkerStream, split_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dspark_json.source.worker_protocol import Frame

__all__ = ["Calls"]


class Calls:
    """Answers requests; safe from any thread."""

    def __init__(self) -> None:
        self._streams = Streams()
        self._by_op: Mapping[str, Callable[[Frame], Frame]] = {
            "describe": self._describe,
            "open_stream": self._open_stream,
            "initial": lambda frame: {"offset": self._stream(frame).initial()},
            "latest": self._latest,
            "report": lambda frame: {"offset": self._stream(frame).report()},
            "fix_target": lambda frame: {"target": self._stream(frame).fix_target()},
            "plan": self._plan,
            "plan_batch": self._plan_batch,
            "stream_metrics": lambda frame: {"metrics": self._stream(frame).metrics()},
            "close_stream": self._close_stream,
        }

    def answer(self, frame: Frame) -> Frame:
        """The answer to a request; raises what went wrong with it."""
        op = frame.get("op")
        call = self._by_op.get(op) if isinstance(op, str) else None
        if call is None:
            raise ValueError(f"{op!r} is no op of the protocol")
        return {"ok": True, **call(frame)}

    def _stream(self, frame: Frame) -> WorkerStream:
        return self._streams.get(frame["stream"])

    def _describe(self, frame: Frame) -> Frame:
        options = frame["options"]
        if frame.get("table"):
            _refuse_keys(options)
        row_type = Query.resolve(options).row_type
        if frame.get("schema") is not None:
            row_type = row_type.typed_by(schema_from(frame["schema"]))
        return {
            "schema": schema_text(row_type.plan().declared),
            "rows": rows_text(row_type),
            "secrets": sorted(secret_names()),
        }

    def _open_stream(self, frame: Frame) -> Frame:
        query = Query.of(frame["options"], rows_from(frame["rows"]))
        stream = WorkerStream(
            query, schema_from(frame["schema"]), initial=frame.get("initial"), target=frame.get("target")
        )
        query.announce("jvm")
        limits = query.settings.limits
        return {
            "stream": self._streams.add(stream),
            "task": stream.task(),
            "limits": {"max_records": limits.max_records, "max_bytes": limits.max_bytes},
            "adapter": "jvm",
            "engine": choose_engine(query.settings.parse_mode, query.settings.gpu_share).name,
        }

    def _latest(self, frame: Frame) -> Frame:
        limit: dict[str, Any] = frame["limit"]
        limits = None if limit.get("all") else ReadLimits(limit.get("max_records"), limit.get("max_bytes"))
        return {"offset": self._stream(frame).latest(frame["start"], limits)}

    def _plan(self, frame: Frame) -> Frame:
        stream = self._stream(frame)
        task = stream.task(frame.get("schema"))
        return {"task": task, "splits": split_frames(stream.plan(frame["start"], frame["end"]))}

    def _plan_batch(self, frame: Frame) -> Frame:
        query = Query.of(frame["options"], rows_from(frame["rows"]))
        given = schema_from(frame["schema"])
        columns = schema_from(frame["columns"]) if frame.get("columns") is not None else given
        task = query.task(columns, given=given)
        return {"task": task_text(task), "splits": split_frames(query.batch_splits())}

    def _close_stream(self, frame: Frame) -> Frame:
        self._streams.close(frame["stream"])
        return {}


def _refuse_keys(properties: Mapping[str, str]) -> None:
    """A table's properties are shown to everybody who may describe it."""
    secrets = secret_names()
    for name in properties:
        if name.lower().removeprefix("option.") in secrets:
            raise InvalidOptionError(
                f'"{name}" is refused in CREATE TABLE: the catalog would keep the key and show it',
                remedy="Give vllm_api_key_file, or DSPARK_API_KEY in the environment of the driver.",
            )
