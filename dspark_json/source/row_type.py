"""From the options to the type of the rows: what ``parsed`` and ``parsed_arguments`` are, and which answers are kept.

It is resolved once, where the data frame is made, and travels from there to whoever plans and reads: a second look at
the server could find other schemas (DESIGN §5).
"""

from __future__ import annotations

import difflib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.engine.base import ParsePlan, build_plan
from dspark_json.errors import ContentSchemaError, SchemaLocationError
from dspark_json.schema.content_schema import content_type_from
from dspark_json.schema.content_type import checked_content_type, content_type_in
from dspark_json.schema.ddl import from_ddl, hints_from_ddl, to_ddl
from dspark_json.schema.evolution import extended, with_hints
from dspark_json.schema.registry import merged_type, select
from dspark_json.source.schema_location import FILE_NAME, KeptTypes, read_location, write_location

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from dspark_json.schema.registry import RegisteredSchema, SchemaKind
    from dspark_json.source.type_settings import TypeSettings

__all__ = ["RowType", "followed", "resolve_row_type"]

_log = logging.getLogger(__name__)

_ALL: Final = "*"
_OPTIONS: Final = {"content": "responseSchema", "tool": "toolSchema"}


@dataclass(frozen=True, slots=True)
class RowType:
    """The rows of one query.

    ``content_type`` and ``tool_type`` are those of ``parsed`` and ``parsed_arguments`` (``None``: JSON text); ``kept``
    is what registered schemas gave of them.
    """

    settings: TypeSettings
    content_type: pa.DataType | None
    tool_type: pa.DataType | None
    kept: KeptTypes

    def plan(self, columns: pa.Schema | None = None) -> ParsePlan:
        """The plan that makes these rows, or the columns of them that are asked for; errors as ``build_plan``."""
        wanted = self.settings.response_schema
        tools = None if self.settings.tool_schema is None else self.kept.tools
        return build_plan(
            columns,
            content_type=self.content_type,
            tool_type=self.tool_type,
            tools=None if tools is None else frozenset(tools),
            answers_of=None if wanted == _ALL else wanted,
            profiles=self.settings.profiles,
            repair=self.settings.repair,
            mode=self.settings.mode,
            corrupt_column=self.settings.corrupt_column,
            rescued_column=self.settings.rescued_column,
            rescue_unknown=self.settings.evolution != "none",
            check_constraints=self.settings.check_constraints,
        )

    def typed_by(self, columns: pa.Schema) -> RowType:
        """These rows for a user's schema, which may declare ``parsed`` where nothing else does; errors as ``plan``.

        It comes before any pruning: what is left of ``parsed`` then says no longer what counts as unknown.
        """
        typed = replace(self, content_type=self.content_type or content_type_in(columns))
        typed.plan(columns)
        return typed

    def grown(self, schemas: Sequence[RegisteredSchema]) -> RowType:
        """These rows with the fields of the server's schemas that they lack; what they have keeps its type."""
        content, tool = self.kept.content_type, self.kept.tool_type
        if content is not None:
            content = _extended(content, followed(self.settings, schemas, "content"))
        if tool is not None:
            tool = _extended(tool, followed(self.settings, schemas, "tool"))
        return _row_type(self.settings, replace(self.kept, content_type=content, tool_type=tool))


def resolve_row_type(settings: TypeSettings, ask: Callable[[], Sequence[RegisteredSchema]]) -> RowType:
    """The type of the rows that the options ask for.

    ``ask`` gives all schemas that the server has registered; it is called only where ``schemaLocation`` does not keep
    what is needed. Raises ``ContentSchemaError`` where a type can't be made or no such schema is registered, and
    ``SchemaLocationError``.
    """
    if not settings.follows_the_server:
        return _row_type(settings, KeptTypes(response_schema=settings.response_schema))
    folder = None if settings.location is None else Path(settings.location)
    kept = KeptTypes() if folder is None else read_location(folder) or KeptTypes()
    _check_same_query(kept, settings)
    needs_content = settings.types_content and kept.content_type is None
    needs_tool = settings.tool_schema is not None and kept.tool_type is None
    if needs_content or needs_tool:
        schemas = ask()
        if needs_content:
            kept = _with_content(kept, followed(settings, schemas, "content"), schemas, settings)
        if needs_tool:
            kept = _with_tool(kept, followed(settings, schemas, "tool"), schemas, settings)
        row_type = _row_type(settings, kept)
        if folder is not None:
            write_location(folder, kept)
    else:
        row_type = _row_type(settings, kept)
    return row_type


def followed(settings: TypeSettings, schemas: Sequence[RegisteredSchema], kind: SchemaKind) -> list[RegisteredSchema]:
    """The registered schemas that ``responseSchema`` (``kind`` ``content``) or ``toolSchema`` (``tool``) means."""
    wanted = settings.response_schema if kind == "content" else settings.tool_schema
    return [] if wanted is None else select(schemas, wanted, kind)


def _row_type(settings: TypeSettings, kept: KeptTypes) -> RowType:
    content: pa.DataType | None = None
    if settings.content_schema is not None:
        content = content_type_from(settings.content_schema, names=settings.field_names)
    elif kept.content_type is not None and settings.response_schema is not None:
        content = from_ddl(kept.content_type, names=settings.field_names)
    if content is not None and settings.hints is not None:
        hints = hints_from_ddl(settings.hints, names=settings.field_names)
        content = checked_content_type(with_hints(content, hints, settings.field_names))
    tool: pa.DataType | None = None
    if kept.tool_type is not None and settings.tool_schema is not None:
        tool = from_ddl(kept.tool_type, names=settings.field_names)
    return RowType(settings, content, tool, kept)


def _with_content(
    kept: KeptTypes, found: list[RegisteredSchema], schemas: Sequence[RegisteredSchema], settings: TypeSettings
) -> KeptTypes:
    assert settings.response_schema is not None
    ddl = _first_type(found, schemas, "content", settings.response_schema)
    return replace(
        kept,
        response_schema=settings.response_schema,
        content_type=ddl,
        hashes=(*kept.hashes, *(one.hash for one in found)),
    )


def _with_tool(
    kept: KeptTypes, found: list[RegisteredSchema], schemas: Sequence[RegisteredSchema], settings: TypeSettings
) -> KeptTypes:
    assert settings.tool_schema is not None
    ddl = _first_type(found, schemas, "tool", settings.tool_schema)
    names = tuple(dict.fromkeys(one.name for one in found if one.name is not None))
    return replace(
        kept,
        tool_schema=settings.tool_schema,
        tool_type=ddl,
        tools=None if settings.tool_schema == _ALL else names,
        hashes=(*kept.hashes, *(one.hash for one in found)),
    )


def _first_type(
    found: list[RegisteredSchema], schemas: Sequence[RegisteredSchema], kind: SchemaKind, wanted: str
) -> str:
    """The DDL of the schemas that an option means, with the names of the wire."""
    if not found:
        raise _not_registered(schemas, kind, wanted)
    merged, notes = merged_type(found, field_names="exact")
    if len(found) > 1:
        _log.warning(
            "%s %s: %d schemas are merged: %s%s",
            _OPTIONS[kind],
            wanted,
            len(found),
            ", ".join(one.label for one in found),
            f"; STRING where they differ, left out where they have no type: {'; '.join(notes)}" if notes else "",
        )
    return to_ddl(merged)


def _extended(ddl: str, schemas: Sequence[RegisteredSchema]) -> str:
    current = from_ddl(ddl, names="exact")
    for one in schemas:
        if one.type_text is not None:
            current = extended(current, one.arrow_type("exact"))
    return to_ddl(current)


def _check_same_query(kept: KeptTypes, settings: TypeSettings) -> None:
    for option, before, now in (
        ("responseSchema", kept.response_schema, settings.response_schema),
        ("toolSchema", kept.tool_schema, settings.tool_schema),
    ):
        if before is not None and now is not None and before != now:
            raise SchemaLocationError(
                f'schemaLocation "{settings.location}" keeps the types of {option} "{before}", and {option} is "{now}"',
                remedy=f"Give each query a folder of its own, or delete {FILE_NAME} in it.",
            )


def _not_registered(schemas: Sequence[RegisteredSchema], kind: SchemaKind, wanted: str) -> ContentSchemaError:
    names = list(dict.fromkeys(one.name or one.hash[:12] for one in schemas if one.kind == kind))
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    there = f"Registered are: {', '.join(names[:20])}." if names else "None is registered yet."
    return ContentSchemaError(
        f'{_OPTIONS[kind]} "{wanted}" is not registered with the server',
        remedy=(f'Did you mean "{close[0]}"? ' if close else "")
        + f"{there} "
        + (
            "A tool is registered by the first request that defines it with strict: true."
            if kind == "tool"
            else "A schema is registered by the first request that asks for it; without one, give contentSchema."
        ),
    )
