"""Which machine a process runs on, as far as it matters to paths and to "localhost"."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from dspark_json.source.splits import Split

__all__ = ["is_loopback", "means_another_place", "this_machine"]


@functools.cache
def this_machine() -> str:
    """A text that two processes share where a path means the same to both: name, boot, and view of the files."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/mnt").readlink()))
    return " ".join(parts)


def is_loopback(host: str) -> bool:
    """Whether a host is each machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def means_another_place(split: Split) -> bool:
    """Whether what a split names, a folder or a server at "localhost", is another one here than for the driver."""
    if split.planned_on in {"", this_machine()}:
        return False
    return split.endpoint.startswith("/") or is_loopback(urlsplit(split.endpoint).hostname or "")
