"""Reports of loads in Markdown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dspark_json.cli.bench.serving.machine import sentence
from dspark_json.errors import InvalidOptionError
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def in_turn(*writes: Callable[[], None]) -> None:
    """Write one file after the other; an error is raised once all the others are written."""
    errors = []
    for write in writes:
        try:
            write()
        except InvalidOptionError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def write_report(path: Path, parts: Sequence[str]) -> None:
    """Write paragraphs, tables and lists with a blank line between them."""
    try:
        path.write_text("\n\n".join(part.strip() for part in parts if part.strip()) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidOptionError(f'--markdown "{path}" can\'t be written: {reason(error)}') from None


def circumstances(plan: Mapping[str, Any], machine: dict[str, Any]) -> str:
    """How and where it was measured."""
    sent = f"at {plan['rate']:g} requests/s" if plan.get("rate") else f"from {plan['workers']} workers"
    blocks = f"in one run, cut into {plan['blocks']} spans" if plan.get("rate") else f"in {plan['blocks']} blocks"
    warmth = "the server's own" if plan["temperature"] is None else f"{plan['temperature']:g}"
    return (
        f"{plan['requests']} streamed chat requests {sent} {blocks}, after {plan['warm_up']} to warm up; JSON by the "
        f"schemas {', '.join(plan['schemas'])}, at most {plan['max_tokens']} tokens, temperature {warmth}. Sent from: "
        f"{sentence(machine)}."
    )


def bullets(lines: Sequence[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)


def picture_link(report: Path, picture: Path | None, what: str) -> str:
    """The picture, by its place seen from the report."""
    if picture is None:
        return ""
    return f"![{what}]({os.path.relpath(picture.absolute(), report.absolute().parent)})"
