"""All checks of one run, in the order in which a person would look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.doctor.check import Check, failed
from dspark_json.doctor.gpu import check_container, check_gpu, check_pid_namespace
from dspark_json.doctor.packages import check_delta, check_jar, check_java, check_native, check_python, check_spark
from dspark_json.doctor.server import check_endpoint, check_local_folder
from dspark_json.doctor.spool import check_shared_memory, no_spool, spools_of_this_machine
from dspark_json.errors import OptionError
from dspark_json.source.settings import reader_settings
from dspark_json.source.transport import default_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["examine"]


def examine(target: str | None, *, key_file: Path | None, gpu: bool) -> Iterator[Check]:
    """Check this machine, and the server or spool folder ``target``; ``gpu``: a GPU is wanted, so its lack fails.

    Each check as soon as it is done. Without a target, the spools in the default place are looked at.
    """
    yield check_python()
    yield check_native()
    yield check_java()
    yield check_spark()
    yield check_delta()
    yield check_jar()
    if target is not None:
        yield from _of_target(target, key_file)
        spools = _folders_of(target)
    else:
        spools = spools_of_this_machine()
        for one in spools:
            yield from _of_several(one) if len(spools) > 1 else check_local_folder(one)
        if not spools:
            yield no_spool("no server or folder is named, and there is no /dev/shm/dspark_vllm_*")
        if len(spools) != 1:
            yield check_shared_memory(None)
    yield from check_gpu(wanted=gpu)
    yield check_pid_namespace(spools)
    yield check_container(gpu=gpu)


def _of_several(spool: Path) -> Iterator[Check]:
    """The checks of one spool out of several, each with its name; the memory that all are in is looked at once."""
    for check in check_local_folder(spool):
        if check.name == "spool":
            yield check
        elif check.name != "shared_memory":
            yield replace(check, evidence=f"{spool.name}: {check.evidence}")


def _folders_of(target: str) -> list[Path]:
    """The spools of a target that are folders here: the one that is named, or a server's in its default place."""
    if _is_remote(target):
        names = [default_folder(address.strip()) for address in target.split(",")]
        return [Path(name) for name in names if name is not None and Path(name).is_dir()]
    return [Path(target)] if Path(target).is_dir() else []


def _is_remote(target: str) -> bool:
    return target.lower().startswith(("http://", "https://"))


def _of_target(target: str, key_file: Path | None) -> list[Check]:
    given = {"vllm_endpoint" if _is_remote(target) else "path": target}
    if key_file is not None:
        given["vllm_api_key_file"] = str(key_file)
    try:
        settings = reader_settings(given)
    except OptionError as error:
        return [failed("target", error.message, error.remedy or "Correct the command line.")]
    if settings.local:
        return check_local_folder(Path(settings.addresses[0]))
    return [check for one in settings.addresses for check in check_endpoint(one, settings.key, settings.timeout_s)]
