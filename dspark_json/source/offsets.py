"""Positions in a set of spools, and the exact text that a checkpoint holds for them (DESIGN §4).

::

    {"spools": {"<spool_id>": {"endpoint": "…", "lanes": {"0000": {"next": 12, "seen": 40}}}}, "v": 1}

``next`` is the next record to read, ``seen`` the writer's end when the lane was last planned. Spark compares offsets as
text, so there is one text for an offset: ``json.dumps(value, sort_keys=True)`` with the default separators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from dspark_json.errors import OffsetError
from dspark_json.printable import printable
from dspark_json.spool.layout import is_lane_name

__all__ = ["OFFSET_FORMAT", "LanePosition", "Offset", "SpoolPosition", "parse_offset", "parse_starting_offset"]

OFFSET_FORMAT: Final = 1

_HIGHEST: Final = 2**63 - 1
_SHOWN: Final = 100
_START_AGAIN: Final = "Start with a new checkpoint, or with the release that wrote this one."
_SHAPE: Final = (
    'The form is {"v":1,"spools":{"<spool id>":{"lanes":{"0000":{"next":12}}}}}; '
    "spool.json in the spool's folder has its id, `dspark-json tail --json` shows the lane and number of each record."
)


@dataclass(frozen=True, slots=True)
class LanePosition:
    """The next record to read of a lane, and where the lane ended when it was last planned."""

    next: int
    seen: int


@dataclass(frozen=True, slots=True)
class SpoolPosition:
    """Positions in the lanes of a spool; ``endpoint`` is the server's address, or the folder for ``.load(path)``."""

    endpoint: str
    lanes: Mapping[str, LanePosition]


@dataclass(frozen=True, slots=True)
class Offset:
    """Positions in all spools of a stream, by spool id."""

    spools: Mapping[str, SpoolPosition] = field(default_factory=dict)

    def value(self) -> dict[str, Any]:
        """The offset as dictionaries with their keys in sorted order, so that any ``json.dumps`` gives the text."""
        return {
            "spools": {
                spool_id: {
                    "endpoint": spool.endpoint,
                    "lanes": {
                        lane: {"next": spool.lanes[lane].next, "seen": spool.lanes[lane].seen}
                        for lane in sorted(spool.lanes)
                    },
                }
                for spool_id, spool in sorted(self.spools.items())
            },
            "v": OFFSET_FORMAT,
        }

    def text(self) -> str:
        """The one text of this offset."""
        return json.dumps(self.value(), sort_keys=True)

    def position(self, spool_id: str, lane: str) -> LanePosition | None:
        """The position in one lane, or None where this offset does not know it."""
        spool = self.spools.get(spool_id)
        return None if spool is None else spool.lanes.get(lane)


def parse_offset(value: Mapping[str, Any] | str) -> Offset:
    """Read an offset that a planner made (a dictionary or its text); ``OffsetError`` where it is none."""
    return _parsed(value, "the checkpoint's offset", _START_AGAIN, lenient=False)


def parse_starting_offset(text: str) -> Offset:
    """Read the JSON of ``startingOffsets``, where ``endpoint`` and ``seen`` may be left out."""
    return _parsed(text, "startingOffsets", _SHAPE, lenient=True)


def _parsed(value: Mapping[str, Any] | str, what: str, remedy: str, *, lenient: bool) -> Offset:
    def refuse(problem: str) -> OffsetError:
        return OffsetError(f"{what} can't be understood: {problem}", remedy=remedy)

    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise refuse(f"it is not JSON ({error})") from None
        except RecursionError:
            raise refuse("it is nested too deeply") from None
    if not isinstance(value, Mapping):
        raise refuse("it is not a JSON object")
    form = value.get("v")
    if not _is_number(form) or form != OFFSET_FORMAT:
        raise refuse(f'its format "v" is {printable(repr(form), _SHOWN)} and this release reads {OFFSET_FORMAT}')
    spools = value.get("spools")
    if not isinstance(spools, Mapping):
        raise refuse('"spools" is not an object')
    found: dict[str, SpoolPosition] = {}
    for spool_id, spool in spools.items():
        lanes = spool.get("lanes") if isinstance(spool, Mapping) else None
        endpoint = spool.get("endpoint", "" if lenient else None) if isinstance(spool, Mapping) else None
        if not isinstance(lanes, Mapping) or not isinstance(endpoint, str):
            raise refuse(f"spool {printable(spool_id, _SHOWN)} has no endpoint or no lanes")
        positions: dict[str, LanePosition] = {}
        for lane, position in lanes.items():
            begin = position.get("next") if isinstance(position, Mapping) else None
            seen = position.get("seen", begin if lenient else None) if isinstance(position, Mapping) else None
            if not is_lane_name(lane) or not _is_number(begin) or not _is_number(seen):
                name, spool_name = printable(repr(lane), _SHOWN), printable(spool_id, _SHOWN)
                raise refuse(f"lane {name} of spool {spool_name} has no whole numbers for its position")
            positions[lane] = LanePosition(begin, seen)
        found[spool_id] = SpoolPosition(endpoint, positions)
    return Offset(found)


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST
