"""The figures of a server under load, from its blocks; and how those of two servers compare."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.serving.acceptance import as_document
from dspark_json.cli.bench.serving.shares import rounded_share
from dspark_json.cli.bench.statistics import median_over_rounds, pooled_rate, quantile_of
from dspark_json.monitor.speculation import Speculation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dspark_json.cli.bench.serving.blocks import Block
    from dspark_json.cli.bench.serving.judging import Answer

MEGABYTE: Final = 1_000_000
_MS: Final = 1000.0
# Fewer blocks than this say nothing about their spread: there is no interval.
LEAST_BLOCKS: Final = 3
# Beyond this share of a core the sender itself may be what is slow.
BUSY: Final = 0.8


def figures(blocks: Sequence[Block]) -> dict[str, Any]:
    """What ``--json`` gives of one server; None stands for what it does not tell or what there is none of.

    ``json_valid`` and ``schema_valid`` are shares of the answers. Requests that have none are in ``failures`` and in
    ``requests``; times are those of answers. ``…_ci`` are 95 % intervals over the blocks, None for fewer
    than ``LEAST_BLOCKS``.
    """
    answers = [answer for block in blocks for answer in block.answers]
    failures = _failures(blocks)
    latencies = [answer.latency for answer in answers]
    firsts = [answer.first_json for answer in answers if answer.first_json is not None]
    return {
        "requests": len(answers) + sum(one["count"] for one in failures.values()),
        "answers": len(answers),
        "failures": failures,
        "seconds": round(sum(block.seconds for block in blocks), 3),
        **_rate("answers_per_second", blocks, _answers_per_second),
        **_rate("json_mb_per_second", blocks, _json_mb_per_second),
        **_pooled("output_tokens_per_second", output_tokens(blocks)),
        "answers_without_token_count": sum(answer.tokens is None for answer in answers),
        **_quantiles("first_json_ms", firsts),
        "answers_without_first_json": len(answers) - len(firsts),
        **_quantiles("latency_ms", latencies),
        **_quantiles("sent_late_ms", [answer.late for answer in answers]),
        "json_valid": _share(answers, _is_json),
        "schema_valid": _share(answers, _follows_schema),
        "parse_status": dict(Counter(answer.status for answer in answers).most_common()),
        "violations": dict(Counter(answer.violated for answer in answers if answer.violated).most_common()),
        "schemas": _by_schema(answers),
        "acceptance": acceptance(blocks),
        "sender_busy": round(max(block.busy for block in blocks), 3),
        "blocks": [
            {
                "answers": len(block.answers),
                "seconds": round(block.seconds, 3),
                "output_tokens_per_second": _rounded(output_tokens_per_second(block)),
            }
            for block in blocks
        ],
    }


def acceptance(blocks: Sequence[Block]) -> dict[str, Any] | None:
    """How well drafts were accepted, None where the server does not tell.

    ``source`` says whose figures ``rate`` and ``length`` are: the ``answers``' own where each has them, else the
    server's ``counters``, which count what others ask meanwhile too, and the drafts of requests that failed.
    """
    answers = [answer for block in blocks for answer in block.answers]
    told = [answer.drafts for answer in answers if answer.drafts is not None]
    growths = [block.counted for block in blocks if block.counted is not None]
    found: dict[str, Any] = {}
    if told:
        found["answers"] = {**as_document(sum(told, Speculation())), "told_by": len(told)}
    if growths:
        counted = sum((growth.counted for growth in growths), Speculation())
        found["counters"] = {
            **as_document(counted),
            "resets": sum(growth.reset for growth in growths),
            "blocks_not_counted": len(blocks) - len(growths),
        }
    if not found:
        return None
    source = "answers" if told and (len(told) == len(answers) or not growths) else "counters"
    return {"rate": found[source]["rate"], "length": found[source]["length"], "source": source, **found}


def ratios(blocks: Sequence[Block], baseline: Sequence[Block]) -> dict[str, Any]:
    """Each figure of a server divided by the baseline's, block by block: the median, and its 95 % interval.

    None where a block of either has no such figure.
    """
    found: dict[str, Any] = {}
    for name, of_block in _COMPARED.items():
        pairs = [(of_block(one), of_block(other)) for one, other in zip(blocks, baseline, strict=True)]
        quotients = [one / other for one, other in pairs if one is not None and other]
        complete = len(quotients) == len(pairs)
        found[name] = _ratio(quotients) if complete else None
    return found


def output_tokens_per_second(block: Block) -> float | None:
    """Tokens of the answers of a block over its time, 0 where none came; None where no answer says how many it has."""
    told = [answer.tokens for answer in block.answers if answer.tokens is not None]
    return sum(told) / block.seconds if told or not block.answers else None


def output_tokens(blocks: Sequence[Block]) -> list[tuple[float, float]]:
    """Tokens and seconds of each block that tells; a block whose requests all failed has taken its time for none.

    Empty where there are answers, and none says how many tokens it has.
    """
    answers = [answer for block in blocks for answer in block.answers]
    if answers and all(answer.tokens is None for answer in answers):
        return []
    rates = [(output_tokens_per_second(block), block.seconds) for block in blocks]
    return [(rate * seconds, seconds) for rate, seconds in rates if rate is not None]


def _answers_per_second(block: Block) -> float | None:
    return len(block.answers) / block.seconds


def _json_mb_per_second(block: Block) -> float | None:
    return sum(answer.json_bytes for answer in block.answers) / MEGABYTE / block.seconds


def _block_latency(quantile: float) -> Callable[[Block], float | None]:
    return lambda block: _quantile([answer.latency for answer in block.answers], quantile)


def _block_first_json(quantile: float) -> Callable[[Block], float | None]:
    return lambda block: _quantile([a.first_json for a in block.answers if a.first_json is not None], quantile)


def _is_json(answer: Answer) -> bool:
    return answer.is_json


def _follows_schema(answer: Answer) -> bool:
    return answer.follows_schema


_COMPARED: Final[dict[str, Callable[[Block], float | None]]] = {
    "answers_per_second": _answers_per_second,
    "json_mb_per_second": _json_mb_per_second,
    "output_tokens_per_second": output_tokens_per_second,
    "first_json_ms_p50": _block_first_json(0.50),
    "first_json_ms_p99": _block_first_json(0.99),
    "latency_ms_p50": _block_latency(0.50),
    "latency_ms_p99": _block_latency(0.99),
    "json_valid": lambda block: _share(block.answers, _is_json),
    "schema_valid": lambda block: _share(block.answers, _follows_schema),
    "acceptance_rate": lambda block: (acceptance([block]) or {}).get("rate"),
    "acceptance_length": lambda block: (acceptance([block]) or {}).get("length"),
}


def _rate(name: str, blocks: Sequence[Block], of_block: Callable[[Block], float | None]) -> dict[str, Any]:
    """A figure over the whole time of the blocks that have it, and its interval."""
    return _pooled(
        name, [(rate * block.seconds, block.seconds) for block in blocks if (rate := of_block(block)) is not None]
    )


def _pooled(name: str, amounts: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The same from an amount and the seconds of each block."""
    if not amounts:
        return {name: None, f"{name}_ci": None}
    estimate = pooled_rate(amounts)
    interval = [_rounded(estimate.low), _rounded(estimate.high)] if len(amounts) >= LEAST_BLOCKS else None
    return {name: _rounded(estimate.value), f"{name}_ci": interval}


def _quantiles(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    found = {}
    for title, quantile in (("p50", 0.50), ("p99", 0.99)):
        value = _quantile(seconds, quantile)
        found[f"{name}_{title}"] = None if value is None else round(value * _MS, 2)
    return found


def _quantile(values: Iterable[float], quantile: float) -> float | None:
    ordered = sorted(values)
    return quantile_of(ordered, quantile) if ordered else None


def _share(answers: Sequence[Answer], holds: Callable[[Answer], bool]) -> float | None:
    return rounded_share(sum(map(holds, answers)) / len(answers)) if answers else None


def _by_schema(answers: Sequence[Answer]) -> dict[str, Any]:
    names = sorted({answer.schema for answer in answers})
    found = {}
    for name in names:
        of_it = [answer for answer in answers if answer.schema == name]
        found[name] = {
            "answers": len(of_it),
            "json_valid": _share(of_it, _is_json),
            "schema_valid": _share(of_it, _follows_schema),
            "json_bytes": _rounded(median(answer.json_bytes for answer in of_it)),
        }
    return found


def _failures(blocks: Sequence[Block]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in blocks:
        for kind, failures in block.failures.items():
            one = found.setdefault(kind, {"count": 0, "example": failures.example})
            one["count"] += failures.count
    return found


def _ratio(quotients: Sequence[float]) -> dict[str, Any]:
    estimate = median_over_rounds(quotients)
    interval = [round(estimate.low, 4), round(estimate.high, 4)] if len(quotients) >= LEAST_BLOCKS else None
    return {"value": round(estimate.value, 4), "ci": interval}


def _rounded(value: float | None) -> float | None:
    """Four digits that count."""
    return value if not value else round(value, max(0, 3 - math.floor(math.log10(abs(value)))))
