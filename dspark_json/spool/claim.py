"""Making a spool, and taking turns among the processes that start on one."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.errors import SpoolWriteError
from dspark_json.spool import layout
from dspark_json.spool.files import replace_file, sync_folder
from dspark_json.spool.sharing import apply_sharing, check_owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark_json.spool.sharing import Sharing

CLAIM_SECONDS: Final = 30.0


def current_boot_id() -> str:
    """The id that the kernel drew when this host started; changes with each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@contextmanager
def claim(spool: Path, *, patience: float = CLAIM_SECONDS) -> Iterator[bool]:
    """Hold the lock on the spool folder itself, so that one process at a time makes the spool or takes a lane.

    Waits up to ``patience`` seconds; yields whether the lock was got.
    Raises ``OSError`` where the folder can't be opened.
    """
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            got = _lock(descriptor, deadline)
            if got and not _is_at(descriptor, spool):
                continue  # removed or replaced while we waited
            yield got
            return
        finally:
            os.close(descriptor)


def ensure_identity(spool: Path, boot_id: str, created_us: int, sharing: Sharing) -> layout.SpoolIdentity:
    """Read ``spool.json`` and note the boot id in it, or make it. The caller holds the claim."""
    path = spool / layout.IDENTITY_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        identity = layout.SpoolIdentity(layout.FORMAT, str(uuid.uuid4()), created_us, boot_id)
    else:
        old = layout.parse_identity(raw, path)
        identity = layout.SpoolIdentity(old.format, old.spool_id, old.created, boot_id)
        if identity == old and (path.stat().st_mode & 0o777) == sharing.file_mode:
            return old
    replace_file(path, identity.to_json(), durable=True, mode=sharing.file_mode)
    sync_folder(spool)
    return identity


def restore_identity(spool: Path, identity: layout.SpoolIdentity, sharing: Sharing) -> bool:
    """Write ``spool.json`` again where somebody removed it under a writer; whether that was so.

    Without it nobody can read the spool, and the next server would give the same records out under another id.
    """
    path = spool / layout.IDENTITY_FILE
    if path.exists():
        return False
    with claim(spool) as got:
        if not got or path.exists():
            return False
        replace_file(path, identity.to_json(), durable=True, mode=sharing.file_mode)
        sync_folder(spool)
    return True


def make_folders(spool: Path, sharing: Sharing) -> None:
    """Make the spool's folders where they are missing, and give them the access wanted.

    Raises ``SpoolPermissionError`` where the folder belongs to another user: who made it could read and swap the files.
    """
    spool.mkdir(mode=layout.FOLDER_MODE, parents=True, exist_ok=True)
    check_owner(spool, sharing)
    (spool / layout.LANES_FOLDER).mkdir(mode=layout.FOLDER_MODE, exist_ok=True)
    with suppress(FileExistsError):  # a file in its place costs the schemas, told with the first one, and no record
        (spool / layout.SCHEMAS_FOLDER).mkdir(mode=layout.FOLDER_MODE, exist_ok=True)
    apply_sharing(spool, sharing)


def claim_refused(spool: Path) -> SpoolWriteError:
    """The error where the claim could not be got in time."""
    return SpoolWriteError(
        f"another process has held {spool} for {CLAIM_SECONDS:.0f} seconds",
        remedy="Look for a stopped (suspended) server that uses the same spool.",
    )


def _lock(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        else:
            return True


def _is_at(descriptor: int, path: Path) -> bool:
    held = os.fstat(descriptor)
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev)
