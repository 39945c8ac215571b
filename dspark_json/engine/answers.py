"""What the reader makes of an answer beside its columns: the values inside its texts, and whether it is complete.

These are the fields that have no name on the wire (``parsed``, ``parse_status``, ``parsed_arguments``,
``arguments_status``), the verdict that the hook leaves open where it did not look into a body (DESIGN §2 rule 4, §5,
§6), and whether the filters keep the answer (§5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.engine.content import ContentReader, ParseStatus
from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse
from dspark_json.engine.rescue import Path, Rescue
from dspark_json.schema.envelope import RECORD_COLUMN
from dspark_json.schema.protocol import RESPONSES, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ArgumentsReader", "asked_for_json", "calls_one_of", "is_asked_for_with", "is_complete", "read_answers"]

Row = dict[str, Any]

_FIRST_ERROR_STATUS: Final = 400
_HASH_PREFIX: Final = re.compile(r"[0-9a-f]{6,64}")


def is_complete(row: Row, record: Row, members: dict[str, Value]) -> bool | None:
    """Whether the answer came whole, for a record whose hook did not say so (DESIGN §2 rule 4).

    ``row`` and ``record`` are the columns and those of ``_dspark``, ``members`` those of the line. ``None``: the record
    does not know its HTTP status either, so nothing can be said.
    """
    if record.get("status") is None:
        return None
    is_object = record.get("body") is None and any(name != RECORD_COLUMN for name in members)
    has_error = record.get("error") is not None or ("error" in members and not members["error"].is_null)
    if record["status"] >= _FIRST_ERROR_STATUS or not is_object or has_error:
        return False
    if record.get("path") == RESPONSES:
        state = members.get("status")
        return state is not None and state.kind == Kind.STRING and state.string() in {"completed", "incomplete"}
    choices = row["choices"] or []
    finished = [choice is not None and choice["finish_reason"] not in (None, *UNFINISHED) for choice in choices]
    return bool(finished) and all(finished)


def asked_for_json(record: Row) -> bool:
    """Whether the request wanted JSON: the hook noted its schema, or its settings say so.

    The settings are ``response_format``, ``structured_outputs`` and ``guided_json``; ``record`` is the columns of
    ``_dspark``.
    """
    if record.get("schema") is not None:
        return True
    request = record.get("request")
    if request is None:
        return False
    if request["guided_json"] is not None:
        return True
    kind = _member(request["response_format"], "type")
    if kind is not None and kind.kind == Kind.STRING and kind.string() in {"json_object", "json_schema"}:
        return True
    schema = _member(request["structured_outputs"], "json")
    if schema is not None and not schema.is_null:
        return True
    bare = _member(request["structured_outputs"], "json_object")
    return bare is not None and bare.kind == Kind.TRUE


def _member(text: str | None, name: str) -> Value | None:
    """A member of the object that a setting's JSON text is."""
    if text is None:
        return None
    try:
        root = parse(text.encode()).root
    except JsonSyntaxError:
        return None
    return root.members().get(name) if root.kind == Kind.OBJECT else None


def is_asked_for_with(record: Row, wanted: str) -> bool:
    """Whether the request asked for the schema of this name, or whose hash begins so; ``record`` as above."""
    schema = record.get("schema")
    if schema is None:
        return False
    if schema["name"] == wanted:
        return True
    prefix = wanted.lower()
    return _HASH_PREFIX.fullmatch(prefix) is not None and (schema["hash"] or "").startswith(prefix)


def calls_one_of(row: Row, tools: frozenset[str]) -> bool:
    """Whether some choice of the answer has a call of one of these tools."""
    return any(
        call is not None and (call["function"] or {}).get("name") in tools
        for choice in row["choices"] or []
        for call in ((choice or {}).get("message") or {}).get("tool_calls") or []
    )


@dataclass(frozen=True, slots=True)
class ArgumentsReader:
    """Reads the arguments of tool calls: as values of a type, or (``is_typed`` false) as their JSON text.

    ``tools`` are the names of the tools that are read, ``None``: all.
    """

    contents: ContentReader
    is_typed: bool = False
    tools: frozenset[str] | None = None

    def read_calls(
        self, calls: list[Row | None], places: Iterable[Value], path: Path, *, cut_short: bool, rescue: Rescue
    ) -> Iterator[ParseStatus]:
        """Fills in what the arguments hold; gives the statuses of those that have a type.

        ``places`` and ``path`` are where the calls stand. Arguments are JSON by the API, so a call that is read always
        has its status.
        """
        for number, (call, place) in enumerate(zip(calls, places, strict=True)):
            function = (call or {}).get("function")
            if function is None or (self.tools is not None and function["name"] not in self.tools):
                continue
            found = rescue.for_content()
            function["parsed_arguments"], status = self.contents.read(
                function["arguments"],
                cut_short=cut_short,
                path=Path(Path(Path(path, number), "function"), "parsed_arguments"),
                rescue=found,
            )
            arguments = place.members()["function"].members().get("arguments")
            rescue.absorb(found, 0 if arguments is None else arguments.start)
            function["arguments_status"] = str(status)
            if self.is_typed:
                yield status


def read_answers(
    row: Row,
    choices: Value,
    contents: ContentReader,
    arguments: ArgumentsReader,
    *,
    status_wanted: bool,
    rescue: Rescue,
) -> list[list[ParseStatus]]:
    """Fills in what the texts of a row's choices hold.

    ``choices`` is where they stand in the line, so that what is rescued from a text keeps its place in the record.
    ``status_wanted``: a content type is in force, or the request asked for JSON. Returns, for each choice, the statuses
    that say whether it could be read: that of its content, where the row shows it, and of the arguments with a type.
    """
    statuses: list[list[ParseStatus]] = []
    completed = row[RECORD_COLUMN]["completed"]
    for number, (choice, value) in enumerate(zip(row["choices"], choices.items(), strict=True)):
        statuses.append([])
        if choice is None:
            continue
        path = Path(Path(None, "choices"), number)
        cut_short = choice["finish_reason"] == "length" or completed is False
        members = value.members()
        message = members.get("message")
        in_message = message.members() if message is not None and message.kind == Kind.OBJECT else {}
        calls = (choice["message"] or {}).get("tool_calls")
        if calls:
            places = in_message["tool_calls"].items()
            where = Path(Path(path, "message"), "tool_calls")
            statuses[-1] += arguments.read_calls(calls, places, where, cut_short=cut_short, rescue=rescue)
        text, place = (choice["message"] or {}).get("content"), in_message.get("content")
        if text is None:
            text, place = choice["text"], members.get("text")
        found = rescue.for_content()
        parsed, status = contents.read(text, cut_short=cut_short, path=Path(path, "parsed"), rescue=found)
        rescue.absorb(found, 0 if place is None else place.start)
        choice["parsed"] = parsed
        nothing_but_calls = bool(calls) and status in (ParseStatus.EMPTY, ParseStatus.MISSING)
        if status_wanted and not nothing_but_calls:
            choice["parse_status"] = str(status)
            statuses[-1].append(status)
    return statuses
