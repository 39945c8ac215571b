"""What the proxy's tests share: upstreams of raw sockets, the proxy under a real server, raw clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unit.capture.driving import serving

from dspark_json.proxy.forwarder import Forwarder, Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 20.0


@dataclass
class RawUpstream:
    """A server of bytes: ``answer`` gets each connection with the head and body of its first request."""

    answer: Callable[[socket.socket, bytes], None]
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(LIMIT)
            while head := read_head(connection):
                self.heads.append(head)
                self.bodies.append(read_body(connection, head))
                self.answer(connection, head)
        self.ended.set()

    def close(self) -> None:
        self._listener.close()


def read_head(connection: socket.socket) -> bytes:
    """A message's head, up to its blank line; empty where the connection ends first."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        head += byte
    return head


def read_body(connection: socket.socket, head: bytes) -> bytes:
    """The body that a head announces, chunk framing taken off."""
    fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
    file = connection.makefile("rb", buffering=0)
    if fields.get(b"transfer-encoding") == b"chunked":
        body = b""
        while size := int(_line(file), 16):
            body += _exactly(file, size)
            _line(file)
        _line(file)
        return body
    return _exactly(file, int(fields.get(b"content-length", 0)))


def _line(file: Any) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += file.read(1) or b"\r\n"
    return line.strip()


def _exactly(file: Any, size: int) -> bytes:
    body = b""
    while len(body) < size:
        part = file.read(size - len(body))
        if not part:
            return body
        body += part
    return body


def always(raw: bytes) -> Callable[[socket.socket, bytes], None]:
    """Answer every request with these bytes."""
    return lambda connection, _: connection.sendall(raw)


@contextlib.contextmanager
def upstream(answer: Callable[[socket.socket, bytes], None]) -> Iterator[RawUpstream]:
    raw = RawUpstream(answer)
    try:
        yield raw
    finally:
        raw.close()


@contextlib.contextmanager
def proxied(
    *addresses: str,
    wrap: Callable[[Any], Any] = lambda app: app,
    patience: Patience | None = None,
    forwarded: bool = True,
) -> Iterator[int]:
    """The proxy for these upstreams on a port of its own; ``wrap`` puts something (the hook) around it."""
    with serving(wrap(Forwarder(addresses, patience, forwarded=forwarded)), default_headers=False) as port:
        yield port


def exchange(port: int, raw: bytes) -> bytes:
    """Send bytes, half-close nothing, and read until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
        connection.sendall(raw)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def request(method: str = "GET", target: str = "/x", *fields: str, body: bytes = b"") -> bytes:
    """A whole request after which the connection ends."""
    lines = [f"{method} {target} HTTP/1.1", "host: proxy.example", "connection: close", *fields]
    if body:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def fields_of(head: bytes) -> list[tuple[bytes, bytes]]:
    """A head's fields in order."""
    found = (line.partition(b": ") for line in head.split(b"\r\n")[1:] if line)
    return [(name.lower(), value) for name, _, value in found]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
