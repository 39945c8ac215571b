"""``Forwarder``: an ASGI application that passes requests on to an upstream and its answers back, byte for byte."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from dspark_json.capture.endpoints import COVERED
from dspark_json.capture.lifespan import answer_lifespan
from dspark_json.capture.notices import Notice
from dspark_json.printable import printable
from dspark_json.proxy.connections import Connections
from dspark_json.proxy.failures import AnswerBroken, ClientStalled, Failure, send_failure
from dspark_json.proxy.fields import Hop, passed_through, request_fields, response_fields, wants_websocket
from dspark_json.proxy.upstreams import Upstreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping, Sequence

    from dspark_json.capture.exchange import Receive, Send
    from dspark_json.proxy.upstreams import Upstream

    Scope = MutableMapping[str, Any]

_SHOWN: Final = 300
_STATUSES: Final = range(200, 600)
# At the end, for requests that the server has cancelled: the hook is to have their records before it closes.
_END_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: for a connection; and for the next byte of either side."""

    connect: float = 5.0
    idle: float = 600.0


class _ClientLeft(Exception):  # noqa: N818 - never leaves this module
    """The client is gone in the middle of its request."""


class Forwarder:
    """Passes requests on to upstreams in turn; the bytes of bodies are never looked into, decoded or gathered.

    An upstream that can't be connected to is left out and the next one tried; once a request's first byte went out it
    is never sent again. What goes wrong before an answer began is a named error (``Failure``); after that the answer is
    broken off, so that nobody takes half of it for all. A client that leaves ends its request at the upstream.
    """

    def __init__(self, addresses: Sequence[str], patience: Patience | None = None, *, forwarded: bool = True) -> None:
        """``addresses`` as ``Upstream.at`` takes them; ``forwarded``: whether upstreams are told the client's address.

        No connection is made before the first request, so that a server may fork after it built this.
        """
        self._upstreams = Upstreams(addresses)
        self._patience = patience or Patience()
        self._forwarded = forwarded
        self._via = f"dspark-json-{secrets.token_hex(4)}".encode()
        self._timeout = httpx.Timeout(
            connect=self._patience.connect, read=self._patience.idle, write=self._patience.idle, pool=None
        ).as_dict()
        self._connections = Connections()
        self._under_way = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._trouble = Notice(logging.WARNING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "http":
            self._under_way += 1
            self._at_rest.clear()
            try:
                await self._http(scope, receive, send)
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self._at_rest.set()
        elif scope["type"] == "lifespan":
            await answer_lifespan(receive, send, self._close)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003, "reason": "websockets are not forwarded"})

    async def _close(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._at_rest.wait(), _END_SECONDS)
        await self._connections.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        passage = _Passage(receive, send, self._patience.idle)
        try:
            target = _target(scope)
            self._refuse(scope)
            async with passage, self._asked(scope, target, passage) as response:
                await self._pass_on(response, passage)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Failure as failure:
            self._trouble.say(f"{scope['method']} {printable(scope['path'], _SHOWN)}: {failure.status} {failure.code}")
            await send_failure(send, failure)
        except _ClientLeft:
            return

    def _refuse(self, scope: Scope) -> None:
        """Raise ``Failure`` for what is not passed on."""
        if wants_websocket(scope["headers"]):
            raise Failure(501, "websocket_not_forwarded", "websockets are not forwarded")
        if passed_through(scope["headers"], self._via):
            raise Failure(508, "loop_detected", "this request was here before: an upstream of the proxy is the proxy")

    @asynccontextmanager
    async def _asked(self, scope: Scope, target: bytes, passage: _Passage) -> AsyncIterator[httpx.Response]:
        """The answer of the first upstream that can be connected to, as far as its head; to be read to its end."""
        problem: httpx.TransportError | None = None
        for upstream in self._upstreams.in_turn():
            request = self._request(scope, target, upstream, passage)
            transport = self._connections.take(upstream)
            is_whole = False
            try:
                response = await self._head(transport, request, upstream)
                self._upstreams.reached(upstream)
                yield response
                await response.aclose()
                is_whole = True
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                self._upstreams.refused(upstream)
                self._tell(upstream, error)
                problem = error
            else:
                return
            finally:
                if is_whole:
                    await self._connections.give_back(upstream, transport)
                else:
                    await transport.aclose()
        if isinstance(problem, httpx.ConnectTimeout):
            raise Failure(
                504, "upstream_timeout", f"the upstream can't be connected to within {self._patience.connect:g} s"
            )
        raise Failure(502, "upstream_unreachable", "the upstream can't be connected to")

    async def _head(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, upstream: Upstream
    ) -> httpx.Response:
        """The head of an answer; ``Failure`` without one, but what keeps from connecting is raised as it is."""
        try:
            response = await transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.TimeoutException as error:
            self._tell(upstream, error)
            raise Failure(504, "upstream_timeout", f"the upstream was silent for {self._patience.idle:g} s") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            self._tell(upstream, error)
            raise Failure(502, "upstream_broken", "the upstream ended without an answer") from error
        if response.status_code not in _STATUSES:
            raise Failure(502, "upstream_broken", f"the upstream's status {response.status_code} is none")
        return response

    def _request(self, scope: Scope, target: bytes, upstream: Upstream, passage: _Passage) -> httpx.Request:
        client = scope.get("client")
        hop = Hop(
            upstream.authority,
            client[0] if client else None,
            scope.get("scheme", "http"),
            self._via,
            self._forwarded,
            # The hook reads answers as they are sent: a compressed one could not be kept.
            identity=scope["method"] == "POST" and scope["path"] in COVERED,
        )
        return httpx.Request(
            scope["method"],
            upstream.url,
            headers=request_fields(scope["headers"], hop),
            stream=passage,
            extensions={"timeout": self._timeout, "target": target if target == b"*" else upstream.prefix + target},
        )

    async def _pass_on(self, response: httpx.Response, passage: _Passage) -> None:
        """Send all of an answer but the word that it is over."""
        status = response.status_code
        await passage.send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": response_fields(response.headers.raw, status),
            }
        )
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            async for piece in response.stream:
                await passage.send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.TransportError as error:
            self._trouble.say(f"an answer was broken off in the middle: {_words(error)}")
            raise AnswerBroken(_words(error)) from None

    def _tell(self, upstream: Upstream, error: Exception) -> None:
        self._trouble.say(f"upstream {upstream.address}: {_words(error)}")


class _Passage(httpx.AsyncByteStream):
    """The client's side of one request: the stream of its body, the way back, and a watch for its leaving.

    While it is entered, a client that leaves cancels what is done for it, which ends quietly. A client that takes
    nothing for ``idle`` seconds is one that left.
    """

    __slots__ = ("_idle", "_is_read", "_left", "_over", "_receive", "_send", "_task", "_watch")

    def __init__(self, receive: Receive, send: Send, idle: float) -> None:
        self._receive = receive
        self._send = send
        self._idle = idle
        self._is_read = asyncio.Event()
        self._left = False
        self._task: asyncio.Task[Any] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._over = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._watch = asyncio.create_task(self._until_left())
        self._watch.add_done_callback(self._leave)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._over = True
        assert self._watch is not None
        assert self._task is not None
        self._watch.cancel()
        if self._left and isinstance(error, asyncio.CancelledError) and not self._task.uncancel():
            raise _ClientLeft

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            body = message.get("body")
            if body:
                yield body
            if not message.get("more_body", False):
                self._is_read.set()
                return

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send to the client, which sets the pace."""
        try:
            async with asyncio.timeout(self._idle):
                await self._send(message)
        except TimeoutError:
            raise ClientStalled(f"the client took nothing for {self._idle:g} s") from None

    async def _until_left(self) -> None:
        await self._is_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _leave(self, watch: asyncio.Task[None]) -> None:
        if watch.cancelled() or self._over:
            return
        if watch.exception() is None:
            self._left = True
            assert self._task is not None
            self._task.cancel()


def _target(scope: Scope) -> bytes:
    """The request's target as it came (RFC 9112 §3.2); ``Failure`` for one that is not for a server behind a proxy."""
    if scope["method"] == "CONNECT":
        raise Failure(405, "method_not_forwarded", "CONNECT is not forwarded")
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    if not path.startswith(b"/") and not (path == b"*" and scope["method"] == "OPTIONS"):
        raise Failure(400, "bad_target", "the request's target is not a path")
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


def _words(error: Exception) -> str:
    """An exception in words that fit a log line."""
    return printable(f"{type(error).__name__} {error}".strip(), _SHOWN)
