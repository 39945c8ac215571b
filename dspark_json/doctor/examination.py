"""All checks of one run, in the order in which a person would look."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.doctor.check import Check, attempted, attempted_all, failed, warned
from dspark_json.doctor.gpu import check_container, check_gpu, check_pid_namespace
from dspark_json.doctor.packages import check_delta, check_jar, check_java, check_native, check_python, check_spark
from dspark_json.doctor.server import check_endpoint, check_local_folder
from dspark_json.doctor.spool import check_shared_memory, closed_spools, no_spool, spools_of_this_machine, unwritten
from dspark_json.errors import OptionError
from dspark_json.options import hook_setting_meant
from dspark_json.source.names import Names
from dspark_json.source.settings import reader_settings
from dspark_json.source.target import is_remote, meant_address, target_option
from dspark_json.source.transport import default_folder
from dspark_json.spool.lane import is_written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["examine"]


def examine(target: str | None, *, key_file: Path | None, gpu: bool) -> Iterator[Check]:
    """Check this machine, and the server or spool folder ``target``; ``gpu``: a GPU is wanted, so its lack fails.

    Each check as soon as it is done; what the operating system refuses fails one check, and the others go on. Without
    a target, the spools in the default place are looked at.
    """
    yield attempted("python", check_python)
    yield attempted("native_engine", check_native)
    yield attempted("java", check_java)
    yield attempted("spark", check_spark)
    yield attempted("delta", check_delta)
    yield attempted("jar", check_jar)
    if target is not None:
        yield from attempted_all("target", lambda: _of_target(target, key_file))
        spools = _folders_of(target)
    else:
        spools, closed = spools_of_this_machine()
        yield from attempted_all("spool", lambda: _of_this_machine(spools, closed))
    yield from attempted_all("gpu_driver", lambda: check_gpu(wanted=gpu))
    yield attempted("pid_namespace", lambda: check_pid_namespace(spools))
    yield attempted("container", lambda: check_container(gpu=gpu))


def _of_this_machine(spools: Sequence[Path], closed: Sequence[Path]) -> Iterator[Check]:
    """The checks of the spools in the default place; those of several that no server writes are a line together.

    So are the ``closed`` ones, which this user may not look into.
    """
    if closed:
        yield closed_spools(closed)
    elif not spools:
        yield no_spool("no server or folder is named, and there is no /dev/shm/dspark_vllm_*")
    if len(spools) == 1:
        yield from check_local_folder(spools[0])
        return
    left = [spool for spool in spools if is_written(spool) is False]
    for one in spools:
        if one not in left:
            yield from _of_several(one)
    if left:
        yield unwritten(left)
    yield attempted("shared_memory", lambda: check_shared_memory(None))


def _of_several(spool: Path) -> Iterator[Check]:
    """The checks of one spool out of several, each with its name; the memory that all are in is looked at once."""
    for check in check_local_folder(spool):
        if check.name == "spool":
            yield check
        elif check.name != "shared_memory":
            yield replace(check, evidence=f"{spool.name}: {check.evidence}")


def _folders_of(target: str) -> list[Path]:
    """The spools of a target that are folders here: the one that is named, or a server's in its default place."""
    names = [default_folder(address.strip()) for address in target.split(",")] if is_remote(target) else [target]
    # Of what this user may not even look for, the path is no folder: ``Path.is_dir`` raises there.
    return [Path(name) for name in names if name is not None and os.path.isdir(name)]  # noqa: PTH112


def _of_target(target: str, key_file: Path | None) -> list[Check]:
    try:
        given = target_option(target)
        if key_file is not None:
            given["vllm_api_key_file"] = str(key_file)
        settings = reader_settings(given)
    except OptionError as error:
        return [failed("target", error.message, error.remedy or "Correct the command line.")]
    if not settings.local:
        addresses, down, timeout_s = Names(settings.addresses).look(settings.timeout_s)
        checks = [failed("server", error.message, error.remedy) for error in down.values()]
        other = hook_setting_meant("DSPARK_API_KEY", os.environ) if settings.key is None else ""
        if other:
            checks.insert(0, warned("key", f"none is given. {other}", "Set it under that name, or give --key-file."))
        return checks + [check for one in addresses for check in check_endpoint(one, settings.key, timeout_s)]
    checks = check_local_folder(Path(settings.addresses[0]))
    meant = meant_address(target)
    if meant is None:
        return checks
    return [replace(checks[0], remedy=f"Did you mean {meant}? {checks[0].remedy}"), *checks[1:]]
