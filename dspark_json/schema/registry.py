"""The registry of answer schemas: what it holds of each, and how a reader picks and merges them (DESIGN §3, §5).

A registered schema is identified by a hash over its kind, its name and its column type: schemas that differ only in
what has no influence on columns (enum values, descriptions) are one. The type is written as Spark's DDL with the names
that the fields have on the wire, so that it can be read back under either rule of names. Nothing here does I/O; the
documents are kept by ``spool.schemas``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.requested import SchemaKind

if TYPE_CHECKING:
    # The hook registers schemas, and its import must not bring pyarrow along: it is imported where it is used.
    import pyarrow as pa

    from dspark_json.schema.names import FieldNames

__all__ = ["RegisteredSchema", "SchemaKind", "merged_type", "register", "select"]

_HASH_PREFIX: Final = re.compile(r"[0-9a-f]{6,64}")
_LONGEST_MESSAGE: Final = 500


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One schema of the registry.

    ``schema`` is the JSON Schema as the first client sent it (None: it is nested too deeply, or holds text that is not
    Unicode, to be kept). ``type_text`` is the type of its values as DDL, with wire names; where no type could be made
    it is None, and ``error`` has the ``code`` and ``message``. ``first_seen`` is in µs since the epoch.
    """

    hash: str
    name: str | None
    kind: SchemaKind
    schema: object
    type_text: str | None
    error: Mapping[str, str] | None
    first_seen: int

    def arrow_type(self, field_names: FieldNames = "safe") -> pa.DataType:
        """The column type of the values; raises ``ContentSchemaError`` where the schema has none."""
        from dspark_json.schema.ddl import from_ddl

        if self.type_text is None:
            why = (self.error or {}).get("message", "it was registered without a type")
            raise ContentSchemaError(
                f"{self.label} can't be made a column type: {why}", remedy="Give the type with contentSchema."
            )
        return from_ddl(self.type_text, names=field_names)

    @property
    def label(self) -> str:
        """The schema for people: its name if it has one, and the beginning of its hash."""
        return f"the schema {self.hash[:12]}" if self.name is None else f'the schema "{self.name}" ({self.hash[:12]})'

    def to_document(self) -> dict[str, Any]:
        """The document that the registry keeps under the hash."""
        return {
            "hash": self.hash,
            "name": self.name,
            "kind": self.kind,
            "type": self.type_text,
            "error": None if self.error is None else dict(self.error),
            "schema": self.schema,
            "first_seen": self.first_seen,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RegisteredSchema:
        """The schema of a registry document, whose further members are not looked at; raises ``ContentSchemaError``."""
        kinds = {
            "hash": (str,),
            "name": (str, type(None)),
            "kind": (str,),
            "type": (str, type(None)),
            "error": (Mapping, type(None)),
            "first_seen": (int,),
        }
        for member, allowed in kinds.items():
            if not isinstance(document.get(member), allowed):
                raise ContentSchemaError(
                    f'a document of the schema registry has no usable "{member}"',
                    remedy="The server's version of this package may be another one: use the same on both sides.",
                )
        return cls(
            hash=document["hash"],
            name=document["name"],
            kind=cast("SchemaKind", document["kind"]),
            schema=document.get("schema"),
            type_text=document["type"],
            error=document["error"],
            first_seen=document["first_seen"],
        )


def register(kind: SchemaKind, name: str | None, schema: object, now_us: int) -> RegisteredSchema:
    """What the registry is to hold of a schema that a client sent (parsed JSON).

    A schema that no type can be made of is registered with its error; nothing is raised for what a client can send.
    """
    from dspark_json.schema.ddl import to_ddl
    from dspark_json.schema.jsonschema import from_json_schema

    type_text: str | None = None
    error: dict[str, str] | None = None
    try:
        type_text = to_ddl(from_json_schema(schema, names="exact"))
        identity: object = type_text
    except (ContentSchemaError, RecursionError, UnicodeError) as problem:
        error = {"code": ContentSchemaError.code, "message": _message(problem)}
        identity = schema
    return RegisteredSchema(
        _hash(kind, name, identity), name, kind, schema if _can_be_kept(schema) else None, type_text, error, now_us
    )


def select(schemas: Sequence[RegisteredSchema], wanted: str, kind: SchemaKind) -> list[RegisteredSchema]:
    """The schemas of this kind that ``wanted`` means, in first-seen order; empty where it means none.

    ``*`` means all; else those with exactly this name; else, for six or more hex digits, those whose hash begins so.
    """
    ordered = sorted((s for s in schemas if s.kind == kind), key=lambda s: (s.first_seen, s.hash))
    if wanted == "*":
        return ordered
    named = [s for s in ordered if s.name == wanted]
    if named or _HASH_PREFIX.fullmatch(wanted.lower()) is None:
        return named
    return [s for s in ordered if s.hash.startswith(wanted.lower())]


def merged_type(
    schemas: Sequence[RegisteredSchema], *, field_names: FieldNames = "safe"
) -> tuple[pa.DataType, tuple[str, ...]]:
    """One type for the values of all these schemas (in first-seen order), and what to log about it.

    Fields come in the order in which they were first seen; BIGINT and DOUBLE make DOUBLE, other types that differ
    STRING. The notes say where that happened (``amount: BIGINT and STRING``), and which schemas have no type and so no
    part in it. Raises ``ContentSchemaError`` where none has a type, or the merged one has too many fields.
    """
    from dspark_json.schema.ddl import from_ddl, to_ddl

    notes: dict[str, None] = {}
    merged: pa.DataType | None = None
    for schema in schemas:
        if schema.type_text is None and len(schemas) > 1:
            notes[f"{schema.label} has no type: {(schema.error or {}).get('message', 'it was registered without')}"] = (
                None
            )
            continue
        one = schema.arrow_type("exact")
        merged = one if merged is None else _merge(merged, one, "", notes)
    if merged is None:
        raise ContentSchemaError(
            f"none of the {len(schemas)} schemas can be made a column type ({'; '.join(notes)})"
            if schemas
            else "there is no schema to make a type of",
            remedy="Give the type with contentSchema.",
        )
    return from_ddl(to_ddl(merged), names=field_names), tuple(notes)


def _merge(left: pa.DataType, right: pa.DataType, place: str, notes: dict[str, None]) -> pa.DataType:
    """Both types in one; field names are wire names."""
    import pyarrow as pa

    from dspark_json.schema.fields import BIGINT, DOUBLE, STRING, field

    if left == right:
        return left
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        parts = {one.name: one.type for one in _fields(left)}
        for one in _fields(right):
            path = f"{place}.{one.name}" if place else one.name
            parts[one.name] = _merge(parts[one.name], one.type, path, notes) if one.name in parts else one.type
        return pa.struct([field(name, kind) for name, kind in parts.items()])
    if pa.types.is_map(left) and pa.types.is_map(right):
        return pa.map_(STRING, _merge(left.item_type, right.item_type, f"{place}['…']", notes))
    if pa.types.is_list(left) and pa.types.is_list(right):
        return pa.list_(_merge(left.value_type, right.value_type, f"{place}[]", notes))
    if {left, right} == {BIGINT, DOUBLE}:
        return DOUBLE
    notes[f"{place or 'the value'}: {_short(left)} and {_short(right)}"] = None
    return STRING


def _fields(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]


def _short(kind: pa.DataType) -> str:
    from dspark_json.schema.ddl import to_ddl

    text = to_ddl(kind)
    return text if len(text) <= 80 else text[:77] + "..."


def _message(problem: Exception) -> str:
    if not isinstance(problem, ContentSchemaError):
        kind = "is nested too deeply" if isinstance(problem, RecursionError) else "holds text that is not Unicode"
        return f"the JSON Schema {kind}"
    text = problem.message.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."


def _hash(kind: SchemaKind, name: str | None, identity: object) -> str:
    """SHA-256 over canonical JSON (sorted keys, no blanks, ASCII)."""
    try:
        text = json.dumps([kind, name, identity], sort_keys=True, separators=(",", ":"))
    except RecursionError:  # only a schema in error can be that deep; all of them are alike to a reader
        text = json.dumps([kind, name, None], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _can_be_kept(schema: object) -> bool:
    """Whether everybody can write and read the schema inside a few levels of other JSON: orjson has a limit of 254."""
    try:
        orjson.dumps([[[[schema]]]])
    except TypeError:
        return False
    return True
