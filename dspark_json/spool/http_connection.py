"""GET questions to one HTTP server, by the standard library's client.

A planner asks each of many servers at each trigger, and what a question costs is nearly all client code: this one takes
a third of the time of httpx. Redirects are not followed and proxies of the environment are not used.
"""

from __future__ import annotations

import functools
import http.client
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

from dspark_json.spool.http_answers import HttpAnswer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

__all__ = ["BAD_ADDRESS", "FAILURES", "CutError", "HttpConnection", "is_redirect"]

_PART: Final = 1 << 20
_SAFE: Final = "/%:@!$&'()*+,;=~"  # in a path, beside letters and digits


class CutError(Exception):
    """The answer did not come whole; its text says how."""


# What a question may fail with: nobody listens, the name is unknown, the time is over, what came is no HTTP or not all.
FAILURES: Final = (OSError, http.client.HTTPException, CutError)
BAD_ADDRESS: Final = (http.client.InvalidURL, UnicodeError)


class HttpConnection:
    """A connection to ``address``, made when it is needed and kept; not for use by several threads at once."""

    def __init__(self, address: str, headers: Mapping[str, str], timeout_s: float) -> None:
        """``address`` is ``scheme://host[:port][/prefix]``; ``timeout_s`` bounds each wait for the server."""
        self._address = urlsplit(address)
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection; another question opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, query: Mapping[str, int], deadline_s: float | None = None) -> HttpAnswer:
        """Ask; ``deadline_s`` bounds the whole answer. Raises one of ``FAILURES``, one of ``BAD_ADDRESS``."""
        begun = time.monotonic()
        target = quote(self._address.path, safe=_SAFE) + path + ("?" + urlencode(query) if query else "")
        try:
            with self._asked(target) as response:
                body = _body(response, deadline_s, begun)
                return HttpAnswer(response.status, _headers(response), body)
        except BaseException:
            self.close()  # nothing of this answer may be taken for the next one's
            raise

    def _asked(self, target: str) -> http.client.HTTPResponse:
        if self._connection is not None and self._connection.sock is not None:
            try:
                return self._ask(self._connection, target)
            except (BrokenPipeError, ConnectionResetError):  # closed by the server as nothing was under way
                self.close()
        if self._connection is None:
            self._connection = self._new()
        return self._ask(self._connection, target)

    def _ask(self, connection: http.client.HTTPConnection, target: str) -> http.client.HTTPResponse:
        connection.request("GET", target, headers=self._headers)
        return connection.getresponse()

    def _new(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=_certificates())
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def is_redirect(status: int) -> bool:
    """Whether a status sends the client to another address."""
    return status in {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }


def _body(response: http.client.HTTPResponse, deadline_s: float | None, begun: float) -> bytes:
    parts: list[bytes] = []
    while part := response.read1(_PART):
        parts.append(part)
        if deadline_s is not None and time.monotonic() > begun + deadline_s:
            raise CutError(f"the answer was not complete after {deadline_s:g} s")
    if response.length:
        raise CutError(f"the connection was closed {response.length} bytes before the end of the answer")
    return b"".join(parts)


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        lowered = name.lower()
        headers[lowered] = f"{headers[lowered]}, {value}" if lowered in headers else value
    return headers


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The certificates to trust: certifi's, or ``SSL_CERT_FILE``'s and ``SSL_CERT_DIR``'s. Made once: it takes long."""
    import httpx

    return httpx.create_ssl_context()
