"""The content type that a user gives: Spark DDL or JSON Schema, as text or in a file (DESIGN §5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from dspark_json.errors import ContentSchemaError
from dspark_json.schema.content_type import checked_content_type
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.jsonschema import from_json_schema, json_schema_from_text

if TYPE_CHECKING:
    import pyarrow as pa

    from dspark_json.schema.names import FieldNames

__all__ = ["content_type_from"]

_SUFFIXES: Final = frozenset({".json", ".ddl", ".sql"})


def content_type_from(given: str, *, names: FieldNames = "safe") -> pa.DataType:
    """The type that ``contentSchema`` means.

    ``given`` is a path if such a file exists or if it ends with ``.json``, ``.ddl`` or ``.sql``, else the text itself;
    a text that begins with ``{`` is a JSON Schema, another one DDL. Raises ``ContentSchemaError``.
    """
    file = _file(given.strip())
    text = given if file is None else _read(file)
    try:
        if text.lstrip().startswith("{") or (file is not None and file.suffix.lower() == ".json"):
            return checked_content_type(from_json_schema(json_schema_from_text(text), names=names))
        return from_ddl(text, names=names)
    except ContentSchemaError as error:
        if file is None and not given.lstrip().startswith("{") and len(given.split()) == 1:
            message = f"{error.message} (and there is no file of this name)"
            raise ContentSchemaError(message, remedy=error.remedy) from None
        if file is None:
            raise
        raise ContentSchemaError(f"{file}: {error.message}", remedy=error.remedy) from None


def _file(given: str) -> Path | None:
    """The file that is meant; ``None``: the text itself is."""
    if given.startswith("{"):
        return None
    path = Path(unquote(urlsplit(given).path) if given.startswith("file:") else given)
    try:
        return path if path.suffix.lower() in _SUFFIXES or path.is_file() else None
    except (OSError, ValueError):  # longer than a path can be, or with a character that none has
        return None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ContentSchemaError(
            f'the content schema "{file}" can\'t be read: {reason}',
            remedy="Give the path of a file on the driver, or the schema itself.",
        ) from None
