"""``dns+http://name:port``: the servers behind a name (of a headless service, say), looked up anew at each trigger."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from dspark_json.errors import DSparkJsonError, EndpointUnreachableError
from dspark_json.source.asking import ask_all

__all__ = ["Names", "Resolve", "is_name", "resolved"]

# Gives the IP addresses that a host name has now; ``OSError`` or ``UnicodeError`` where it has none.
Resolve = Callable[[str], Sequence[str]]

_log = logging.getLogger(__name__)

_PREFIX: Final = "dns+"


def is_name(address: str) -> bool:
    """Whether an address stands for all the servers behind a name."""
    return address.startswith(_PREFIX)


def resolved(host: str) -> list[str]:
    """The IPv4 addresses of a host, or its IPv6 addresses where it has no other: a server with both is one server."""
    found: dict[int, dict[str, None]] = {}
    for family, _, _, _, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        found.setdefault(family, {})[str(place[0])] = None
    return sorted(found.get(socket.AF_INET) or found.get(socket.AF_INET6, {}))


class Names:
    """Turns what was given into the addresses of servers."""

    def __init__(self, given: Sequence[str], resolve: Resolve = resolved) -> None:
        self._given = tuple(given)
        self._resolve = resolve
        self._last: dict[str, list[str]] = {}

    def look(self, timeout_s: float) -> tuple[list[str], dict[str, DSparkJsonError], float]:
        """The addresses now, the error of each name that can't be looked up, and the seconds left for other things.

        Such a name stands for the addresses it had last; looking up takes half of the time at most.
        """
        names = [given for given in self._given if is_name(given)]
        if not names:
            return list(self._given), {}, timeout_s
        begun = time.monotonic()
        answers = ask_all(names, self._servers, timeout_s / 2)
        down: dict[str, DSparkJsonError] = {}
        for name in names:
            answer = answers.get(name, TimeoutError(f"no answer within {timeout_s / 2:g} s"))
            if isinstance(answer, OSError | UnicodeError):
                down[name] = _unknown(name, answer, self._last.get(name, []))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                if answer != self._last.get(name):
                    _log.info("%s: %s", name, ", ".join(answer))
                self._last[name] = answer
        found = [
            address for given in self._given for address in self._last.get(given, [] if is_name(given) else [given])
        ]
        return list(dict.fromkeys(found)), down, max(timeout_s - (time.monotonic() - begun), timeout_s / 2)

    def _servers(self, name: str) -> list[str]:
        parts = urlsplit(name.removeprefix(_PREFIX))
        port = "" if parts.port is None else f":{parts.port}"
        hosts = [f"[{host}]" if ":" in host else host for host in self._resolve(parts.hostname or "")]
        return [f"{parts.scheme}://{host}{port}{parts.path}" for host in hosts]


def _unknown(name: str, error: Exception, last: Sequence[str]) -> EndpointUnreachableError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    asked = f"; its last addresses ({', '.join(last)}) are asked" if last else ""
    return EndpointUnreachableError(
        f"the name of {name} can't be looked up ({reason}){asked}",
        remedy="Check the name and the machine's name servers; in Kubernetes, that the service is headless and has "
        "ready pods.",
    )
