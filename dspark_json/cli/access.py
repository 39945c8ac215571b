"""Opening a spool by its folder, or by the address of the server that writes it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_json.cli import output
from dspark_json.errors import EndpointKeyError, InvalidOptionError, SpoolNotFoundError
from dspark_json.key_file import UnreadableError, first_line
from dspark_json.options import hook_setting_meant, is_key
from dspark_json.source.names import is_name
from dspark_json.source.settings import reader_settings
from dspark_json.source.target import meant_address, target_option
from dspark_json.source.transport import default_folder, key_not_needed, no_key_error, open_folder
from dspark_json.spool.http import KEY_REMEDY, HookClient, HttpSpool
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.source.settings import ReaderSettings
    from dspark_json.spool.reader import SpoolAccess

_KEY_REMEDY = (
    "Give the hook's key (DSPARK_API_KEY of the server) with --key-file or as the environment's DSPARK_API_KEY."
)


@dataclass(frozen=True, slots=True)
class Target:
    """A spool that is open. ``server`` is the address it was asked for by, None for a folder."""

    access: SpoolAccess
    server: str | None = None


def target_settings(target: str, key_file: Path | None = None) -> ReaderSettings:
    """The settings of a reader of ``target``: servers' addresses, or else a folder; the key as for ``open_target``.

    A variable that was to be ``DSPARK_API_KEY`` is told where servers are asked without a key.
    """
    given = target_option(target)
    if key_file is not None:
        given["vllm_api_key"] = _key(key_file)
    settings = reader_settings(given)
    if not settings.local and settings.key is None and (meant := hook_setting_meant("DSPARK_API_KEY", os.environ)):
        output.note(meant)
    return settings


@contextlib.contextmanager
def open_access(target: str, key_file: Path | None = None) -> Iterator[SpoolAccess]:
    """As ``open_target``, the access alone."""
    with open_target(target, key_file) as opened:
        yield opened.access


@contextlib.contextmanager
def open_target(target: str, key_file: Path | None = None) -> Iterator[Target]:
    """Open the spool in the folder ``target``, or of the server at the address ``target``.

    A server's folder is used where this process can open it, else HTTP, as the Spark source does. The key is the first
    line of ``key_file``, else the environment's ``DSPARK_API_KEY``. Raises a ``SpoolError``, ``EndpointError`` or
    ``OptionError`` that names what is wrong.
    """
    settings = target_settings(target, key_file)
    if settings.local:
        if key_file is not None:
            output.note(f"the key of --key-file is not used: {target} is a folder, which needs none")
        with explained(target):
            reader = SpoolReader(Path(settings.addresses[0]))
        yield Target(reader)
        return
    if len(settings.addresses) > 1 or is_name(settings.addresses[0]):
        raise InvalidOptionError(f'"{target}" names several servers', remedy="Give one; each has a spool of its own.")
    address = settings.addresses[0]
    with HookClient(address, settings.key, settings.timeout_s) as client:
        with explained(target):
            access = _reachable(client, address)
        yield Target(access, address)


@contextlib.contextmanager
def explained(target: str) -> Iterator[None]:
    """Errors of opening ``target`` say what to do in the words of the command line."""
    try:
        yield
    except EndpointKeyError as error:
        remedy = _KEY_REMEDY if error.remedy == KEY_REMEDY or ".load(" in error.remedy else error.remedy
        raise EndpointKeyError(error.message, remedy=remedy) from None
    except SpoolNotFoundError as error:
        meant = meant_address(target)
        if meant is None:
            raise
        raise SpoolNotFoundError(error.message, remedy=f"Did you mean {meant}? {error.remedy}".rstrip()) from None


def _key(file: Path) -> str:
    """The first line of a key file, where it is a key."""
    try:
        key = first_line(file)
    except UnreadableError as why:
        raise InvalidOptionError(
            f'--key-file "{file}" can\'t be read: {why}', remedy="Give a file whose first line is the hook's key."
        ) from None
    if not is_key(key):
        raise InvalidOptionError(
            f'the first line of --key-file "{file}" is not a key: allowed are visible ASCII characters, without blanks '
            "(its value is not shown)"
        )
    return key


def _reachable(client: HookClient, address: str) -> SpoolAccess:
    identity = client.identity()
    reasons = []
    for folder in dict.fromkeys((identity.folder, default_folder(address))):
        reader, reason = open_folder(folder, identity.spool_id)
        if reader is not None:
            if client.has_key and identity.folder is None:
                output.note(key_not_needed(address, str(reader.folder)))
            return reader
        if folder is not None:
            reasons.append(reason)
    if not client.has_key:
        raise no_key_error(
            address,
            "; ".join(reasons) or "it is not on this machine",
            by_folder="give that folder as the argument",
            key="--key-file or the environment's DSPARK_API_KEY",
        )
    spool = HttpSpool(client, identity.spool_id)
    spool.offsets()  # a wrong or missing key shows here, not at the first record
    return spool
