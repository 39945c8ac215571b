"""``dspark-json serve``: a spool's records over HTTP, straight from its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.cli.listening import place

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "give the records of a spool folder to readers over HTTP"
DESCRIPTION: Final = (
    "Answers the hook's control routes from a spool folder alone: a side-car that keeps readers off the server's\n"
    "process, and gives what is kept while the server is down. Readers name its address as vllm_endpoint; their key\n"
    "is this command's DSPARK_API_KEY, and without one set they get nothing but counts."
)
EXAMPLES: Final = """\
examples:
  DSPARK_API_KEY=… dspark-json serve /dev/shm/dspark_vllm_8000 --listen 0.0.0.0:8100
  dspark-json tail http://gpu7:8100 --follow
"""

_GRACE_SECONDS: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``serve``."""
    parser.add_argument("spool", metavar="SPOOL", type=Path, help="the spool folder; it may be made later")
    parser.add_argument("--listen", required=True, type=place, metavar="HOST:PORT", help="where readers ask")


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from dspark_json.cli.packages import require_packages

    require_packages("uvicorn", extra="proxy")
    from dspark_json.capture.settings import HookSettings
    from dspark_json.capture.side_car import SideCar
    from dspark_json.errors import SpoolNotFoundError
    from dspark_json.proxy.server import Listener, run_server
    from dspark_json.spool.layout import read_identity

    folder = options.spool.expanduser().absolute()
    settings = HookSettings.from_environment(os.environ)
    for warning in settings.warnings:
        output.note(warning)
    try:
        found = f"spool {read_identity(folder).spool_id}"
    except SpoolNotFoundError:
        found = "no spool there yet"
    listener = Listener.bind(*options.listen)

    def started() -> None:
        output.note(f"serving {folder} ({found}) on {listener.address}")
        if settings.api_key is None:
            output.note("DSPARK_API_KEY is not set: records are given to nobody (status 403), only counts are")

    run_server(SideCar(folder, settings), listener, _GRACE_SECONDS, started)
    return 0
