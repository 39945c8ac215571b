"""Checks of the spool folder and of the memory that it is in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.doctor.check import Check, failed, fine, skipped, warned
from dspark_json.errors import DSparkJsonError, SpoolError
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.stats import sum_counters

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.spool.access import SpoolAccess

__all__ = [
    "check_counts",
    "check_folder",
    "check_schemas",
    "check_shared_memory",
    "check_space",
    "spools_of_this_machine",
]

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - DESIGN §3's default place
_LEAST_SHARED: Final = 1 << 30
_DROPPED_BELOW: Final = 0.10
_LOW: Final = 0.20
# Counters that say that answers did not reach the spool, and what to do about each.
_LOSSES: Final = {
    "dropped_records": "See the server's log for the reason: a full file system, or a writer that does not keep up.",
    "unrecorded_answers": "The spool did not take a record within DSPARK_HOLD_MS; see the server's log.",
    "hook_exceptions": "Please report the traceback that is in the server's log.",
    "schema_overflow": "More than 1,000 answer schemas: requests make up names or shapes of their own.",
    "device_ring_failures": "See the server's log; `dspark-json doctor --gpu` on the server's machine.",
}


def spools_of_this_machine() -> list[Path]:
    """The spools in the default place."""
    return sorted(path.parent for path in SHARED_MEMORY.glob("dspark_vllm_*/spool.json"))


def check_folder(folder: Path) -> tuple[Check, SpoolReader | None]:
    """``spool``: the folder is a spool that this user can read."""
    try:
        reader = SpoolReader(folder)
        lanes = reader.offsets().lanes
    except SpoolError as error:
        return failed("spool", error.message, error.remedy), None
    kept = sum(extent.next - extent.first for extent in lanes.values())
    found = f"{folder}, id {reader.identity.spool_id}, {len(lanes)} lane(s), {kept} record(s)"
    return fine("spool", found), reader


def check_counts(folder: Path) -> Check:
    """``spool_losses``: nothing that the server answered is missing in the spool."""
    counters = sum_counters(folder)
    found = {name: counters[name] for name in _LOSSES if counters.get(name)}
    if not found:
        return fine("spool_losses", f"none in {counters.get('records', 0)} record(s)")
    evidence = ", ".join(f"{name} {count}" for name, count in found.items())
    return warned("spool_losses", evidence, " ".join(_LOSSES[name] for name in found))


def check_space(folder: Path) -> Check:
    """``spool_space``: the file system has room; below 10 % free the server drops records."""
    usage = shutil.disk_usage(folder)
    share = usage.free / usage.total if usage.total else 0.0
    found = f"{_mib(usage.free)} of {_mib(usage.total)} MiB free ({share:.0%})"
    remedy = "Free space, lower DSPARK_RETENTION_MB, or set DSPARK_SPOOL to another file system."
    if share < _DROPPED_BELOW:
        return failed("spool_space", f"{found}: below 10 % records are dropped", remedy)
    return warned("spool_space", found, remedy) if share < _LOW else fine("spool_space", found)


def check_shared_memory(folder: Path | None, place: Path = SHARED_MEMORY) -> Check:
    """``shared_memory``: /dev/shm, where spools are unless told otherwise, has 1 GiB at least."""
    if not place.is_dir():
        return warned("shared_memory", f"there is no {place}", "Set DSPARK_SPOOL to a folder on a disk.")
    total = shutil.disk_usage(place).total
    found = f"{place} has {_mib(total)} MiB"
    if total >= _LEAST_SHARED:
        return fine("shared_memory", found)
    remedy = "Start the container with --shm-size=1g or more (or --ipc=host), or set DSPARK_SPOOL to a disk."
    used = folder is None or folder.is_relative_to(place)
    return failed("shared_memory", found, remedy) if used else warned("shared_memory", found, remedy)


def check_schemas(access: Callable[[], SpoolAccess]) -> Check:
    """``schemas``: requests have asked for answers of a schema."""
    try:
        found = access().schemas()
    except DSparkJsonError as error:
        return failed("schemas", error.message, error.remedy)
    if not found:
        return warned(
            "schemas",
            "no request has asked for a schema yet",
            "responseSchema needs requests with response_format json_schema (with a name), or structured_outputs; "
            "contentSchema does not.",
        )
    names = sorted({str(one.get("name")) for one in found if one.get("name") is not None})
    return fine("schemas", f"{len(found)}: {', '.join(names[:10]) or 'without names'}")


def no_spool(where: str) -> Check:
    """``spool`` where none was asked for and none is there."""
    return skipped("spool", where, "Name a server or a folder: dspark-json doctor http://localhost:8000")


def _mib(size: int) -> str:
    return f"{size >> 20:,}"
