"""Checks of the spool folder and of the memory that it is in."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.doctor.check import Check, failed, fine, skipped, warned
from dspark_json.errors import DSparkJsonError, LaneNotFoundError, SpoolError
from dspark_json.spool.layout import IDENTITY_FILE, LANES_FOLDER
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json.spool.access import SpoolAccess

__all__ = [
    "check_folder",
    "check_schemas",
    "check_shared_memory",
    "check_space",
    "closed_spools",
    "no_spool",
    "spools_of_this_machine",
    "unwritten",
]

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - DESIGN §3's default place
_SHOWN: Final = 3
_LEAST_SHARED: Final = 1 << 30
_DROPPED_BELOW: Final = 0.10
_LOW: Final = 0.20


def spools_of_this_machine() -> tuple[list[Path], list[Path]]:
    """The spools in the default place: those that this user may look into, and the folders that it may not."""
    spools, closed = [], []
    for folder in sorted(SHARED_MEMORY.glob("dspark_vllm_*")):
        try:
            (folder / IDENTITY_FILE).stat()
            spools.append(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            closed.append(folder)
    return spools, closed


def check_folder(folder: Path) -> tuple[Check, SpoolReader | None]:
    """``spool``: the folder is a spool that this user can read, its records too, and not everybody."""
    try:
        reader = SpoolReader(folder)
        lanes = reader.offsets().lanes
    except SpoolError as error:
        return failed("spool", error.message, error.remedy), None
    kept = sum(extent.next - extent.first for extent in lanes.values())
    found = f"{folder}, id {reader.identity.spool_id}, {len(lanes)} lane(s), {kept} record(s)"
    problems = [problem for lane in lanes if (problem := _problem(reader, lane)) is not None]
    if problems:
        more = f" (and {len(problems) - 1} more lane(s) like that)" if len(problems) > 1 else ""
        return failed(
            "spool", f"{found}, not all of which can be read: {problems[0].message}{more}", problems[0].remedy
        ), reader
    open_to_all = [path for path in (folder, folder / LANES_FOLDER) if _is_open_to_all(path)]
    if open_to_all:
        names = " and ".join(map(str, open_to_all))
        remedy = f"Take that right away: chmod o-rwx {' '.join(map(str, open_to_all))}"
        return warned("spool", f"{found}; everybody on this machine may look into {names}", remedy), reader
    return fine("spool", found), reader


def check_space(folder: Path) -> Check:
    """``spool_space``: the file system has room; below 10 % free the server drops every answer, whatever fills it."""
    space = os.statvfs(folder)
    share = space.f_bavail / space.f_blocks if space.f_blocks else 0.0
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    found = f"{_mib(free)} of {_mib(total)} MiB free ({share:.0%})"
    remedy = (
        "Free space there, whatever fills it; lower DSPARK_RETENTION_MB where that is the spool; or give the spool a "
        "file system of its own (DSPARK_SPOOL)."
    )
    if space.f_files and not space.f_favail:
        return failed("spool_space", f"{found}, but no file more can be made (no inodes are left)", remedy)
    if share < _DROPPED_BELOW:
        return failed("spool_space", f"{found}: below 10 % every answer is dropped", remedy)
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


def closed_spools(folders: Sequence[Path]) -> Check:
    """``spool`` of those in the default place that this user may not look into: nobody asked for them by name."""
    return warned(
        "spool",
        f"{len(folders)} folder(s) in {folders[0].parent} that this user may not look into: {_names(folders)}",
        "Run dspark-json doctor as the user of the server, or ask the server with its key: "
        "dspark-json doctor http://localhost:PORT --key-file F",
    )


def unwritten(spools: Sequence[Path]) -> Check:
    """``spool`` of several that no server writes: what they are, not what is in each."""
    return skipped(
        "spool",
        f"{len(spools)} spool(s) in {spools[0].parent} that no server writes: {_names(spools)}",
        "Look at one: dspark-json doctor FOLDER. What nobody is to read any more takes memory: rm -r FOLDER.",
    )


def _problem(reader: SpoolReader, lane: str) -> SpoolError | None:
    """Why records of a lane can't be read here; None where each of its segments can be."""
    try:
        reader.probe(lane)
    except LaneNotFoundError:  # removed since it was listed
        return None
    except SpoolError as error:
        return error
    return None


def _is_open_to_all(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def _names(folders: Sequence[Path]) -> str:
    names = [folder.name for folder in folders]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _mib(size: int) -> str:
    return f"{size >> 20:,}"
