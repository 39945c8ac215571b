"""``dspark-json schema``: what a server's answers look like, as DDL to paste."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli import output
from dspark_json.errors import ContentSchemaError
from dspark_json.printable import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dspark_json.schema.registry import RegisteredSchema

SUMMARY: Final = "show what a server's answers look like, as DDL"
DESCRIPTION: Final = (
    "Show the columns of the rows, and each answer schema that requests to a server have asked for: its name, kind\n"
    "(content, or tool: the arguments of a call), hash, how many answers were asked for with it, when the last time,\n"
    "and its type as DDL, to paste into contentSchema."
)
EXAMPLES: Final = """\
examples:
  dspark-json schema http://localhost:8000
  dspark-json schema /dev/shm/dspark_vllm_8000 --ddl --name order > order.ddl
  dspark-json schema http://gpu7:8000 --key-file key.txt --json | jq .schemas[].name

A server on another machine wants the hook's key (DSPARK_API_KEY of the server), from --key-file or from the
environment's DSPARK_API_KEY.
"""

_HASH_SHOWN: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``schema``."""
    parser.add_argument("target", metavar="ENDPOINT|SPOOL", help="a server's address (http://…), or a spool folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--ddl", action="store_true", help="print DDL alone: of the rows, or with --name of that schema")
    form.add_argument("--json", action="store_true", help="print all of it as one JSON document")
    parser.add_argument("--name", metavar="NAME", help="only the schema of this name (or hash, 6 digits or more)")
    parser.add_argument("--key-file", type=Path, metavar="F", help="a file whose first line is the hook's key")


def run(options: argparse.Namespace) -> int:
    """Print what the server has registered."""
    from dspark_json.cli.access import open_access
    from dspark_json.schema.ddl import columns_to_ddl
    from dspark_json.schema.envelope import row_schema
    from dspark_json.schema.registry import RegisteredSchema

    with open_access(options.target, options.key_file) as access:
        spool_id = access.offsets().spool_id
        documents = {document["hash"]: document for document in access.schemas()}
    schemas = sorted(map(RegisteredSchema.from_document, documents.values()), key=lambda s: (s.first_seen, s.hash))
    chosen = schemas if options.name is None else _named(options.name, schemas, options.target)
    if options.json:
        shown = [_described(schema, documents[schema.hash]) for schema in chosen]
        rows = columns_to_ddl(row_schema())
        text = json.dumps({"spool_id": spool_id, "rows": rows, "schemas": shown}, ensure_ascii=False)
    elif options.ddl:
        text = _rows_ddl() if options.name is None else _merged_ddl(chosen)
    else:
        parts = [] if options.name is not None else [_rows_text(), _count_text(len(chosen))]
        text = "\n\n".join([*parts, *(_schema_text(schema, documents[schema.hash]) for schema in chosen)])
    output.write(text.encode("utf-8", "replace") + b"\n")
    return 0


def _named(name: str, schemas: Sequence[RegisteredSchema], target: str) -> list[RegisteredSchema]:
    from dspark_json.schema.registry import select

    found = select(schemas, name, "content") or select(schemas, name, "tool")
    if not found:
        known = sorted({schema.name for schema in schemas if schema.name is not None})
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        raise ContentSchemaError(
            f'{target} has no schema "{name}"',
            remedy=(f'Did you mean "{close[0]}"? ' if close else "")
            + (f"It has: {', '.join(known)}." if known else "No request has named one yet."),
        )
    return found


def _ddl(kind: pa.DataType) -> str:
    """A content type to paste: columns where it is a STRUCT, else the type."""
    import pyarrow as pa

    from dspark_json.schema.ddl import columns_to_ddl, to_ddl

    return columns_to_ddl(kind.field(i) for i in range(kind.num_fields)) if pa.types.is_struct(kind) else to_ddl(kind)


def _type_of(schema: RegisteredSchema) -> tuple[str | None, str | None]:
    """A schema's DDL with the names of the wire, or why it has none."""
    try:
        return _ddl(schema.arrow_type("exact")), None
    except ContentSchemaError as error:
        return None, error.message


def _merged_ddl(schemas: Sequence[RegisteredSchema]) -> str:
    """The type that ``responseSchema`` makes of these schemas; what did not go together is said on standard error."""
    from dspark_json.schema.registry import merged_type

    kind, notes = merged_type(schemas, field_names="exact")
    for note in notes:
        output.note(note)
    return _ddl(kind)


def _rows_ddl() -> str:
    """The rows' columns, one a line."""
    from dspark_json.schema.ddl import columns_to_ddl
    from dspark_json.schema.envelope import row_schema

    return ",\n".join(columns_to_ddl([column]) for column in row_schema())


def _described(schema: RegisteredSchema, document: Mapping[str, Any]) -> dict[str, Any]:
    """A schema for --json; times are µs since 1970, null where they are not known."""
    ddl, error = _type_of(schema)
    return {
        "name": schema.name,
        "kind": schema.kind,
        "hash": schema.hash,
        "count": document.get("count"),
        "first_seen": schema.first_seen,
        "last_used": document.get("last_used"),
        "ddl": ddl,
        "error": error,
        "schema": schema.schema,
    }


def _rows_text() -> str:
    return "Rows:\n\n" + "\n".join(f"  {line}" for line in _rows_ddl().splitlines())


def _count_text(count: int) -> str:
    if count == 0:
        return (
            "Schemas of answers: none yet. One appears with the first request that asks for it\n"
            "(response_format json_schema, structured_outputs, or a tool with strict)."
        )
    return f"Schemas of answers: {count}"


def _schema_text(schema: RegisteredSchema, document: Mapping[str, Any]) -> str:
    ddl, error = _type_of(schema)
    heading = [
        "(no name)" if schema.name is None else schema.name,
        schema.kind,
        schema.hash[:_HASH_SHOWN],
        *_use(document),
    ]
    body = f"  {ddl}" if ddl is not None else f"  no type: {error}"
    return printable("  ".join(heading)) + "\n" + printable(body)


def _use(document: Mapping[str, Any]) -> list[str]:
    from dspark_json.cli.summary import local_time

    count, last_used = document.get("count"), document.get("last_used")
    said = [f"{count:,} answer{'' if count == 1 else 's'}"] if isinstance(count, int) else []
    if isinstance(last_used, int) and last_used > 0:
        said.append(f"last {local_time(last_used, '%Y-%m-%d %H:%M:%S')}")
    return said
