"""Tells a URL of alerts, in a thread of its own: nothing waits for whoever listens there."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import httpx

from dspark_json.errors import InvalidOptionError
from dspark_json.monitor.web_address import shown_place

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
        """Raises ``InvalidOptionError`` for what is no ``http`` or ``https`` address, or where nothing can be sent."""
        self._url = url
        self._place = shown_place(url, "--webhook")
        self._waits_s = waits_s
        try:
            self._client = httpx.Client(timeout=_TIMEOUT_S, follow_redirects=False)
        except Exception as error:  # noqa: BLE001 - of a proxy's kind, of certificates, of missing packages
            raise InvalidOptionError(
                f"alerts can't be told to {self._place}: the environment's proxy or certificates can't be used "
                f"({type(error).__name__})",
                remedy="Check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY (socks5:// needs the package socksio), "
                "SSL_CERT_FILE and SSL_CERT_DIR.",
            ) from None
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
        """Wait until all is told or given up, no longer than ``seconds``; what is left then is logged."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)
        left = self._waiting.unfinished_tasks
        if left:
            _log.warning("the webhook at %s was not told of %d alerts within %g s", self._place, left, seconds)

    def _work(self) -> None:
        while True:
            message = self._waiting.get()
            try:
                self._post(message)
            finally:
                self._waiting.task_done()

    def _post(self, message: Mapping[str, Any]) -> None:
        problem = ""
        for wait_s in (*self._waits_s, None):
            try:
                answer = self._client.post(self._url, json=dict(message))
            except Exception as error:  # noqa: BLE001 - whatever goes wrong with one message, the next has its tries
                problem = type(error).__name__
            else:
                if answer.status_code < _FIRST_ERROR_STATUS:
                    return
                problem = f"status {answer.status_code}"
            if wait_s is not None:
                time.sleep(wait_s)
        tries = len(self._waits_s) + 1
        _log.warning("the webhook at %s can't be told (%s), tried %d times", self._place, problem, tries)
