"""A server at one speculation length after the other, and which length is best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.serving.blocks import Measurement, Subject
from dspark_json.cli.bench.serving.figures import LEAST_BLOCKS, figures, output_tokens
from dspark_json.cli.bench.serving.launched import LaunchedServer
from dspark_json.cli.bench.serving.shares import rounded_share
from dspark_json.cli.bench.statistics import pooled_rate, ratio_of_rates
from dspark_json.cli.model_server import model_server
from dspark_json.errors import EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dspark_json.cli.bench.serving.blocks import Block, Plan
    from dspark_json.cli.bench.serving.judging import Judge
    from dspark_json.cli.bench.serving.launched import Launch
    from dspark_json.cli.bench.serving.load import Load
    from dspark_json.cli.bench.serving.questions import Asking

# Fewer requests of a length than this say nothing about its speed: a block is little but its beginning and its end.
LEAST_REQUESTS: Final = 50


@dataclass(frozen=True, slots=True)
class Point:
    """What came of one speculation length, asked in one way (``grammar``: ``on`` or ``off``)."""

    length: int
    grammar: str
    blocks: tuple[Block, ...]

    def document(self) -> dict[str, Any]:
        """Its figures; ``malformed`` is the share of answers that are not JSON."""
        found = figures(self.blocks)
        malformed = None if found["json_valid"] is None else rounded_share(1 - found["json_valid"])
        return {"length": self.length, "grammar": self.grammar, "malformed": malformed, **found}

    def tokens(self) -> list[tuple[float, float]]:
        """Output tokens and seconds of each block that tells."""
        return output_tokens(self.blocks)

    def failed(self) -> tuple[int, int]:
        """How many requests have no answer, and how many were sent."""
        failed = sum(one.count for block in self.blocks for one in block.failures.values())
        return failed, failed + sum(len(block.answers) for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Starts a server for each length and measures it, each way of asking in turn, block by block."""

    launch: Launch
    askings: Mapping[str, Asking]
    plan: Plan
    load: Load
    patience: float
    logs: Path
    model: str | None
    key_file: Path | None

    def measure(self, length: int, judge: Judge, on_end: Callable[[str], None]) -> list[Point]:
        """Measure one length. The log is ``k<length>.log``; every error says so."""
        log = self.logs / f"k{length}.log"
        with LaunchedServer(self.launch.command(length), self.launch.endpoint, log, self.patience) as running:
            try:
                server = model_server(self.launch.endpoint, self.model, self.key_file)
                subjects = [Subject(grammar, server, asking) for grammar, asking in self.askings.items()]
                blocks = Measurement(judge, self.load, lambda _name: on_end(f"length {length}")).run(
                    subjects, self.plan
                )
            except EndpointError as error:
                if not running.runs:
                    raise running.ended("while it was measured") from error
                raise type(error)(error.message, remedy=f"{error.remedy} The server's output is in {log}.") from error
            if not running.runs:
                raise running.ended("while it was measured")
        return [Point(length, grammar, tuple(found)) for grammar, found in blocks.items()]


@dataclass(frozen=True, slots=True)
class Best:
    """The length with the most tokens a second, and how sure that is.

    ``margin`` is its speed divided by that of ``second``, the next best, with the 95 % interval from the spread of the
    blocks: infinite where the other's blocks may give nothing, None where there are too few for one, which ``too_few``
    says. ``alike`` are the lengths that can't be told apart from it by that: where there are any, there is no winner.
    ``failed`` are the requests that failed, and all that were sent, of each length with such.
    """

    length: int
    second: int | None
    margin: float | None
    low: float | None
    high: float | None
    alike: tuple[int, ...]
    failed: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    too_few: str = ""

    def sentence(self) -> str:
        """The same in words."""
        listed = ", ".join(f"{failed} of {sent} at {length}" for length, (failed, sent) in self.failed.items())
        return self._verdict() + (f"; requests that failed: {listed}" if listed else "")

    def _verdict(self) -> str:
        if self.second is None or self.margin is None:
            return f"{self.length} is the only length that gave tokens"
        if self.low is None or self.high is None:
            return f"{self.too_few}: {self.length} has {_percent(self.margin)} % over {self.second}"
        least, most = _percent(self.low), _percent(self.high)
        spread = f"{least} to {most} %" if math.isfinite(self.high) else f"{least} % or more"
        margin = f"{_percent(self.margin)} % over {self.second} ({spread})"
        if not self.alike:
            return f"{self.length} is best: {margin}"
        listed = ", ".join(map(str, self.alike))
        return f"no difference between {self.length} and {listed} beyond the blocks' spread: {self.length} has {margin}"

    def document(self) -> dict[str, Any]:
        """For ``--json``."""
        high = self.high if self.high is not None and math.isfinite(self.high) else None
        interval = None if self.low is None else [self.low, high]
        ratio = None if self.margin is None else {"value": round(self.margin, 4), "ci": interval}
        return {
            "length": None if self.too_few else self.length,
            "fastest": self.length,
            "second": self.second,
            "ratio": ratio,
            "no_difference_to": list(self.alike),
            "too_few": self.too_few or None,
        }


def best_length(points: Sequence[Point]) -> Best | None:
    """The best of points with one way of asking; None where there is no answer that says how many tokens it has."""
    told = {point.length: point.tokens() for point in points}
    tokens = {length: blocks for length, blocks in told.items() if any(amount for amount, _ in blocks)}
    failed = {point.length: counts for point in points if (counts := point.failed())[0]}
    if not tokens:
        return None
    first, *others = sorted(tokens, key=lambda length: pooled_rate(tokens[length]).value, reverse=True)
    if not others:
        return Best(first, None, None, None, None, (), failed)
    compared = {other: ratio_of_rates(tokens[first], tokens[other]) for other in others}
    margin = compared[others[0]]
    too_few = too_few_for_best(
        min(point.failed()[1] for point in points if point.length in tokens), min(map(len, tokens.values()))
    )
    if too_few:
        return Best(first, others[0], margin.value, None, None, tuple(sorted(others)), failed, too_few)
    alike = tuple(sorted(other for other, ratio in compared.items() if ratio.low <= 1))
    return Best(first, others[0], margin.value, round(margin.low, 4), round(margin.high, 4), alike, failed)


def too_few_for_best(requests: int, blocks: int) -> str:
    """Why so many requests of each length, in so many blocks, can't tell which is best; empty where they can."""
    if requests < LEAST_REQUESTS:
        return f"too few requests to say which length is best (of each {LEAST_REQUESTS} at least)"
    if blocks < LEAST_BLOCKS:
        return f"too few blocks to say which length is best ({LEAST_BLOCKS} at least)"
    return ""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
