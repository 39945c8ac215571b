"""Checks of a server: somebody answers, it is the hook, its spool can be read from here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.doctor.check import Check, attempted, failed, fine, skipped, warned
from dspark_json.doctor.losses import LOSSES, check_counters, check_counts
from dspark_json.doctor.spool import check_folder, check_schemas, check_shared_memory, check_space
from dspark_json.errors import DSparkJsonError, EndpointAnswerError, EndpointError, EndpointKeyError
from dspark_json.source.transport import default_folder, open_folder
from dspark_json.spool.http import HookClient, HttpSpool

if TYPE_CHECKING:
    from dspark_json.spool.http_answers import ServerIdentity

__all__ = ["check_endpoint", "check_local_folder"]

_NEEDS_SPOOL: Final = "needs spool"


def check_local_folder(folder: Path, losses: Check | None = None) -> list[Check]:
    """All checks of a spool folder; ``losses`` is what its server says of them, where that was asked."""
    checked, reader = check_folder(folder)
    if reader is None:
        rest = [losses or skipped("spool_losses", _NEEDS_SPOOL)]
        rest += [skipped(name, _NEEDS_SPOOL) for name in ("spool_space", "schemas")]
    else:
        rest = [
            losses or check_counts(folder),
            attempted("spool_space", lambda: check_space(folder)),
            attempted("schemas", lambda: check_schemas(lambda: reader)),
        ]
    return [checked, *rest, attempted("shared_memory", lambda: check_shared_memory(folder))]


def check_endpoint(address: str, key: str | None, timeout_s: float) -> list[Check]:
    """All checks of a server; ``key`` is the hook's."""
    with HookClient(address, key, timeout_s) as client:
        try:
            identity = client.identity()
        except EndpointKeyError as error:
            return [
                fine("server", f"{address} answers"),
                fine("hook", "it is the hook"),
                failed("key", error.message, error.remedy),
            ]
        except EndpointAnswerError as error:
            return [
                fine("server", f"{address} answers"),
                failed("hook", error.message, error.remedy),
                _shared_memory(),
            ]
        except EndpointError as error:
            return [failed("server", error.message, error.remedy), _shared_memory()]
        checks = [fine("server", f"{address} answers"), fine("hook", f"is enabled, spool id {identity.spool_id}")]
        folder = _folder_here(address, identity)
        losses = _losses(address, timeout_s)
        if folder is not None:
            return [*checks, *check_local_folder(folder, losses)]
        return [*checks, *_over_http(client, identity), *([] if losses is None else [losses])]


def _shared_memory() -> Check:
    return attempted("shared_memory", lambda: check_shared_memory(None))


def _folder_here(address: str, identity: ServerIdentity) -> Path | None:
    for folder in dict.fromkeys((identity.folder, default_folder(address))):
        if open_folder(folder, identity.spool_id)[0] is not None:
            assert folder is not None
            return Path(folder)
    return None


def _losses(address: str, timeout_s: float) -> Check | None:
    """What the server says of its losses, which needs no key; its files may tell less. None where it does not say."""
    from dspark_json.monitor.counters import series_of
    from dspark_json.monitor.metrics_page import metrics_page

    page = metrics_page(f"{address}/dspark/metrics", timeout_s)
    names = {name: f"dspark_{name}_total" for name in ("records", *LOSSES)}
    found = {} if page is None else series_of(page, *names.values())
    counters = {name: int(found[series, ""]) for name, series in names.items() if (series, "") in found}
    return check_counters(counters) if "records" in counters else None


def _over_http(client: HookClient, identity: ServerIdentity) -> list[Check]:
    if not client.has_key:
        return [
            failed(
                "key",
                "the spool's folder can't be opened here, and no key is given for reading over HTTP",
                "Give the hook's key (DSPARK_API_KEY of the server) with --key-file or as DSPARK_API_KEY; if it has "
                "none, start the server with one. In a container, mount the server's /dev/shm.",
            )
        ]
    spool = HttpSpool(client, identity.spool_id)
    try:
        lanes = spool.offsets().lanes
        schemas = check_schemas(lambda: spool)
    except DSparkJsonError as error:
        return [failed("key", error.message, error.remedy)]
    kept = sum(extent.next - extent.first for extent in lanes.values())
    return [
        fine("key", "is the hook's"),
        warned(
            "spool",
            f"read over HTTP: {len(lanes)} lane(s), {kept} record(s)",
            "On the server's machine the folder is read, which is faster; in a container, mount its /dev/shm.",
        ),
        schemas,
    ]
