"""A fleet of simulated servers with the hook: one process, one port, and an address of this machine for each server.

127.1.x.y answers as a server with the hook on another machine does; 127.2.x.y takes the question and never answers.
``/fleet/counts`` at 127.0.0.1 tells what was asked since it was asked last.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import subprocess
import sys
import urllib.request
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS: Final = 3
LINE: Final = b'{"_dspark":{},"id":"x"}\n'
_PER_BLOCK: Final = 250


class Fleet:
    """A fleet that runs."""

    def __init__(self, port: int) -> None:
        self._port = port

    def live(self, count: int) -> list[str]:
        """The addresses of that many servers that answer."""
        return [self._address(1, i) for i in range(count)]

    def dead(self, count: int) -> list[str]:
        """The addresses of that many servers that never answer."""
        return [self._address(2, i) for i in range(count)]

    def counts(self) -> dict[str, Any]:
        """``requests`` by path, ``connections``, and ``hanging``: the most questions at once that got no answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/fleet/counts", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _address(self, block: int, i: int) -> str:
        return f"http://127.{block}.{i // _PER_BLOCK}.{i % _PER_BLOCK + 1}:{self._port}"


@contextlib.contextmanager
def fleet() -> Iterator[Fleet]:
    """Run a fleet in a process of its own."""
    with subprocess.Popen([sys.executable, Path(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Fleet(int(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.wait(30)


class _Counted:
    def __init__(self) -> None:
        self.hanging = 0
        self.clear()

    def clear(self) -> None:
        self.requests: Counter[str] = Counter()
        self.connections = 0
        self.most_hanging = self.hanging

    def document(self) -> dict[str, Any]:
        return {"requests": self.requests, "connections": self.connections, "hanging": self.most_hanging}


class _Server(asyncio.Protocol):
    def __init__(self, counted: _Counted) -> None:
        self._counted = counted
        self._rest = b""
        self._hangs = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._host = transport.get_extra_info("sockname")[0]
        self._counted.connections += not self._host.startswith("127.0.")

    def connection_lost(self, _: Exception | None) -> None:
        self._counted.hanging -= self._hangs

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while b"\r\n\r\n" in self._rest:
            head, _, self._rest = self._rest.partition(b"\r\n\r\n")
            self._answer(head.split(b" ")[1].decode())

    def _answer(self, target: str) -> None:
        if self._host.startswith("127.0."):
            self._send(json.dumps(self._counted.document()).encode())
            self._counted.clear()
            return
        path, _, query = target.partition("?")
        self._counted.requests[path.rsplit("/", 1)[1] if "/lanes/" in path else path] += 1
        if self._host.startswith("127.2."):
            self._hangs += 1
            self._counted.hanging += 1
            self._counted.most_hanging = max(self._counted.most_hanging, self._counted.hanging)
            return
        spool_id = "spool-" + self._host.replace(".", "-")
        if path == "/health/json-schema":
            document = {"json_output_hook_enabled": True, "spool_id": spool_id, "spool": "/on/another/machine"}
            self._send(json.dumps({**document, "schemas": []}).encode())
        elif path == "/dspark/v1/offsets":
            extent = {"first": 0, "next": RECORDS, "bytes": RECORDS * len(LINE)}
            self._send(json.dumps({"v": 1, "spool_id": spool_id, "lanes": {"0000": extent}}).encode())
        else:
            asked = dict(one.split("=") for one in query.split("&"))
            self._send(*_index(int(asked["from"]), min(int(asked["to"]), RECORDS)))

    def _send(self, body: bytes, following: int | None = None) -> None:
        more = "" if following is None else f"x-dspark-next: {following}\r\n"
        self._transport.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body)


def _index(begin: int, stop: int) -> tuple[bytes, int]:
    crc = zlib.crc32(LINE)
    entries = [
        struct.pack("<QQII", (i + 1 - begin) * len(LINE), 1_700_000_000_000_000, crc, 0) for i in range(begin, stop)
    ]
    return b"".join(entries), stop


async def _main() -> None:
    loop = asyncio.get_running_loop()
    counted = _Counted()
    server = await loop.create_server(lambda: _Server(counted), "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_main())
