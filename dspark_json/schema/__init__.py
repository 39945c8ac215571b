"""Types: the declared rows, projections of them, and content types from JSON Schema or Spark DDL (DESIGN §5)."""

from __future__ import annotations

from dspark_json.schema.envelope import row_schema

__all__ = ["row_schema"]
