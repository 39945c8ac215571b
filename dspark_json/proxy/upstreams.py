"""The servers behind the proxy, asked in turn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import Sequence

# How long one that could not be connected to is only asked after all others.
_REST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """One server: its address as given, for logs, and what a request needs of it."""

    address: str
    url: httpx.URL
    authority: bytes
    prefix: bytes

    @classmethod
    def at(cls, address: str) -> Upstream:
        """``address`` is ``scheme://host[:port][/prefix]``."""
        url = httpx.URL(address)
        return cls(address, url, url.netloc, url.raw_path.rstrip(b"/"))


class Upstreams:
    """Hands out the servers in turn (round-robin)."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """``addresses``: at least one."""
        self._all = [Upstream.at(address) for address in addresses]
        self._turn = 0
        self._failed_at: dict[str, float] = {}

    def in_turn(self) -> list[Upstream]:
        """All servers in the order in which to try to connect; those that refused lately are the last."""
        start = self._turn
        self._turn = (start + 1) % len(self._all)
        order = self._all[start:] + self._all[:start]
        if self._failed_at:
            rested = time.monotonic() - _REST_SECONDS
            order.sort(key=lambda upstream: self._failed_at.get(upstream.address, rested) > rested)
        return order

    def refused(self, upstream: Upstream) -> None:
        """A server could not be connected to."""
        self._failed_at[upstream.address] = time.monotonic()

    def reached(self, upstream: Upstream) -> None:
        """A server was connected to."""
        if self._failed_at:
            self._failed_at.pop(upstream.address, None)
