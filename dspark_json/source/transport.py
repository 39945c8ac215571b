"""How a spool is reached: its folder where that can be opened, else HTTP (DESIGN §4)."""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dspark_json.errors import (
    EndpointError,
    EndpointKeyError,
    SpoolError,
    SpoolNotFoundError,
    SpoolPermissionError,
    SpoolReplacedError,
)
from dspark_json.source.machine import is_loopback
from dspark_json.spool.http import HookClient, HttpSpool
from dspark_json.spool.reader import SpoolAccess, SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.source.splits import Split

__all__ = ["default_folder", "is_folder", "key_not_needed", "no_key_error", "open_folder", "open_split"]

_log = logging.getLogger(__name__)
_announced: set[tuple[str, str]] = set()

_NOT_HERE: Final = (SpoolNotFoundError, SpoolPermissionError)


def is_folder(address: str) -> bool:
    """Whether an offset's ``endpoint`` is a folder (``.load(path)``) and not a server's address."""
    return address.startswith("/")


def default_folder(address: str) -> str | None:
    """Where the server at ``address`` keeps its spool unless told otherwise; None if it is not on this machine."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if not _is_this_machine(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"/dev/shm/dspark_vllm_{port}"  # noqa: S108 - the product's documented default


def open_folder(folder: str | None, spool_id: str | None) -> tuple[SpoolReader | None, str]:
    """A reader for ``folder`` if it can be opened here and holds this spool (any, for None); else None and why."""
    try:
        return _opened(folder, spool_id)
    except SpoolReplacedError as error:
        return None, str(error)


def _opened(folder: str | None, spool_id: str | None) -> tuple[SpoolReader | None, str]:
    """As ``open_folder``, but a folder that holds another spool is a ``SpoolReplacedError``."""
    if folder is None:
        return None, "the folder is not known"
    try:
        return SpoolReader(Path(folder), spool_id=spool_id), f"folder {folder}"
    except _NOT_HERE as error:
        return None, str(error)


def no_key_error(
    address: str,
    reason: str,
    *,
    by_folder: str = 'give that folder as .load("/that/folder")',
    key: str = "vllm_api_key",
) -> EndpointKeyError:
    """The error for a server that can be read neither from its folder (for ``reason``) nor over HTTP without a key.

    ``by_folder`` says how a folder is read instead of a server, ``key`` what the hook's key is given with.
    """
    default = default_folder(address)
    where = (
        "A folder can be found without a key only on the server's machine"
        if default is None
        else f"Without a key only the server's default folder ({default}) can be found; if the server sets "
        f"DSPARK_SPOOL, {by_folder}"
    )
    return EndpointKeyError(
        f"the spool of {address} can't be opened as a folder ({reason.rstrip('.')}), and without a key it can't be "
        "read over HTTP",
        remedy=f"{where}. Or give the hook's key with {key} (DSPARK_API_KEY of the server; if it has none, start the "
        "server with DSPARK_API_KEY set).",
    )


def key_not_needed(address: str, folder: str) -> str:
    """What is said where a key was given for a server that has none, and its folder is read, which needs none.

    A server with another key answers 401; one that tells its folder has this one.
    """
    return (
        f"{address} has no key (DSPARK_API_KEY), so the one given here was not checked; the spool is read from the "
        f"folder {folder}, which needs none"
    )


@contextlib.contextmanager
def open_split(split: Split, key: str | None, timeout_s: float) -> Iterator[SpoolAccess]:
    """Access to a split's spool: the folder where it can be opened and has the range, else HTTP.

    Without a key and a folder, the server is asked which spool it has now: ``SpoolReplacedError`` for another one,
    ``EndpointKeyError`` for this one. Where the server does not answer, a folder that holds another spool decides.
    """
    if is_folder(split.endpoint):
        yield SpoolReader(Path(split.endpoint), spool_id=split.spool_id)
        return
    reasons = []
    replaced: SpoolReplacedError | None = None
    for folder in dict.fromkeys((split.folder, default_folder(split.endpoint))):
        try:
            reader, reason = _opened(folder, split.spool_id)
        except SpoolReplacedError as error:
            reader, reason, replaced = None, str(error), error
        if reader is not None and key is not None and (missing := _missing(reader, split)):
            reader, reason = None, missing
        if reader is not None:
            _announce(split, reason)
            yield reader
            return
        if folder is not None:
            reasons.append(reason)
    reason = "; ".join(reasons) or "the folder is not known or not on this machine"
    if key is None:
        _check_server(split, timeout_s, reason, replaced)
        raise no_key_error(split.endpoint, reason)
    _announce(split, f"HTTP ({reason.rstrip('.')})")
    # What is planned must be read, whatever became of the server since: it may come back.
    with HookClient(split.endpoint, key, timeout_s, patient=True) as client:
        yield HttpSpool(client, split.spool_id)


def _check_server(split: Split, timeout_s: float, reason: str, replaced: SpoolReplacedError | None) -> None:
    """Raise what is true of a split that no folder gives (for ``reason``), unless its server still has the spool."""
    try:
        with HookClient(split.endpoint, None, timeout_s) as client:
            found = client.identity(tries=2).spool_id
    except EndpointError as error:
        if replaced is not None:
            raise replaced from error
        raise type(error)(
            f"the spool of {split.endpoint} can't be opened as a folder ({reason.rstrip('.')}), and {error.message}",
            remedy=error.remedy,
        ) from error
    if found != split.spool_id:
        raise SpoolReplacedError(
            f"{split.endpoint} has spool {found} now, not {split.spool_id}",
            remedy="The folder was made anew (the server's container restarted, or somebody removed it).",
        )


def _missing(reader: SpoolReader, split: Split) -> str:
    """What a folder lacks of a split's range, for people; empty if nothing."""
    try:
        extent = reader.offsets().lanes.get(split.lane)
    except SpoolError as error:
        return str(error)
    if extent is None or not extent.first <= split.start <= split.stop <= extent.next:
        return f"the folder does not have records {split.start} to {split.stop} of lane {split.lane}"
    return ""


def _announce(split: Split, way: str) -> None:
    """Say once per process and spool how it is read."""
    if (split.spool_id, way[:4]) not in _announced:
        _announced.add((split.spool_id, way[:4]))
        _log.info("reading spool %s of %s from %s", split.spool_id, split.endpoint, way)


def _is_this_machine(host: str) -> bool:
    return host.lower() == socket.gethostname().lower() or is_loopback(host)
