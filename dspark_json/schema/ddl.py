"""Spark's DDL text to Arrow types and back, without Spark.

Only the types that rows can have are known: STRING, BIGINT, INT, DOUBLE, BOOLEAN, TIMESTAMP, STRUCT, ARRAY and MAP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from dspark_json.errors import ContentSchemaError, SchemaError
from dspark_json.schema.content_type import MAX_LEVELS, checked_content_type
from dspark_json.schema.fields import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, field
from dspark_json.schema.names import FieldNames, column_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["columns_to_ddl", "from_ddl", "hints_from_ddl", "to_ddl"]

_NAMES: Final = {
    STRING: "STRING",
    BIGINT: "BIGINT",
    INT: "INT",
    DOUBLE: "DOUBLE",
    BOOLEAN: "BOOLEAN",
    TIMESTAMP: "TIMESTAMP",
}
_SCALARS: Final = {name: kind for kind, name in _NAMES.items()} | {"LONG": BIGINT, "INTEGER": INT}
_ALLOWED: Final = "STRING, BIGINT, INT, DOUBLE, BOOLEAN, STRUCT<…>, ARRAY<…> and MAP<STRING, …>"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>[A-Za-z0-9_]+)|`(?P<quoted>(?:[^`]|``)*)`|(?P<text>'(?:[^'\\]|\\.)*')|(?P<mark>[<>,:.]))"
)


def to_ddl(kind: pa.DataType) -> str:
    """An Arrow type as Spark writes it: ``STRUCT<a: BIGINT, b: ARRAY<STRING>>``; ``SchemaError`` for other types."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(f.name)}: {to_ddl(f.type)}' for f in _children(kind))}>"
    if pa.types.is_map(kind):
        return f"MAP<{to_ddl(kind.key_type)}, {to_ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{to_ddl(kind.value_type)}>"
    if kind in _NAMES:
        return _NAMES[kind]
    raise SchemaError(f"no column of the rows is of the type {kind}")


def columns_to_ddl(columns: Iterable[pa.Field]) -> str:
    """Fields as a list of columns: ``a BIGINT, b STRING``."""
    return ", ".join(f"{_quoted(column.name)} {to_ddl(column.type)}" for column in columns)


def from_ddl(text: str, *, names: FieldNames = "safe") -> pa.DataType:
    """The content type that DDL describes: a list of columns (a STRUCT), or one type.

    ``NOT NULL`` and ``COMMENT`` are taken and say nothing: every field is nullable. Raises ``ContentSchemaError`` for
    what is not DDL and for types that the parsing rules don't know.
    """
    return checked_content_type(_Reader(text, names).whole())


def hints_from_ddl(text: str, *, names: FieldNames = "safe") -> list[tuple[tuple[str, ...], pa.DataType]]:
    """A list of paths and types, as in ``amount DOUBLE, customer.address STRUCT<zip: STRING>``; errors as above."""
    return _Reader(text, names).hints()


def _children(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class _Token:
    """``kind`` is ``word``, ``quoted`` (a name between backticks), ``text`` (a comment), ``mark`` or ``end``."""

    kind: str
    text: str
    position: int


class _Reader:
    """A recursive-descent reader of one DDL text."""

    def __init__(self, text: str, names: FieldNames) -> None:
        self._names = names
        self._tokens = list(_tokens(text))
        self._next = 0

    def whole(self) -> pa.DataType:
        """The type that the whole text is."""
        result = self._type(1) if self._is_one_type() else self._struct(1)
        if self._peek().kind != "end":
            self._fail("the end")
        return result

    def hints(self) -> list[tuple[tuple[str, ...], pa.DataType]]:
        """The paths and types that the whole text is."""
        found: list[tuple[tuple[str, ...], pa.DataType]] = []
        while True:
            path = [self._name()]
            while self._is_mark("."):
                self._take()
                path.append(self._name())
            if self._is_mark(":"):
                self._take()
            found.append((tuple(path), checked_content_type(self._type(1))))
            self._skip_notes()
            if not self._is_mark(","):
                break
            self._take()
        if self._peek().kind != "end":
            self._fail("the end")
        return found

    def _is_one_type(self) -> bool:
        """Whether the text is a type (``ARRAY<INT>``), not columns (``array ARRAY<INT>``)."""
        first, second = self._tokens[0], self._tokens[min(1, len(self._tokens) - 1)]
        return first.kind == "word" and (second.kind == "end" or second.text == "<")

    def _type(self, level: int) -> pa.DataType:
        if level > MAX_LEVELS:
            raise _refusal(f"it is nested deeper than {MAX_LEVELS} levels")
        if self._peek().kind != "word":
            self._fail("a type")
        name = self._take().text.upper()
        if name in _SCALARS:
            return _SCALARS[name]
        if name not in {"ARRAY", "MAP", "STRUCT"}:
            raise _refusal(f"{name} is not a type of parsed JSON text")
        self._expect("<")
        if name == "ARRAY":
            result = pa.list_(self._type(level + 1))
        elif name == "MAP":
            key = self._type(level + 1)
            self._expect(",")
            result = pa.map_(key, self._type(level + 2))
        else:
            result = self._struct(level)
        self._expect(">")
        return result

    def _struct(self, level: int) -> pa.DataType:
        """Columns, up to what is no comma."""
        kinds: dict[str, pa.DataType] = {}
        while True:
            name = self._name()
            if name in kinds:
                raise _refusal(f'the column "{name}" is there twice')
            if self._is_mark(":"):
                self._take()
            kinds[name] = self._type(level + 1)
            self._skip_notes()
            if not self._is_mark(","):
                break
            self._take()
        columns = column_names(list(kinds), self._names)
        return pa.struct([field(c, k, wire=(w,)) for c, (w, k) in zip(columns, kinds.items(), strict=True)])

    def _name(self) -> str:
        if self._peek().kind not in {"word", "quoted"}:
            self._fail("a column's name")
        return self._take().text

    def _skip_notes(self) -> None:
        """``NOT NULL`` and ``COMMENT '…'``."""
        for first, kind in (("NOT", "word"), ("COMMENT", "text")):
            if self._peek().kind == "word" and self._peek().text.upper() == first:
                self._take()
                if self._peek().kind != kind:
                    self._fail("NULL" if kind == "word" else "a text between single quotes")
                self._take()

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _is_mark(self, mark: str) -> bool:
        return self._peek().kind == "mark" and self._peek().text == mark

    def _expect(self, mark: str) -> None:
        if not self._is_mark(mark):
            self._fail(f'"{mark}"')
        self._take()

    def _fail(self, expected: str) -> NoReturn:
        found = self._peek()
        what = "it ends" if found.kind == "end" else f'"{found.text}" stands'
        raise _refusal(f"at position {found.position} {what} where {expected} should be")


def _tokens(text: str) -> Iterator[_Token]:
    position, stop = 0, len(text.rstrip())
    while position < stop:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _refusal(f'"{text[position:].strip()[:20]}" is not DDL')
        kind = match.lastgroup
        token = match[kind].replace("``", "`") if kind == "quoted" else match[kind]
        yield _Token(kind, token, match.start(kind))
        position = match.end()
    yield _Token("end", "", stop)


def _refusal(what: str) -> ContentSchemaError:
    return ContentSchemaError(
        f"the content schema can't be taken as DDL: {what}",
        remedy=f"Write `name TYPE, …`; types are {_ALLOWED}; a name with other characters goes between backticks.",
    )
