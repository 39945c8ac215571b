"""Types: the declared rows, projections of them, and content types from JSON Schema or Spark DDL (DESIGN §5)."""
