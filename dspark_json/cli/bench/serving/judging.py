"""Whether answers are JSON, and follow the schemas that they were asked for."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from dspark_json.cli.bench.serving.reply import Problem, Reply, read_reply
from dspark_json.cli.lines import Line
from dspark_json.cli.outcomes import AnswerParser
from dspark_json.engine.native import NativeEngine
from dspark_json.schema.fields import STRING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dspark_json.cli.bench.serving.acceptance import Acceptance
    from dspark_json.cli.bench.serving.questions import Task
    from dspark_json.cli.bench.serving.reply import Exchange

VALID: Final = "ok"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONGEST_INTEGER: Final = 4_000  # Python refuses integers of more than 4,300 digits


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. Times are seconds, ``latency`` and ``first_json`` from when its request was due.

    ``status`` is what ``parse_status`` would be; only where it is ``ok`` is the content JSON and nothing else.
    ``json_bytes`` is the size of such a content, 0 for others. ``violated`` is the keyword of its schema that it breaks
    first, None where it follows the schema or is no JSON.
    """

    schema: str
    latency: float
    late: float
    first_json: float | None
    status: str
    violated: str | None
    json_bytes: int
    tokens: int | None
    drafts: Acceptance | None

    @property
    def is_json(self) -> bool:
        """Whether the whole content is one JSON value (RFC 8259)."""
        return self.status == VALID

    @property
    def follows_schema(self) -> bool:
        """Whether it is JSON that the schema allows."""
        return self.is_json and self.violated is None


class Judge:
    """Reads what came of requests and judges it, after the load has ended."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        """``tasks`` have the schemas of the answers."""
        self._validators = {task.name: jsonschema_rs.validator_for(dict(task.schema)) for task in tasks}
        self._parser = AnswerParser(NativeEngine(), STRING, "auto")

    def judge(self, exchanges: Sequence[Exchange]) -> tuple[list[Answer], Counter[Problem]]:
        """The answers, and how often each problem left a request without one."""
        problems: Counter[Problem] = Counter()
        whole: list[tuple[Exchange, Reply]] = []
        for exchange in exchanges:
            found = exchange.problem or read_reply(exchange.pieces)
            if isinstance(found, Problem):
                problems[found] += 1
            else:
                whole.append((exchange, found))
        statuses = self._statuses([reply for _, reply in whole])
        return [self._answer(*one, status) for one, status in zip(whole, statuses, strict=True)], problems

    def _statuses(self, replies: Sequence[Reply]) -> list[str]:
        """What the source would make of each content."""
        found = [""] * len(replies)
        by_reason: dict[str, list[int]] = defaultdict(list)
        for place, reply in enumerate(replies):
            by_reason[reply.finish_reason].append(place)
        for reason, places in by_reason.items():
            lines = [Line(place, json.dumps(replies[place].content).encode()) for place in places]
            for place, outcome in zip(places, self._parser.contents(lines, reason), strict=True):
                found[place] = outcome.status or "invalid"
        return found

    def _answer(self, exchange: Exchange, reply: Reply, status: str) -> Answer:
        valid = status == VALID
        return Answer(
            schema=exchange.schema,
            latency=exchange.ended - exchange.due,
            late=exchange.sent - exchange.due,
            first_json=None if reply.first_json is None else reply.first_json - exchange.due,
            status=status,
            violated=self._violated(exchange.schema, reply.content) if valid else None,
            json_bytes=len(reply.content.encode("utf-8", "replace")) if valid else 0,
            tokens=reply.tokens,
            drafts=reply.drafts,
        )

    def _violated(self, schema: str, content: str) -> str | None:
        value = _encodable(json.loads(content, parse_float=_decimal, parse_int=_integer))
        first = next(iter(self._validators[schema].iter_errors(value)), None)
        return None if first is None else str(first.schema_path[-1])


def _encodable(value: Any) -> Any:
    """A value with U+FFFD for lone surrogates, as the source has them; the library takes no others."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return value


def _decimal(text: str) -> Decimal:
    """A number as it is written: one beyond a double is a number all the same."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of some twenty digits: as far from 0, or as near, as decimals go
        end = Decimal("1E-999999999" if "e-" in text.lower() else "1E+999999999")
        return end.copy_negate() if text.startswith("-") else end


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONGEST_INTEGER else Decimal(text)
