"""Whether answers are JSON, and follow the schemas that they were asked for."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dspark_json.cli.bench.serving.reply import Problem, Reply, read_reply
from dspark_json.cli.lines import Line
from dspark_json.cli.outcomes import AnswerParser
from dspark_json.engine.native import NativeEngine
from dspark_json.schema.constraints import Constraints
from dspark_json.schema.fields import STRING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dspark_json.cli.bench.serving.questions import Task
    from dspark_json.cli.bench.serving.reply import Exchange
    from dspark_json.monitor.speculation import Speculation

VALID: Final = "ok"


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. Times are seconds, ``latency`` and ``first_json`` from when its request was due.

    ``status`` is what ``parse_status`` would be; only where it is ``ok`` is the content JSON and nothing else.
    ``json_bytes`` is the size of such a content, 0 for others. ``violated`` is the keyword of its schema that it breaks
    first, or why that can't be said; None where it follows the schema or is no JSON.
    """

    schema: str
    latency: float
    late: float
    first_json: float | None
    status: str
    violated: str | None
    json_bytes: int
    tokens: int | None
    drafts: Speculation | None

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
        self._constraints = {task.name: Constraints(task.schema) for task in tasks}
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
        found = self._constraints[schema].violations(content.encode("utf-8", "replace"))
        if not found:
            return None
        return found[0].rpartition(" ")[2] if found[0].startswith("#") else found[0]
