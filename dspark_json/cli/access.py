"""Opening a spool by its folder, or by the address of the server that writes it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.errors import EndpointKeyError, InvalidOptionError
from dspark_json.source.settings import reader_settings
from dspark_json.source.transport import default_folder, no_key_error, open_folder
from dspark_json.spool.http import HookClient, HttpSpool
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.spool.reader import SpoolAccess

_KEY_REMEDY = (
    "Give the hook's key (DSPARK_API_KEY of the server) with --key-file or as the environment's DSPARK_API_KEY."
)


@contextlib.contextmanager
def open_access(target: str, key_file: Path | None = None) -> Iterator[SpoolAccess]:
    """Access to the spool in the folder ``target``, or of the server at the address ``target``.

    A server's folder is used where this process can open it, else HTTP, as the Spark source does. The key is the first
    line of ``key_file``, else the environment's ``DSPARK_API_KEY``. Raises a ``SpoolError``, ``EndpointError`` or
    ``OptionError`` that names what is wrong.
    """
    remote = target.lower().startswith(("http://", "https://"))
    given = {"vllm_endpoint" if remote else "path": target}
    if key_file is not None:
        given["vllm_api_key_file"] = str(key_file)
    settings = reader_settings(given)
    if settings.local:
        yield SpoolReader(Path(settings.addresses[0]))
        return
    if len(settings.addresses) > 1:
        raise InvalidOptionError(f'"{target}" names several servers', remedy="Give one; each has a spool of its own.")
    address = settings.addresses[0]
    with HookClient(address, settings.key, settings.timeout_s) as client:
        try:
            access = _reachable(client, address)
        except EndpointKeyError as error:
            raise EndpointKeyError(error.message, remedy=_KEY_REMEDY) from None
        yield access


def _reachable(client: HookClient, address: str) -> SpoolAccess:
    identity = client.identity()
    reasons = []
    for folder in dict.fromkeys((identity.folder, default_folder(address))):
        reader, reason = open_folder(folder, identity.spool_id)
        if reader is not None:
            return reader
        if folder is not None:
            reasons.append(reason)
    if not client.has_key:
        raise no_key_error(address, "; ".join(reasons) or "it is not on this machine")
    spool = HttpSpool(client, identity.spool_id)
    spool.offsets()  # a wrong or missing key shows here, not at the first record
    return spool
