"""Profiles: fields that known servers and models add to an answer, as small data files (DESIGN §5).

A file is a JSON object: ``name``, ``about``, ``source`` (where the names come from), and ``fields``, which maps a path
such as ``usage.prompt_cache_hit_tokens`` or ``choices[].message.code_blocks`` to a type in DDL. A field that the rows
have gets that type; another one is added at the end of the struct it stands in. Later profiles win.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from dspark_json.errors import ContentSchemaError, InvalidOptionError
from dspark_json.schema.ddl import from_ddl, to_ddl
from dspark_json.schema.fields import field, wire_names
from dspark_json.schema.names import column_names

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Profile", "load_profiles", "shipped_profiles", "with_profiles"]

_FOLDER: Final = "profile_files"
_STEP: Final = re.compile(r"([^.\[\]`]+)((?:\[\])*)")
# The columns that new ones stand in front of; nothing in the first one comes from the server's model.
_LAST: Final = ("_dspark", "_rescued_data", "_corrupt_record")
# What the reader itself looks into, so that no profile may give it another type.
_FIXED: Final = frozenset(
    {
        "choices",
        "choices[].finish_reason",
        "choices[].index",
        "choices[].message",
        "choices[].message.content",
        "choices[].message.tool_calls",
        "choices[].message.tool_calls[].function",
        "choices[].message.tool_calls[].function.arguments",
        "choices[].message.tool_calls[].function.name",
        "choices[].text",
        "error",
        "error.code",
        "error.message",
        "error.type",
    }
)


@dataclass(frozen=True, slots=True)
class Profile:
    """One file, read; ``fields`` are pairs of path and DDL. Goes to the executors as it is: they read no file."""

    name: str
    about: str
    source: str
    fields: tuple[tuple[str, str], ...]


def shipped_profiles() -> list[str]:
    """The names of the profiles that come with the package."""
    files = resources.files("dspark_json.schema").joinpath(_FOLDER).iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_profiles(option: str) -> tuple[Profile, ...]:
    """The profiles that the option ``profile`` names: names of shipped ones and paths of files, between commas.

    An item is a path if it holds a slash or ends with ``.json``. Raises ``InvalidOptionError`` for a name that is not
    known and for a file that can't be read or is no profile.
    """
    return tuple(_loaded(item.strip()) for item in option.split(","))


def with_profiles(rows: pa.Schema, profiles: Sequence[Profile]) -> pa.Schema:
    """The rows with the fields of the profiles; raises ``InvalidOptionError`` for a field that can't stand there."""
    fields = list(rows)
    for profile in profiles:
        for path, ddl in profile.fields:
            wish = _Wish(profile.name, path, _type(profile.name, path, ddl))
            fields = _with(fields, wish, _steps(profile.name, path))
    return pa.schema(fields, metadata=rows.metadata)


def _loaded(item: str) -> Profile:
    if "/" in item or item.endswith(".json"):
        try:
            text = Path(item).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InvalidOptionError(
                f'the profile "{item}" can\'t be read: {reason}',
                remedy="It is read where the query is planned: give a path that the driver can open.",
            ) from None
        return _checked(item, text)
    known = shipped_profiles()
    if item not in known:
        close = difflib.get_close_matches(item.lower(), known, n=1, cutoff=0.0)
        raise InvalidOptionError(
            f'there is no profile "{item}"',
            remedy=f'Did you mean "{close[0]}"? Profiles are {", ".join(known)}, or the path of a file of your own.',
        )
    file = resources.files("dspark_json.schema").joinpath(_FOLDER, f"{item}.json")
    return _checked(item, file.read_text(encoding="utf-8"))


def _checked(item: str, text: str) -> Profile:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(item, f"it is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _refusal(item, "it is not a JSON object")
    unknown = sorted(document.keys() - {"name", "about", "source", "fields"})
    if unknown:
        raise _refusal(item, f'"{unknown[0]}" is none of name, about, source and fields')
    for member in ("name", "about", "source"):
        if not isinstance(document.get(member, ""), str):
            raise _refusal(item, f'"{member}" is not a string')
    fields = document.get("fields")
    if not isinstance(fields, dict) or not fields:
        raise _refusal(item, '"fields" is not an object from paths to types')
    for path, ddl in fields.items():
        if not isinstance(ddl, str):
            raise _refusal(item, f'the type of "{path}" is not a string')
        _steps(item, path)
        _type(item, path, ddl)
    return Profile(
        document.get("name", item), document.get("about", ""), document.get("source", ""), tuple(fields.items())
    )


def _refusal(profile: str, why: str) -> InvalidOptionError:
    return InvalidOptionError(
        f'the profile "{profile}" can\'t be used: {why}',
        remedy='A profile is {"name": "mine", "about": "…", "source": "…", "fields": {"usage.my_tokens": "BIGINT", '
        '"choices[].message.my_list": "ARRAY<STRING>"}}.',
    )


def _steps(profile: str, path: str) -> list[tuple[str, int]]:
    """A path as (name, how many lists deep to go on) of each step."""
    steps: list[tuple[str, int]] = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise _refusal(profile, f'"{path}" is not a path such as choices[].message.name')
        steps.append((match[1], len(match[2]) // 2))
    if steps[-1][1]:
        raise _refusal(profile, f'"{path}" ends with []; give the field the type ARRAY<…>')
    return steps


def _type(profile: str, path: str, ddl: str) -> pa.DataType:
    try:
        return from_ddl(ddl)
    except ContentSchemaError as error:
        raise _refusal(profile, f'the type of "{path}" is not one ({error.message})') from None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A field that a profile wants: where, and of which type."""

    profile: str
    path: str
    kind: pa.DataType

    def refused(self, why: str) -> InvalidOptionError:
        """The error for a field that can't stand there."""
        return _refusal(self.profile, f'"{self.path}" can\'t be a field: {why}')


def _with(fields: Sequence[pa.Field], wish: _Wish, steps: Sequence[tuple[str, int]]) -> list[pa.Field]:
    """The fields of a struct (or the columns) after a wish; ``steps`` is what is left of its path from here."""
    (name, lists), rest = steps[0], steps[1:]
    number = next((i for i, one in enumerate(fields) if one.name == name), None)
    if number is None:
        if rest:
            raise wish.refused(f'the rows have no "{name}" there; declare it as a field of its own, a STRUCT')
        return _added(fields, name, wish.kind)
    found = fields[number]
    if not wire_names(found) or name in _LAST:
        raise wish.refused(f'"{name}" is made by the reader')
    if rest:
        new = found.with_type(_inside(found.type, lists, wish, name, rest))
    elif wish.path in _FIXED:
        raise wish.refused(f"the reader needs it as {to_ddl(found.type)[:40]}")
    else:
        new = field(name, wish.kind, wire=wire_names(found))
    return [new if i == number else one for i, one in enumerate(fields)]


def _inside(of: pa.DataType, lists: int, wish: _Wish, name: str, rest: Sequence[tuple[str, int]]) -> pa.DataType:
    """The type of a field called ``name`` that has the wanted one somewhere inside."""
    if lists:
        if not _is_array(of):
            raise wish.refused(f'"{name}" is {to_ddl(of)[:40]}, no array')
        return pa.list_(of.value_field.with_type(_inside(of.value_type, lists - 1, wish, name, rest)))
    if not pa.types.is_struct(of):
        hint = "; write [] behind it to go into its items" if _is_array(of) else ""
        raise wish.refused(f'"{name}" is {to_ddl(of)[:40]}, which has no fields{hint}')
    return pa.struct(_with([of.field(i) for i in range(of.num_fields)], wish, rest))


def _is_array(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and not pa.types.is_map(kind)


def _added(fields: Sequence[pa.Field], name: str, kind: pa.DataType) -> list[pa.Field]:
    """A new field behind its siblings, under a name that Delta and Spark take beside theirs."""
    column = column_names([*(one.name for one in fields), name])[-1]
    position = next((i for i, one in enumerate(fields) if one.name in _LAST), len(fields))
    return [*fields[:position], field(column, kind, wire=(name,)), *fields[position:]]
