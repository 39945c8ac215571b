"""The JSON Schemas that a request asks its answer to follow, and whether it asks for JSON without one (DESIGN §3, §5).

Where several places name a schema for the content, vLLM takes the first of ``response_format``,
``structured_outputs.json`` and ``guided_json`` (``vllm/entrypoints/openai/chat_completion/protocol.py``,
``to_sampling_params``); ``text.format`` is that of ``/v1/responses``. Clients send what they like: a shape that no
server takes counts as no schema, and nothing is raised.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_NAME", "MAX_TOOLS", "RequestedSchema", "RequestedSchemas", "SchemaKind", "requested_schemas"]

SchemaKind = Literal["content", "tool"]

# OpenAI allows 64 characters and 128 tools. A longer name counts as none, so that records stay small; the schemas of
# more tools are not looked at.
MAX_NAME: Final = 256
MAX_TOOLS: Final = 128


class RequestedSchema(NamedTuple):
    """One schema as parsed JSON (an object or a boolean); ``name`` is the schema's or the tool's."""

    kind: SchemaKind
    name: str | None
    schema: object


class RequestedSchemas(NamedTuple):
    """The schema of the content, those of the tools with ``strict``, and whether JSON is asked for without a schema."""

    content: RequestedSchema | None = None
    tools: tuple[RequestedSchema, ...] = ()
    json_object_without_schema: bool = False


def requested_schemas(request: Mapping[str, object]) -> RequestedSchemas:
    """What a request (its parsed body) asks for."""
    structured, text = _object(request.get("structured_outputs")), _object(request.get("text"))
    formats = (_object(request.get("response_format")), _object(text.get("format")))
    content = (
        _of_format(formats[0], _object(formats[0].get("json_schema")))
        or _titled(structured.get("json"))
        or _titled(request.get("guided_json"))
        or _of_format(formats[1], formats[1])
    )
    asks_for_json = structured.get("json_object") is True or any(f.get("type") == "json_object" for f in formats)
    return RequestedSchemas(content, _of_tools(request.get("tools")), asks_for_json and content is None)


def _of_format(outer: Mapping[str, object], named: Mapping[str, object]) -> RequestedSchema | None:
    """The schema of a format of type ``json_schema``, whose name and schema are in ``named``."""
    if outer.get("type") != "json_schema":
        return None
    schema = _schema(named.get("schema"))
    return None if schema is None else RequestedSchema("content", _name(named.get("name")), schema)


def _titled(value: object) -> RequestedSchema | None:
    """A schema that has no name beside it; its ``title`` serves as one."""
    schema = _schema(value)
    return None if schema is None else RequestedSchema("content", _name(_object(schema).get("title")), schema)


def _of_tools(tools: object) -> tuple[RequestedSchema, ...]:
    if not isinstance(tools, list):
        return ()
    found = []
    for tool in tools[:MAX_TOOLS]:
        # The responses API has the function's members in the tool itself.
        function = _object(_object(tool).get("function", tool))
        schema = _schema(function.get("parameters")) if function.get("strict") is True else None
        if schema is not None:
            found.append(RequestedSchema("tool", _name(function.get("name")), schema))
    return tuple(found)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _schema(value: object) -> object:
    """A JSON Schema, given as such or as its JSON text; None where it is none."""
    if isinstance(value, str):
        value = _parsed(value)
    return value if isinstance(value, (dict, bool)) else None


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text, parse_constant=_refused)  # takes lone surrogates, which orjson refuses
    except (ValueError, RecursionError):
        return None


def _refused(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _name(value: object) -> str | None:
    """A name as records can carry it: lone surrogates become U+FFFD."""
    if not isinstance(value, str) or len(value) > MAX_NAME:
        return None
    if value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
