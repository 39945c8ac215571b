"""Blocks of requests: what a server answered to each, and how its counters grew meanwhile.

In a closed loop servers that are compared, and ways to ask, take turns block by block, so that a machine that gets
slower or faster favours none. An open loop is one run without a pause, since a pause would let a server that can't keep
up work off what waits: servers have theirs one after the other, and the blocks are spans of a run, cut afterwards.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from dspark_json.cli.bench.serving.load import send
from dspark_json.errors import EndpointAnswerError
from dspark_json.monitor.counters import Counters, Growth
from dspark_json.monitor.metrics_page import metrics_page
from dspark_json.monitor.speculation import Speculation
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dspark_json.cli.bench.serving.judging import Answer, Judge
    from dspark_json.cli.bench.serving.load import Load, Sent
    from dspark_json.cli.bench.serving.questions import Asking
    from dspark_json.cli.bench.serving.reply import Exchange, Problem
    from dspark_json.cli.model_server import ModelServer

_SHOWN: Final = 200  # characters of what a server says
_COUNTERS_TIMEOUT_SEC: Final = 10.0
_SETTLE_SEC: Final = 0.1
_SETTLE_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Failures:
    """Requests without an answer, all of one kind; ``example`` is what was said at one of them."""

    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Block:
    """What came of a block of requests; ``counted`` is None where the server has no counters of its drafts.

    Of blocks that are spans of one run the first has all that was counted.
    """

    answers: tuple[Answer, ...]
    failures: Mapping[str, Failures]
    seconds: float
    busy: float
    counted: Growth | None


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, and how it is asked."""

    name: str
    server: ModelServer
    asking: Asking


@dataclass(frozen=True, slots=True)
class Plan:
    """How many requests, in how many blocks; ``warm_up`` requests go before and do not count."""

    requests: int
    blocks: int
    warm_up: int

    def ranges(self) -> list[range]:
        """The numbers of the requests of each block; none is empty."""
        blocks = min(self.blocks, self.requests)
        ends = [self.warm_up + self.requests * block // blocks for block in range(blocks + 1)]
        return [range(first, end) for first, end in itertools.pairwise(ends)]


class Measurement:
    """Sends blocks to servers; ``on_end`` is told the subject's name whenever a request has ended."""

    def __init__(self, judge: Judge, load: Load, on_end: Callable[[str], None]) -> None:
        self._judge = judge
        self._load = load
        self._on_end = on_end

    def run(self, subjects: Sequence[Subject], plan: Plan) -> dict[str, list[Block]]:
        """Warm all subjects up, then ask them in turn; blocks by the subject's name, in order.

        With a rate each subject has one run, cut into as many blocks of the same length in time.
        """
        for subject in subjects:
            self._warm_up(subject, plan.warm_up)
        if self._load.rate is not None:
            return {subject.name: self._spans(subject, plan) for subject in subjects}
        found: dict[str, list[Block]] = {subject.name: [] for subject in subjects}
        for turn, numbers in enumerate(plan.ranges()):
            for subject in subjects if turn % 2 == 0 else subjects[::-1]:
                on_end = partial(self._on_end, subject.name)
                found[subject.name].append(self._block(subject, numbers, replace(self._load, seed=turn), on_end))
        return found

    def _warm_up(self, subject: Subject, requests: int) -> None:
        """All at once: it is to be ready, not to be on time. ``EndpointAnswerError`` where not one is answered."""
        if not requests:
            return
        at_once = replace(self._load, rate=None, workers=requests)
        block = self._block(subject, range(requests), at_once, lambda: None)
        if not block.answers:
            kind, failures = max(block.failures.items(), key=lambda item: item[1].count)
            said = f": {failures.example}" if failures.example else ""
            raise EndpointAnswerError(
                f"{subject.server.address} answered none of {requests} requests to warm up ({kind}{said})",
                remedy="Check the server's log, the model's name (--model) and the key (VLLM_API_KEY).",
            )

    def _spans(self, subject: Subject, plan: Plan) -> list[Block]:
        ranges = plan.ranges()
        numbers = range(ranges[0].start, ranges[-1].stop)
        sent, counted = self._sent(subject, numbers, self._load, partial(self._on_end, subject.name))
        none_more = None if counted is None else Growth(Speculation(), reset=False)
        return [
            self._judged(subject.server, span, sent.seconds / len(ranges), sent.busy, none_more if place else counted)
            for place, span in enumerate(sent.spans(len(ranges)))
        ]

    def _block(self, subject: Subject, numbers: range, load: Load, on_end: Callable[[], None]) -> Block:
        sent, counted = self._sent(subject, numbers, load, on_end)
        return self._judged(subject.server, sent.exchanges, sent.seconds, sent.busy, counted)

    def _sent(
        self, subject: Subject, numbers: range, load: Load, on_end: Callable[[], None]
    ) -> tuple[Sent, Growth | None]:
        server = subject.server
        questions = [subject.asking.question(server.model, number) for number in numbers]
        before = _counters(server)
        sent = send(server, questions, load, on_end)
        after = _settled_counters(server)
        return sent, None if before is None or after is None else after.since(before)

    def _judged(
        self, server: ModelServer, exchanges: Sequence[Exchange], seconds: float, busy: float, counted: Growth | None
    ) -> Block:
        answers, problems = self._judge.judge(exchanges)
        return Block(tuple(answers), _failures(problems, server), seconds, busy, counted)


def _failures(problems: Counter[Problem], server: ModelServer) -> dict[str, Failures]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for problem, count in problems.items():
        counts[problem.kind] += count
        examples.setdefault(problem.kind, printable(server.without_key(problem.text), _SHOWN))
    return {kind: Failures(count, examples[kind]) for kind, count in counts.most_common()}


def _counters(server: ModelServer) -> Counters | None:
    """None where they could not be read."""
    page = metrics_page(f"{server.address}/metrics", _COUNTERS_TIMEOUT_SEC, server.headers)
    return None if page is None else Counters.of(page)


def _settled_counters(server: ModelServer) -> Counters | None:
    """The counters once they stand still: a server may count a step a little after the answer that it ended."""
    found = _counters(server)
    for _ in range(_SETTLE_TRIES if found and found.values else 0):
        time.sleep(_SETTLE_SEC)
        before, found = found, _counters(server)
        if found == before:
            break
    return found
