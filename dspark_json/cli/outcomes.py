"""What the parsing rules make of answers, in JSON: a line of text for each choice."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from dspark_json.capture.jsontext import BOM, loads
from dspark_json.capture.responses import choices_member
from dspark_json.engine.base import build_plan
from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse
from dspark_json.errors import MalformedRecordError
from dspark_json.schema.envelope import CORRUPT_COLUMN, RESCUED_COLUMN
from dspark_json.schema.fields import BIGINT, STRING
from dspark_json.schema.protocol import UNFINISHED
from dspark_json.spool.access import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark_json.cli.lines import Line
    from dspark_json.engine.base import Engine

_PARSED: Final = "choices[{}].parsed"
# Ends of lines to those who split at every line break that Unicode knows.
_BREAKS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029", 0x0A: " ", 0x0D: " "}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One choice, parsed: ``parsed`` and ``rescued`` are JSON texts; ``error`` says why there is no choice."""

    seq: int | None = None
    index: int | None = None
    parsed: str = "null"
    status: str | None = None
    rescued: str = "null"
    error: str | None = None
    unreadable: bool = False

    def text(self, *, numbered: bool) -> str:
        """The outcome as one JSON object without line breaks; ``numbered``: ``seq`` and ``index`` come first."""
        members = {"parsed": self.parsed, "status": json.dumps(self.status), "rescued": self.rescued}
        if numbered:
            members = {"seq": json.dumps(self.seq), "index": json.dumps(self.index), **members}
        if self.error is not None:
            members["error"] = json.dumps(self.error, ensure_ascii=False)
        text = "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"
        return text.translate(_BREAKS)


class AnswerParser:
    """Parses answers by one content type."""

    def __init__(self, engine: Engine, content_type: pa.DataType, repair: str) -> None:
        self._engine = engine
        self._content_type = content_type
        choice = [("index", BIGINT), ("parsed", content_type), ("parse_status", STRING)]
        wanted = pa.schema(
            [
                ("choices", pa.list_(pa.struct(choice))),
                ("error", pa.struct([("message", STRING)])),
                (RESCUED_COLUMN, STRING),
                (CORRUPT_COLUMN, STRING),
            ]
        )
        self._plan = build_plan(wanted, content_type=content_type, repair=repair)

    def records(self, lines: Sequence[Line]) -> Iterator[Outcome]:
        """The outcomes of each choice of spool records or responses; one without a choice gives one with an error."""
        lines = [replace(line, text=_with_choices(line.text)) for line in lines]
        for line, row in zip(lines, self._rows([line.text for line in lines]), strict=True):
            yield from self._outcomes(line, row)

    def contents(self, lines: Sequence[Line], finish_reason: str | None) -> Iterator[Outcome]:
        """The outcome of each content, a JSON string or null."""
        readable = [line for line in lines if _is_content(line.text)]
        rows = iter(self._rows([_record_of(line.text, finish_reason) for line in readable]))
        for line in lines:
            if _is_content(line.text):
                yield from self._outcomes(line, next(rows))
            else:
                yield _unreadable(line, "is neither a JSON string nor null")

    def _rows(self, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        ends: list[int] = []
        for line in lines:
            ends.append((ends[-1] if ends else 0) + len(line) + 1)
        buffer = memoryview(b"".join(line + b"\n" for line in lines))
        batch, _ = self._engine.parse(Chunk("", "", 0, buffer, ends, [0] * len(lines)), self._plan)
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows

    def _outcomes(self, line: Line, row: dict[str, Any]) -> Iterator[Outcome]:
        if row[CORRUPT_COLUMN] is not None:
            yield _unreadable(line, "is not a JSON object")
            return
        seq = _seq(line.text)
        if not row["choices"]:
            reason = (row["error"] or {}).get("message") or "the answer has no choices"
            yield Outcome(seq=seq, error=f"line {line.number}: {reason}")
            return
        rescued = _members(row[RESCUED_COLUMN])
        for position, choice in enumerate(row["choices"]):
            if choice is None:
                yield Outcome(seq=seq, index=position, error=f"line {line.number}: the choice is null")
                continue
            yield Outcome(
                seq=seq,
                index=position if choice["index"] is None else choice["index"],
                parsed=_json(_plain(choice["parsed"], self._content_type)),
                status=choice["parse_status"],
                rescued=_inside(rescued, _PARSED.format(position)),
            )


def _with_choices(line: bytes) -> bytes:
    """A line as it is; one that is an answer of ``/v1/responses`` as the hook would have kept it."""
    if b'"output"' not in line or b'"_dspark"' in line:
        return line
    try:
        response = loads(line)
    except ValueError:
        return line
    if not isinstance(response, dict) or "output" not in response or "choices" in response:
        return line
    members = line.strip().removeprefix(BOM)[1:]
    return b'{"_dspark":{"path":"/v1/responses","status":200},' + choices_member(response) + b"," + members


def _is_content(text: bytes) -> bool:
    try:
        return parse(text).root.kind in {Kind.STRING, Kind.NULL}
    except JsonSyntaxError:
        return False


def _record_of(content: bytes, finish_reason: str | None) -> bytes:
    """A response whose one choice has this content, written as it is."""
    completed = json.dumps(finish_reason not in UNFINISHED)
    return b'{"_dspark":{"completed":%b},"choices":[{"message":{"content":%b},"finish_reason":%b}]}' % (
        completed.encode(),
        content,
        json.dumps(finish_reason).encode(),
    )


def _unreadable(line: Line, why: str) -> Outcome:
    error = MalformedRecordError(f"line {line.number} {why}")
    return Outcome(error=str(error), unreadable=True)


def _seq(text: bytes) -> int | None:
    """The number that a spool's record bears; the first ``_dspark`` is the hook's."""
    record = parse(text).root.members(frozenset({"_dspark"})).get("_dspark")
    seq = record.members().get("seq") if record is not None and record.kind == Kind.OBJECT else None
    digits = seq.raw() if seq is not None and seq.kind == Kind.NUMBER else ""
    return int(digits) if re.fullmatch("[0-9]{1,19}", digits) else None


def _members(text: str | None) -> dict[str, Value]:
    return {} if text is None else parse(text.encode()).root.members()


def _inside(rescued: dict[str, Value], place: str) -> str:
    """What was rescued inside ``place``, by paths that begin there; the values stay as they were written."""
    found = [
        f"{_json(path.removeprefix(place).removeprefix('.'))}:{value.raw()}"
        for path, value in rescued.items()
        if path.startswith(place) and path.removeprefix(place)[:1] in {"", ".", "["}
    ]
    return "{" + ",".join(found) + "}" if found else "null"


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A column value as JSON has it: a MAP is an object."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {field.name: _plain(value[field.name], field.type) for field in fields}
    if pa.types.is_map(kind):
        return {name: _plain(item, kind.item_type) for name, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
