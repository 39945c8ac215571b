"""Arguments that ``bench serve`` and ``bench spec-sweep`` share, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli.choices import some_of
from dspark_json.cli.numbers import from_zero, positive, real_from_zero, seconds_up_to
from dspark_json.errors import InvalidOptionError
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    import argparse

    from dspark_json.cli.bench.serving.blocks import Plan
    from dspark_json.cli.bench.serving.questions import Asking

EXTRA: Final = "bench"
_SCHEMAS: Final = ("order", "risk", "contact", "ticket", "entities", "reading")  # those in schemas.json
_MOST_SECONDS: Final = 86_400.0


def add_load_arguments(parser: argparse.ArgumentParser, *, requests: int, workers: int, note: str = "") -> None:
    """What to ask, how often, and where the figures go; two defaults are the caller's, ``note`` is on the workers."""
    load = parser.add_argument_group("load")
    load.add_argument("--requests", type=positive, default=requests, metavar="N", help=f"requests ({requests})")
    load.add_argument(
        "--blocks",
        type=positive,
        default=5,
        metavar="N",
        help="blocks they come in; intervals are from their spread and want 3 (5)",
    )
    load.add_argument(
        "--warm-up", type=from_zero, metavar="N", help="requests before, not counted (as many as workers)"
    )
    load.add_argument("--workers", type=positive, metavar="N", help=f"requests under way at once ({workers}{note})")
    load.set_defaults(default_workers=workers)
    load.add_argument(
        "--timeout", type=seconds_up_to(_MOST_SECONDS), default=300.0, metavar="S", help="of a request (300)"
    )
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--model", metavar="M", help="the model to ask (default: the first one the server lists)")
    asked.add_argument(
        "--schemas",
        type=some_of(_SCHEMAS),
        default=_SCHEMAS,
        metavar="NAMES",
        help=f"schemas that take turns: some of {','.join(_SCHEMAS)}",
    )
    asked.add_argument("--max-tokens", type=positive, default=400, metavar="N", help="the most of an answer (400)")
    asked.add_argument("--temperature", type=real_from_zero, metavar="T", help="from 0 on (the server's own)")
    asked.add_argument("--api-key-file", type=Path, metavar="F", help="a file whose first line is the model's key")
    shown = parser.add_argument_group("output")
    shown.add_argument("--json", action="store_true", help="print the figures as one JSON object, as the last line")
    shown.add_argument("--png", type=Path, metavar="FILE", help="draw them (matplotlib)")
    shown.add_argument("--markdown", type=Path, metavar="FILE", help="write a report")


def require(options: argparse.Namespace) -> None:
    """Raise a named error where a package is missing or a file could not be written: before the load, not after it."""
    from dspark_json.cli.packages import require_packages

    packages = ("rich", "jsonschema_rs", *(("matplotlib",) if options.png else ()))
    require_packages(*packages, extra=EXTRA)
    for name in ("png", "markdown"):
        file: Path | None = getattr(options, name)
        if file is None:
            continue
        try:
            is_new = not file.exists()
            file.open("ab").close()
            if is_new:
                file.unlink()
        except OSError as error:
            raise InvalidOptionError(
                f'--{name} "{file}" can\'t be written: {reason(error)}', remedy="Name a file in a folder that is there."
            ) from None


def plan_of(options: argparse.Namespace) -> Plan:
    """How many requests in how many blocks."""
    from dspark_json.cli.bench.serving.blocks import Plan

    workers = min(options.workers or options.default_workers, options.requests)
    return Plan(options.requests, options.blocks, workers if options.warm_up is None else options.warm_up)


def asking_of(options: argparse.Namespace, *, grammar: bool = True) -> Asking:
    """How the requests ask."""
    from dspark_json.cli.bench.serving.questions import Asking, packaged_tasks

    return Asking(packaged_tasks(options.schemas), options.max_tokens, options.temperature, grammar)


def plan_document(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that decide the figures, for ``--json`` and reports."""
    names = ("requests", "blocks", "timeout", "max_tokens", "temperature")
    workers = options.workers or options.default_workers
    return {
        **{name: getattr(options, name) for name in names},
        "workers": workers,
        "warm_up": plan_of(options).warm_up,
        "schemas": list(options.schemas),
    }
