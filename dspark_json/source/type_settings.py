"""What a reader was asked to make of the answers' contents: its options about types, as values (DESIGN §5, §6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dspark_json.errors import InvalidOptionError, MissingOptionError
from dspark_json.schema.envelope import CORRUPT_COLUMN, RESCUED_COLUMN
from dspark_json.schema.profiles import Profile, load_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.schema.names import FieldNames

__all__ = ["EvolutionMode", "TypeSettings", "type_settings"]

EvolutionMode = Literal["rescue", "addNewColumns", "failOnNewColumns", "none"]

_EVOLUTION: Final[tuple[EvolutionMode, ...]] = ("rescue", "addNewColumns", "failOnNewColumns", "none")


@dataclass(frozen=True, slots=True)
class TypeSettings:
    """The options about types; each is what ``docs/options.md`` says under its name.

    ``content_schema`` is text or a path, ``response_schema`` and ``tool_schema`` a name, a hash prefix or ``*``.
    """

    content_schema: str | None = None
    response_schema: str | None = None
    tool_schema: str | None = None
    repair: str = "auto"
    mode: str = "PERMISSIVE"
    corrupt_column: str = CORRUPT_COLUMN
    rescued_column: str = RESCUED_COLUMN
    evolution: EvolutionMode = "rescue"
    location: str | None = None
    hints: str | None = None
    cache_ttl_s: float = 300.0
    field_names: FieldNames = "safe"
    profiles: tuple[Profile, ...] = ()
    check_constraints: bool = False

    @property
    def has_filter(self) -> bool:
        """Whether answers are kept or typed by schemas that a server has registered."""
        return self.response_schema is not None or self.tool_schema is not None

    @property
    def types_content(self) -> bool:
        """Whether ``responseSchema`` gives ``parsed`` its type, and not only the filter."""
        return self.response_schema is not None and self.content_schema is None

    @property
    def follows_the_server(self) -> bool:
        """Whether some type comes from schemas that a server has registered."""
        return self.types_content or self.tool_schema is not None


def type_settings(values: Mapping[str, object]) -> TypeSettings:
    """The settings in the values of all options; an ``OptionError`` where they don't go together."""
    settings = TypeSettings(
        content_schema=_text(values["contentSchema"]),
        response_schema=_stripped(values["responseSchema"]),
        tool_schema=_stripped(values["toolSchema"]),
        repair=str(values["contentRepair"]),
        mode=str(values["mode"]),
        corrupt_column=str(values["columnNameOfCorruptRecord"]),
        rescued_column=str(values["rescuedDataColumn"]),
        evolution=next(mode for mode in _EVOLUTION if mode == values["schemaEvolutionMode"]),
        location=_text(values["schemaLocation"]),
        hints=_text(values["schemaHints"]),
        cache_ttl_s=float(str(values["schema_cache_ttl_sec"])),
        field_names="exact" if values["fieldNames"] == "exact" else "safe",
        profiles=() if values["profile"] is None else load_profiles(str(values["profile"])),
        check_constraints=values["checkConstraints"] is True,
    )
    if settings.evolution == "addNewColumns":
        if not settings.follows_the_server:
            raise InvalidOptionError(
                "schemaEvolutionMode is addNewColumns, and no type comes from the server's schemas",
                remedy="Give responseSchema or toolSchema (and no contentSchema, which fixes the type of parsed), or "
                'use "rescue".',
            )
        if settings.location is None:
            raise MissingOptionError(
                "schemaEvolutionMode is addNewColumns, and there is no schemaLocation to keep the new columns in",
                remedy="Give schemaLocation, a local folder of this query's own.",
            )
    if settings.hints is not None and settings.content_schema is None and settings.response_schema is None:
        raise InvalidOptionError(
            "schemaHints are given, and parsed has no content type that they could change",
            remedy="Give contentSchema or responseSchema with them.",
        )
    return settings


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _stripped(value: object) -> str | None:
    return None if value is None else str(value).strip()
