"""``dspark-json tail``: print the records of a spool, straight from its folder or over HTTP."""

from __future__ import annotations

import argparse
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.cli.records import StoredRecord
    from dspark_json.spool.reader import LaneExtent, SpoolAccess

SUMMARY: Final = "print the records of a spool or server"
DESCRIPTION: Final = (
    "Print the records of a spool (a folder) or of a server with the hook: one line a record, oldest first."
)
EXAMPLES: Final = """\
examples:
  dspark-json tail /dev/shm/dspark_vllm_8000
  dspark-json tail http://localhost:8000 --follow --from latest
  dspark-json tail http://gpu7:8000 --key-file key.txt --json | jq .choices[0].message.content

A server on another machine wants the hook's key (DSPARK_API_KEY of the server), from --key-file or from the
environment's DSPARK_API_KEY.
"""

_POLL_SEC: Final = 0.25
_WATCH_SEC: Final = 1.0
_WATCH_TIMEOUT_SEC: Final = 10.0
# Not the white space of JSON, which may stand between tokens.
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``tail``."""
    parser.add_argument("target", metavar="SPOOL|ENDPOINT", help="a spool folder, or a server's address (http://…)")
    parser.add_argument("--follow", "-f", action="store_true", help="go on printing records as they are written")
    parser.add_argument(
        "--from",
        dest="start",
        type=_start,
        default="earliest",
        metavar="earliest|latest|N",
        help="where to begin: the oldest record (default), after the newest, or record number N of each lane",
    )
    parser.add_argument("--lane", metavar="L", help='only this lane ("0000" or 0)')
    parser.add_argument(
        "--json",
        action="store_true",
        help="print each record as it is stored, control characters escaped: one JSON object a line",
    )
    parser.add_argument("--key-file", type=Path, metavar="F", help="a file whose first line is the hook's key")


def run(options: argparse.Namespace) -> int:
    """Print what is there, and with ``--follow`` what comes."""
    from dspark_json.cli.access import open_target
    from dspark_json.spool.http import HttpSpool

    with open_target(options.target, options.key_file) as target:
        lane = None if options.lane is None else _lane(options.lane)
        presence = _Presence()
        tail = _Tail(target.access, options.start, lane, options.json, presence)
        tail.print_new()
        if options.follow and target.server is not None and not isinstance(target.access, HttpSpool):
            # The folder stays readable without its server: only who asks notices that nothing will come.
            threading.Thread(target=_watch, args=(target.server, presence), daemon=True).start()
        while options.follow:
            time.sleep(_POLL_SEC)
            tail.print_new(patient=True)
    return 0


class _Presence:
    """Tells once that a server is gone and once that it is back."""

    def __init__(self) -> None:
        self._gone = False

    def gone(self, message: str) -> None:
        if not self._gone:
            output.note(f"{message}; waiting for it")
        self._gone = True

    def back(self) -> None:
        if self._gone:
            output.note("the server answers again")
        self._gone = False


def _watch(address: str, presence: _Presence) -> None:
    from dspark_json.errors import EndpointError
    from dspark_json.spool.http import HookClient

    with HookClient(address, None, _WATCH_TIMEOUT_SEC) as client:
        while True:
            try:
                client.identity(tries=2)
                presence.back()
            except EndpointError as error:
                presence.gone(error.message)
            time.sleep(_WATCH_SEC)


class _Tail:
    """How far each lane has been printed."""

    def __init__(
        self, access: SpoolAccess, start: str | int, lane: str | None, as_json: bool, presence: _Presence
    ) -> None:
        self._access = access
        self._start = start
        self._lane = lane
        self._as_json = as_json
        self._next: dict[str, int] | None = None
        self._presence = presence

    def print_new(self, *, patient: bool = False) -> None:
        """Print what was written since the last call; a ``patient`` call lets a server be away for a while."""
        from dspark_json.cli.records import stored_records
        from dspark_json.errors import EndpointUnreachableError
        from dspark_json.spool.http import HttpSpool

        try:
            lanes = self._lanes()
            first_look = self._next is None
            done = self._next = self._next or {}
            for name, extent in lanes.items():
                # A lane that appears later is new: all of it is printed.
                done.setdefault(name, self._first(name, extent) if first_look else extent.first)
            for record in stored_records(
                self._access, {name: (done[name], extent.next) for name, extent in lanes.items()}, _tell_lost
            ):
                self._print(record)
                done[record.lane] = record.seq + 1
            for name, extent in lanes.items():
                done[name] = max(done[name], extent.next)
            output.flush()
            if isinstance(self._access, HttpSpool):
                self._presence.back()
        except EndpointUnreachableError as error:
            if not patient:
                raise
            self._presence.gone(error.message)

    def _lanes(self) -> Mapping[str, LaneExtent]:
        from dspark_json.errors import LaneNotFoundError

        lanes = self._access.offsets().lanes
        if self._lane is None:
            return lanes
        if self._lane not in lanes:
            known = ", ".join(sorted(lanes)) or "none yet"
            raise LaneNotFoundError(f'the spool has no lane "{self._lane}"', remedy=f"Its lanes: {known}.")
        return {self._lane: lanes[self._lane]}

    def _first(self, lane: str, extent: LaneExtent) -> int:
        if self._start == "earliest":
            return extent.first
        if self._start == "latest":
            return extent.next
        assert isinstance(self._start, int)
        if self._start < extent.first:
            _tell_lost(lane, self._start, extent.first)
        elif self._start >= extent.next:
            _tell_end(lane, self._start, extent)
        return max(self._start, extent.first)

    def _print(self, record: StoredRecord) -> None:
        from dspark_json.cli.summary import summary

        output.write(_as_json(record.line) if self._as_json else summary(record).encode(errors="replace") + b"\n")


def _start(text: str) -> str | int:
    if text in {"earliest", "latest"}:
        return text
    if re.fullmatch(r"\d{1,19}", text):
        return int(text)
    raise argparse.ArgumentTypeError(f'"{text}" is neither "earliest" nor "latest" nor a record number')


def _lane(text: str) -> str:
    from dspark_json.errors import LaneNotFoundError
    from dspark_json.spool.layout import is_lane_name, lane_name

    name = lane_name(int(text)) if re.fullmatch(r"\d{1,4}", text) else text
    if not is_lane_name(name):
        raise LaneNotFoundError(f'"{text}" is not the name of a lane', remedy='Lanes are "0000", "0001" and so on.')
    return name


def _tell_lost(lane: str, first: int, stop: int) -> None:
    output.note(f"records {first} to {stop - 1} of lane {lane} are no longer kept; going on at {stop}")


def _tell_end(lane: str, start: int, extent: LaneExtent) -> None:
    if extent.next == extent.first:
        held = f"lane {lane} holds no record; its next one will be {extent.next}"
    else:
        held = f"lane {lane} holds records {extent.first} to {extent.next - 1}"
    output.note(f"there is no record {start} yet: {held}")


def _as_json(line: bytes) -> bytes:
    """A record's line for a terminal and for JSON parsers: the same value, its control characters escaped.

    A large body is kept as it came, so it may hold some that JSON allows nowhere (and the rules of parsing take as if
    escaped); U+007F to U+009F are allowed inside strings, and obeyed by terminals.
    """
    return _CONTROLS.sub(_escaped, line.replace(b"\r", b" "))


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % match[0][-1]
