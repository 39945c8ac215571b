"""Tells a URL of alerts, in a thread of its own: nothing waits for whoever listens there."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Webhook"]

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 5.0
_WAITS_S: Final = (1.0, 4.0)
_MOST_WAITING: Final = 100
_FIRST_ERROR_STATUS: Final = 300


class Webhook:
    """Posts JSON objects to a URL, in order, each tried three times; what can't be told is logged.

    The URL's path and query are shown nowhere: they often hold a key.
    """

    def __init__(self, url: str, waits_s: Sequence[float] = _WAITS_S) -> None:
        """Raises ``InvalidOptionError`` for what is no ``http`` or ``https`` address."""
        self._url = url
        self._place = _place(url)
        self._waits_s = waits_s
        self._waiting: queue.Queue[Mapping[str, Any]] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="dspark-json-webhook", daemon=True)
        self._thread.start()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Hand over a message; returns at once."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            _log.warning("the webhook at %s is too slow: an alert is not told there", self._place)

    def wait(self, seconds: float) -> None:
        """Wait until all is told or given up, no longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)

    def _work(self) -> None:
        with httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False) as client:
            while True:
                message = self._waiting.get()
                try:
                    self._post(client, message)
                finally:
                    self._waiting.task_done()

    def _post(self, client: httpx.Client, message: Mapping[str, Any]) -> None:
        problem = ""
        for wait_s in (*self._waits_s, None):
            try:
                answer = client.post(self._url, json=dict(message))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = type(error).__name__
            else:
                if answer.status_code < _FIRST_ERROR_STATUS:
                    return
                problem = f"status {answer.status_code}"
            if wait_s is not None:
                time.sleep(wait_s)
        tries = len(self._waits_s) + 1
        _log.warning("the webhook at %s can't be told (%s), tried %d times", self._place, problem, tries)


def _place(url: str) -> str:
    """The part of a URL that may be shown."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidOptionError(
            "the value of --webhook (not shown) is no address",
            remedy="Give one that begins with http:// or https:// and names a host.",
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")
