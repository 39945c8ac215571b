"""``spool_losses``: the check that nothing is missing in a spool that its server answered."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from dspark_json.doctor.check import Check, fine, warned
from dspark_json.spool.lane import written_lanes
from dspark_json.spool.os_errors import reading_failed, reason
from dspark_json.spool.stats import LaneStats, lane_stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["LOSSES", "check_counters", "check_counts"]

# Counters that say that answers did not reach the spool, and what to do about each.
LOSSES: Final = {
    "dropped_records": "See the server's log for the reason: a full file system, or a writer that does not keep up.",
    "unrecorded_answers": "The spool did not take a record within DSPARK_HOLD_MS; see the server's log.",
    "hook_exceptions": "Please report the traceback that is in the server's log.",
    "schema_overflow": "More than 1,000 answer schemas: requests make up names or shapes of their own.",
    "device_ring_failures": "See the server's log; `dspark-json doctor --gpu` on the server's machine.",
}
_STALE_S: Final = 15.0  # a server writes them each second
_SHOWN: Final = 3


def check_counters(counters: Mapping[str, int]) -> Check:
    """What a server itself tells of its losses."""
    return _verdict(counters, "", ())


def check_counts(folder: Path) -> Check:
    """What the files of a spool tell of losses.

    A full disk takes no counters either: what a living server could not write, and what can't be read, is no zero.
    """
    try:
        lanes, live = lane_stats(folder), written_lanes(folder)
    except PermissionError as error:
        refused = reading_failed(folder, error)
        return warned("spool_losses", f"the counters can't be read: {refused.message}", refused.remedy)
    except OSError as error:
        return warned("spool_losses", f"the counters can't be read: {reason(error)}", _ask_server(folder))
    total: dict[str, int] = {}
    for lane in lanes:
        for name, value in (lane.counters or {}).items():
            total[name] = total.get(name, 0) + value
    now = time.time()
    unknown = [problem for lane in lanes if (problem := _problem(lane, live.get(lane.lane), now))]
    newest = max((lane.written_at for lane in lanes if lane.written_at is not None), default=None)
    as_of = ""
    if not live and newest is not None:
        as_of = f" as of {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(newest))}; no server writes it now"
    return _verdict(total, as_of, unknown, _ask_server(folder))


def _verdict(counters: Mapping[str, int], as_of: str, unknown: Sequence[str], remedy: str = "") -> Check:
    found = [name for name in LOSSES if counters.get(name)]
    if not found and not unknown:
        return fine("spool_losses", f"none in {counters.get('records', 0)} record(s){as_of}")
    evidence = [f"{name} {counters[name]}" for name in found] + list(unknown[:_SHOWN])
    if len(unknown) > _SHOWN:
        evidence.append(f"and {len(unknown) - _SHOWN} more lanes like that")
    remedies = [LOSSES[name] for name in found] + ([remedy] if unknown else [])
    return warned("spool_losses", ", ".join(evidence), " ".join(remedies))


def _problem(lane: LaneStats, began_at: float | None, now: float) -> str:
    """Why what a lane's counters tell is not all; empty where it is. ``began_at``: of its writer, None without one."""
    if lane.written_at is not None and lane.counters is None:
        return f"the counters of lane {lane.lane} can't be read"
    if began_at is None:
        return ""
    if lane.written_at is None:
        missing_s = now - began_at
        return f"lane {lane.lane} has had no counters for {missing_s:.0f} s" if missing_s > _STALE_S else ""
    old_s = now - max(lane.written_at, began_at)
    if old_s <= _STALE_S:
        return ""
    return f"the counters of lane {lane.lane} are {old_s:.0f} s old, though a server writes it, which may lose answers"


def _ask_server(folder: Path) -> str:
    default = re.fullmatch(r"dspark_vllm_([0-9]+)", folder.name)
    place = f"localhost:{default[1]}" if default else "HOST:PORT"
    return (
        "The server can't write them or hangs: see its log and the space that is left, and ask it itself: "
        f"dspark-json doctor http://{place}"
    )
