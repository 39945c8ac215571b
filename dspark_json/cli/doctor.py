"""``dspark-json doctor``: what of a machine, a server and a spool works, and what to do about what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.printable import printable

if TYPE_CHECKING:
    import argparse

    from dspark_json.doctor.check import Check

SUMMARY: Final = "check this machine, a server and its spool"
DESCRIPTION: Final = (
    "Check what is installed, the spool and its memory, a server and its hook, and the GPU path. Each check has a\n"
    "verdict (ok, warn, fail, skipped), what was found and what to do. The exit status is 1 when one fails.\n"
    "docs/troubleshooting.md has the checks and the error codes."
)
EXAMPLES: Final = """\
examples:
  dspark-json doctor
  dspark-json doctor http://localhost:8000 --key-file key.txt
  dspark-json doctor /dev/shm/dspark_vllm_8000
  dspark-json doctor --gpu --json | jq '.checks[] | select(.verdict == "fail")'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``doctor``."""
    parser.add_argument(
        "target",
        metavar="ENDPOINT|SPOOL",
        nargs="?",
        help="a server's address (http://…) or a spool folder; without it, the spools in /dev/shm",
    )
    parser.add_argument("--gpu", action="store_true", help="a GPU is wanted here: what it lacks is a failure")
    parser.add_argument("--json", action="store_true", help="print the checks as one JSON document")
    parser.add_argument("--key-file", type=Path, metavar="F", help="a file whose first line is the hook's key")


def run(options: argparse.Namespace) -> int:
    """Print the checks; 1 when one of them fails."""
    from dspark_json.doctor.check import is_failure, to_document
    from dspark_json.doctor.examination import examine

    checks: list[Check] = []
    for check in examine(options.target, key_file=options.key_file, gpu=options.gpu):
        checks.append(check)
        if not options.json:
            output.write(_lines(check).encode("utf-8", "replace"))
            output.flush()
    if options.json:
        output.write(json.dumps(to_document(checks), ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    return 1 if is_failure(checks) else 0


def _lines(check: Check) -> str:
    said = f"{check.verdict:<8}{check.name:<16}{printable(check.evidence)}\n"
    return said + (f"{'':<24}→ {printable(check.remedy)}\n" if check.remedy and check.verdict != "ok" else "")
