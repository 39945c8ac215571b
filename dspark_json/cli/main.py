"""``dspark-json``: finds the subcommand, and turns every error a user can meet into one line."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from dspark_json import __version__
from dspark_json.cli import deploy, doctor, import_answers, monitor, output, parse, proxy, replay, schema, serve, tail
from dspark_json.cli.bench import command as bench
from dspark_json.cli.demo import command as demo
from dspark_json.errors import DSparkJsonError

if TYPE_CHECKING:
    from collections.abc import Sequence

# These modules import nothing heavy until they run: `dspark-json --help` is fast and needs neither Spark nor Java.
_COMMANDS: Final = (
    ("demo", demo),
    ("tail", tail),
    ("monitor", monitor),
    ("parse", parse),
    ("schema", schema),
    ("proxy", proxy),
    ("serve", serve),
    ("import", import_answers),
    ("replay", replay),
    ("doctor", doctor),
    ("deploy", deploy),
    ("bench", bench),
)

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141


class _CommandParser(argparse.ArgumentParser):
    """A subcommand's: what it does not know it tells with its own usage, not with that of the whole."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # What begins like a negative number, such as "-5m", is the value of the option before it, which refuses it by
        # its name, and not an option itself: none of ours begins with a digit.
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """The command line of all subcommands."""
    top = argparse.ArgumentParser(
        prog="dspark-json",
        description="Every JSON answer of a vLLM server, as a typed row of a Spark stream, once.",
        epilog="Example: dspark-json tail http://localhost:8000 --follow",
    )
    top.add_argument("--version", action="version", version=f"dspark-json {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for name, module in _COMMANDS:
        sub = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0 done; 1 the command's own verdict is "no" (counts of a demo that don't agree, a check that failed); 2 an error,
    told in one line on standard error; 130 interrupted by Ctrl-C; 141 whoever read the output has gone.
    """
    try:
        status = _run(arguments)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        status = EXIT_PIPE_CLOSED
    except DSparkJsonError as error:
        output.note(str(error))
        status = EXIT_ERROR
    except OSError as error:
        output.note(f"{DSparkJsonError.code}: the operating system refuses: {error}")
        status = EXIT_ERROR
    output.end()
    return status


def _run(arguments: Sequence[str] | None) -> int:
    output.require_output()
    try:
        options = parser().parse_args(arguments)
    except SystemExit:  # --help was printed, or a wrong argument told
        output.flush()
        raise
    status: int = options.run(options)
    output.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
