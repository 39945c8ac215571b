"""A server's own page of metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["metrics_page"]

_MOST_BYTES: Final = 16 << 20


def metrics_page(url: str, timeout_s: float, headers: Mapping[str, str] | None = None) -> str | None:
    """The Prometheus text at ``url``; None where there is none, a larger one, or one that takes longer."""
    deadline = time.monotonic() + timeout_s
    asked = {**(headers or {}), "accept-encoding": "identity"}  # a small page could unfold to any size
    page = bytearray()
    try:
        with (
            httpx.Client(timeout=timeout_s, trust_env=False, follow_redirects=False, headers=asked) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != httpx.codes.OK or "content-encoding" in answer.headers:
                return None
            for part in answer.iter_raw():
                page += part
                if len(page) > _MOST_BYTES or time.monotonic() > deadline:
                    return None
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return page.decode(errors="replace")
