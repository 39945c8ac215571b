"""Notices new schemas of a server before records that carry them are planned, and says what follows (DESIGN §6)."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dspark_json.errors import ContentSchemaError, SchemaChangedError
from dspark_json.source.registered import ReadSchemas, RegisteredSchemas
from dspark_json.source.row_type import followed
from dspark_json.source.schema_location import write_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dspark_json.schema.registry import RegisteredSchema
    from dspark_json.source.discovery import FoundSpool
    from dspark_json.source.row_type import RowType

__all__ = ["SchemaWatch"]

_log = logging.getLogger(__name__)


class SchemaWatch:
    """Watches the schemas that a query's types come from; ``updates`` counts those that came while it ran."""

    def __init__(self, row_type: RowType, read: ReadSchemas) -> None:
        self.updates = 0
        self._row_type = row_type
        self._settings = row_type.settings
        # Where new columns end the query they must be noticed before their records are planned, so an answer of before
        # can't be used.
        self._stops = self._settings.evolution in {"addNewColumns", "failOnNewColumns"}
        self._registered = RegisteredSchemas(read, ttl_s=0.0 if self._stops else self._settings.cache_ttl_s)
        self._seen = dict.fromkeys(row_type.kept.hashes)
        # With contentSchema no schema was looked at before: those of the first look are not new.
        self._has_beginning = self._settings.follows_the_server
        self._last: list[RegisteredSchema] | None = None
        if self._settings.follows_the_server and self._settings.location is None:
            names = {"responseSchema": self._settings.response_schema, "toolSchema": self._settings.tool_schema}
            _log.warning(
                "%s without schemaLocation: the types are asked of the server at each start, so a restarted query may "
                "have other columns, or can't start while the server is down; give schemaLocation a folder of this "
                "query's own",
                " and ".join(f"{option} {name}" for option, name in names.items() if name is not None),
            )

    def look(self, spools: Iterable[FoundSpool]) -> None:
        """Look at the schemas of spools whose extents are known already: no record inside those carries a later one.

        Each schema not seen before is a log line and counted. ``SchemaChangedError`` where the schemas have fields that
        the rows lack and ``schemaEvolutionMode`` is ``failOnNewColumns`` or ``addNewColumns`` (``schemaLocation`` has
        them then).
        """
        schemas = self._registered.look(spools)
        if schemas == self._last:
            return
        relevant = [*followed(self._settings, schemas, "content"), *followed(self._settings, schemas, "tool")]
        new = [one for one in relevant if one.hash not in self._seen] if self._has_beginning else []
        self._has_beginning = True
        self._seen.update(dict.fromkeys(one.hash for one in relevant))
        grown = self._grown(schemas)
        columns = _new_columns(self._row_type, grown)
        self._say(new, columns)
        if columns and self._settings.evolution == "addNewColumns":
            self._keep(grown)
            raise SchemaChangedError(
                _changed(relevant, columns),
                remedy=f"They are in schemaLocation {self._settings.location} now: restart the query, from load() on.",
            )
        if columns and self._settings.evolution == "failOnNewColumns":
            raise SchemaChangedError(
                _changed(relevant, columns),
                remedy="Restart the query, from load() on, with schemaEvolutionMode addNewColumns to have them as "
                "columns, or with rescue to go on without.",
            )
        if new:
            self._keep(self._row_type)
        self._last = schemas

    def _grown(self, schemas: Sequence[RegisteredSchema]) -> RowType:
        """The rows with all fields of the schemas, which may be more than rows can have."""
        try:
            return self._row_type.grown(schemas)
        except ContentSchemaError:
            if self._stops:
                raise
            return self._row_type

    def _say(self, new: Sequence[RegisteredSchema], columns: Sequence[str]) -> None:
        for one in new:
            self.updates += 1
            _log.warning(
                "SCHEMA_UPDATE %s was not seen before (dspark_schema_update_count %d); the rows lack %s, "
                "schemaEvolutionMode is %s",
                one.label,
                self.updates,
                ", ".join(columns) or "none of its fields",
                self._settings.evolution,
            )

    def _keep(self, row_type: RowType) -> None:
        if self._settings.location is not None and self._settings.follows_the_server:
            write_location(Path(self._settings.location), replace(row_type.kept, hashes=tuple(self._seen)))


def _changed(schemas: Sequence[RegisteredSchema], columns: Sequence[str]) -> str:
    newest = max(schemas, key=lambda one: one.first_seen)
    return f"the server has registered {newest.label}, and the rows lack columns of it: {', '.join(columns)}"


def _new_columns(before: RowType, after: RowType) -> list[str]:
    """Paths of the fields that only ``after`` has."""
    return [
        *_new_fields(before.content_type, after.content_type, "parsed"),
        *_new_fields(before.tool_type, after.tool_type, "parsed_arguments"),
    ]


def _new_fields(before: pa.DataType | None, after: pa.DataType | None, place: str) -> Iterator[str]:
    if before is None or after is None or before == after:
        return
    if pa.types.is_struct(after):
        known = {before.field(i).name: before.field(i).type for i in range(before.num_fields)}
        for one in (after.field(i) for i in range(after.num_fields)):
            path = f"{place}.{one.name}"
            if one.name in known:
                yield from _new_fields(known[one.name], one.type, path)
            else:
                yield path
    elif pa.types.is_map(after):
        yield from _new_fields(before.item_type, after.item_type, f"{place}.value")
    elif pa.types.is_list(after):
        yield from _new_fields(before.value_type, after.value_type, f"{place}[]")
