"""All checks of one run, in the order in which a person would look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.doctor.check import Check, failed
from dspark_json.doctor.gpu import check_container, check_gpu, check_pid_namespace
from dspark_json.doctor.packages import check_delta, check_jar, check_java, check_native, check_python, check_spark
from dspark_json.doctor.server import check_endpoint, check_local_folder
from dspark_json.doctor.spool import check_shared_memory, no_spool, spools_of_this_machine
from dspark_json.errors import OptionError
from dspark_json.source.settings import reader_settings

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
    folder: Path | None = None
    if target is not None:
        yield from _of_target(target, key_file)
        folder = Path(target) if Path(target).is_dir() else None
    else:
        spools = spools_of_this_machine()
        for one in spools:
            yield from check_local_folder(one)
        if not spools:
            yield no_spool("no server or folder is named, and there is no /dev/shm/dspark_vllm_*")
            yield check_shared_memory(None)
        folder = spools[0] if spools else None
    yield from check_gpu(wanted=gpu)
    yield check_pid_namespace(folder)
    yield check_container()


def _of_target(target: str, key_file: Path | None) -> list[Check]:
    remote = target.lower().startswith(("http://", "https://"))
    given = {"vllm_endpoint" if remote else "path": target}
    if key_file is not None:
        given["vllm_api_key_file"] = str(key_file)
    try:
        settings = reader_settings(given)
    except OptionError as error:
        return [failed("target", error.message, error.remedy or "Correct the command line.")]
    if settings.local:
        return check_local_folder(Path(settings.addresses[0]))
    return [check for one in settings.addresses for check in check_endpoint(one, settings.key, settings.timeout_s)]
