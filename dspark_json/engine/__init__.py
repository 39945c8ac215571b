"""Parse engines: bytes of the spool to Arrow batches."""

from __future__ import annotations

from dspark_json.engine.base import Engine, ParsePlan, ParseStats, RecordSpans, build_plan

__all__ = ["Engine", "ParsePlan", "ParseStats", "RecordSpans", "build_plan"]
