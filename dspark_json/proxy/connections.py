"""Connections to upstreams, kept and used again.

httpx's own pool looks at each of its connections for each request, which takes milliseconds where there are a hundred.
So each connection has a pool of its own here, and an upstream's idle ones are a stack: the one used last is used next.
"""

from __future__ import annotations

import functools
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import httpx

if TYPE_CHECKING:
    from dspark_json.proxy.upstreams import Upstream

# What was idle for longer is not used again: uvicorn, under vLLM and SGLang, closes connections after five seconds.
_REUSE_SECONDS: Final = 4.0
_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=1, keepalive_expiry=_REUSE_SECONDS)


class Connections:
    """The idle connections to all upstreams. Not for use by several threads."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[tuple[float, httpx.AsyncHTTPTransport]]] = {}

    def take(self, upstream: Upstream) -> httpx.AsyncHTTPTransport:
        """A transport for one request: with the connection used last, or for a new one."""
        idle = self._idle.get(upstream.address)
        if idle:
            return idle.pop()[1]
        # The transport, not a client: no cookies are kept, no redirects followed, no header added, nothing decoded.
        return httpx.AsyncHTTPTransport(verify=_context(is_tls=upstream.url.scheme == "https"), limits=_LIMITS)

    async def give_back(self, upstream: Upstream, transport: httpx.AsyncHTTPTransport) -> None:
        """Keep a transport whose answer was read to its end, and close those that nobody needed for a while."""
        now = time.monotonic()
        idle = self._idle.setdefault(upstream.address, deque())
        idle.append((now, transport))
        while idle and idle[0][0] < now - _REUSE_SECONDS:
            await idle.popleft()[1].aclose()

    async def close(self) -> None:
        """Close all."""
        for idle in self._idle.values():
            while idle:
                await idle.pop()[1].aclose()


@functools.cache
def _context(*, is_tls: bool) -> ssl.SSLContext:
    """Certifi's certificates, or those of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``. Made once: it takes long."""
    return httpx.create_ssl_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
