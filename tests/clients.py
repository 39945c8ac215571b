"""Clients of a server that know what they have received."""

from __future__ import annotations

import json
import threading
import time

import httpx


class Clients:
    """Clients that ask without a pause, half of them streaming, and note each answer that they received completely."""

    def __init__(self, address: str, threads: int = 4) -> None:
        self._address = address
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.complete: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(n % 2 == 0,)) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, stream: bool) -> None:
        request = {"model": "tiny", "messages": [{"role": "user", "content": "one order"}], "stream": stream}
        with httpx.Client(timeout=20, trust_env=False) as client:
            while not self._stop.is_set():
                try:
                    answer = self._stream(client, request) if stream else self._whole(client, request)
                except httpx.HTTPError:
                    time.sleep(0.05)  # the server was killed; what was not received completely does not count
                    continue
                if answer is not None:
                    with self._lock:
                        self.complete.append(answer)
                time.sleep(0.1)

    def _whole(self, client: httpx.Client, request: dict[str, object]) -> str | None:
        response = client.post(f"{self._address}/v1/chat/completions", json=request)
        return str(response.json()["id"]) if response.status_code == 200 else None

    def _stream(self, client: httpx.Client, request: dict[str, object]) -> str | None:
        answer = None
        with client.stream("POST", f"{self._address}/v1/chat/completions", json=request) as response:
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    return answer
                if line.startswith("data: "):
                    answer = str(json.loads(line[6:])["id"])
        return None
