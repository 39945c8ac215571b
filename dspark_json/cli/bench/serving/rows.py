"""The figures of servers as rows of text, the same for the table on a terminal and in a Markdown report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.bench.serving.figures import BUSY
from dspark_json.cli.bench.serving.shares import UNTOLD, percent
from dspark_json.cli.bench.units import byte_rate, number

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGREEMENT: Final = 0.01


def server_rows(found: Sequence[dict[str, Any]], ratios: dict[str, Any] | None) -> list[list[str]]:
    """A title, a cell for each server, and with ``ratios`` in the last the first one's divided by the second's."""
    rows = []
    unit, factor = byte_rate(one["json_mb_per_second"] for one in found)
    for title, cell, compared in (
        ("requests", lambda one: str(one["requests"]), None),
        ("answers", lambda one: str(one["answers"]), None),
        ("requests that failed", _failed, None),
        ("answers/s", lambda one: with_interval(one, "answers_per_second"), "answers_per_second"),
        (f"JSON, {unit}", lambda one: with_interval(one, "json_mb_per_second", factor), "json_mb_per_second"),
        ("output tokens/s", lambda one: with_interval(one, "output_tokens_per_second"), "output_tokens_per_second"),
        ("first byte of JSON, p50, ms", lambda one: number(one["first_json_ms_p50"]), "first_json_ms_p50"),
        ("first byte of JSON, p99, ms", lambda one: number(one["first_json_ms_p99"]), "first_json_ms_p99"),
        ("whole answer, p50, ms", lambda one: number(one["latency_ms_p50"]), "latency_ms_p50"),
        ("whole answer, p99, ms", lambda one: number(one["latency_ms_p99"]), "latency_ms_p99"),
        ("answers that are JSON", lambda one: percent(one["json_valid"]), "json_valid"),
        ("answers that follow their schema", lambda one: percent(one["schema_valid"]), "schema_valid"),
        ("drafts accepted", acceptance_rate, "acceptance_rate"),
        ("tokens a step with a draft", acceptance_length, "acceptance_length"),
    ):
        row = [title, *(cell(one) for one in found)]
        if ratios is not None:
            row.append(_ratio(ratios[compared]) if compared is not None else "")
        rows.append(row)
    return rows


def remarks(name: str, found: dict[str, Any]) -> list[str]:
    """What one must know of a server's figures to read them rightly, a sentence each."""
    said = [
        f"{name}: {one['count']} of {found['requests']} requests failed ({kind}"
        + (f", such as: {one['example']})" if one["example"] else ")")
        for kind, one in found["failures"].items()
    ]
    odd = {status: count for status, count in found["parse_status"].items() if status != "ok"}
    if odd:
        said.append(f"{name}: answers that are not JSON alone, by parse_status: {_counts(odd)}")
    if found["violations"]:
        said.append(f"{name}: JSON that breaks its schema, by the keyword: {_counts(found['violations'])}")
    if 0 < found["answers_without_token_count"] < found["answers"]:
        said.append(f"{name}: {found['answers_without_token_count']} answers did not say how many tokens they have")
    if found["answers_without_first_json"]:
        said.append(
            f"{name}: {found['answers_without_first_json']} of {found['answers']} answers do not begin with {{ and "
            "have no first byte of JSON"
        )
    said += [f"{name}: {remark}" for remark in _of_drafts(found)]
    if found["sender_busy"] > BUSY:
        said.append(
            f"{name}: sending took {percent(found['sender_busy'])} of a core at its height; the server may be faster "
            "than it seems"
        )
    return said


def with_interval(found: dict[str, Any], name: str, factor: float = 1.0) -> str:
    """A figure, times ``factor``, and the interval of its blocks, if there are enough of them for one."""
    if found[name] is None:
        return UNTOLD
    value = number(factor * found[name])
    if found[f"{name}_ci"] is None:
        return value
    low, high = found[f"{name}_ci"]
    return f"{value} ({number(factor * low)} to {number(factor * high)})"


def acceptance_rate(found: dict[str, Any]) -> str:
    """The share of drafted tokens that were accepted."""
    return percent((found["acceptance"] or {}).get("rate"))


def acceptance_length(found: dict[str, Any]) -> str:
    """Tokens that a step with a draft gave."""
    length = (found["acceptance"] or {}).get("length")
    return UNTOLD if length is None else f"{length:.2f}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are figures."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _of_drafts(found: dict[str, Any]) -> list[str]:
    said = []
    told, answers = found["acceptance"] or {}, found["answers"]
    own, counters = told.get("answers"), told.get("counters")
    if counters is not None and counters["resets"]:
        said.append("its counters began anew; drafts before that are missing from them")
    if counters is not None and counters["blocks_not_counted"]:
        missing = f"{counters['blocks_not_counted']} of {len(found['blocks'])} blocks"
        said.append(f"its counters could not be read at {missing}; the drafts of those are missing from them")
    if own is not None and own["told_by"] < answers:
        said.append(f"{own['told_by']} of {answers} answers tell of their drafts")
    elif own is not None and counters is not None and not found["failures"] and not counters["blocks_not_counted"]:
        here, all_told = own["draft_tokens"], counters["draft_tokens"]
        if all_told - here > _AGREEMENT * all_told:
            said.append(
                f"it counted {all_told} drafted tokens, and these answers tell of {here}: others ask it as well"
            )
    return said


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items())


def _failed(found: dict[str, Any]) -> str:
    return _counts({kind: one["count"] for kind, one in found["failures"].items()}) or "0"


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return UNTOLD
    if ratio["ci"] is None:
        return f"{ratio['value']:.3f}"
    low, high = ratio["ci"]
    return f"{ratio['value']:.3f} ({low:.3f} to {high:.3f})"
