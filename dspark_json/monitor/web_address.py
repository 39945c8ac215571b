"""Addresses of other parties that may hold a secret: what may be shown of them."""

from __future__ import annotations

from urllib.parse import urlsplit

from dspark_json.errors import InvalidOptionError

__all__ = ["shown_place"]


def shown_place(url: str, option: str) -> str:
    """The part of a URL that may be shown: scheme, host and port.

    Raises ``InvalidOptionError``, which names the option and not its value, for what is no ``http`` or ``https``
    address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidOptionError(
            f"the value of {option} (not shown) is no address",
            remedy="Give one that begins with http:// or https:// and names a host.",
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")
