"""Header fields on their way through the proxy: which go on, which end here, which are added (RFC 9110 §7.6).

Names are lower-cased, as ASGI wants them; order, duplicates and values stay as they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Fields = list[tuple[bytes, bytes]]

# Of one connection alone (RFC 9110 §7.6.1 and §11.7), whether Connection names them or not.
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Connection must not name these (RFC 9110 §7.6.1); who does it all the same could change what a message means.
_NEVER_NAMED: Final = frozenset({b"authorization", b"content-encoding", b"content-length", b"content-type", b"host"})
# What the proxy says itself, and `100-continue`, which was answered where the client is.
_REPLACED: Final = frozenset({b"host", b"expect"})
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Hop:
    """What a request's fields tell of this hop.

    ``authority``: the upstream's, for Host. ``client``: the peer's address, ``scheme``: how it asked. ``via``: this
    proxy's name. ``forwarded``: whether the upstream is told client, scheme and Host. ``identity``: whether the answer
    must not be compressed.
    """

    authority: bytes
    client: str | None
    scheme: str
    via: bytes
    forwarded: bool
    identity: bool


def request_fields(given: Iterable[tuple[bytes, bytes]], hop: Hop) -> Fields:
    """The fields for the upstream, of those that the client sent."""
    fields = [(name.lower(), value) for name, value in given]
    ended = _ended(fields)
    is_chunked = any(name == b"transfer-encoding" for name, _ in fields)
    if is_chunked:  # a length beside it says nothing (RFC 9112 §6.3)
        ended |= {b"content-length"}
    if hop.identity:
        ended |= {b"accept-encoding"}
    kept = [(name, value) for name, value in fields if name not in ended and name not in _REPLACED]
    if hop.forwarded:
        kept = _forwarded(kept, fields, hop)
    if is_chunked:
        kept.append((b"transfer-encoding", b"chunked"))
    if hop.identity:
        kept.append((b"accept-encoding", b"identity"))
    return [(b"host", hop.authority), *kept, (b"via", b"1.1 " + hop.via)]


def response_fields(given: Iterable[tuple[bytes, bytes]], status: int) -> Fields:
    """The fields for the client, of those that the upstream sent."""
    fields = [(name.lower(), value) for name, value in given]
    ended = _ended(fields)
    if status in _BODILESS or any(name == b"transfer-encoding" for name, _ in fields):
        ended |= {b"content-length"}
    return [(name, value) for name, value in fields if name not in ended]


def passed_through(fields: Iterable[tuple[bytes, bytes]], via: bytes) -> bool:
    """Whether a request was here before: a proxy of this name is among those it came through."""
    for name, value in fields:
        if name.lower() == b"via" and any(via in hop.split() for hop in value.split(b",")):
            return True
    return False


def wants_websocket(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for the WebSocket protocol (RFC 6455 §4.1)."""
    return any(name.lower() == b"upgrade" and b"websocket" in value.lower() for name, value in fields)


def _ended(fields: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The names of the fields that end here: those of one hop, and those that Connection names."""
    named = {option.strip().lower() for name, value in fields if name == b"connection" for option in value.split(b",")}
    return _HOP_BY_HOP | (named - _NEVER_NAMED)


def _forwarded(kept: Fields, fields: Fields, hop: Hop) -> Fields:
    """The peer's address behind those of the proxies before; scheme and Host unless one of them told them already."""
    told = [value for name, value in kept if name == b"x-forwarded-for"]
    if hop.client is not None:
        told.append(hop.client.encode("ascii", "replace"))
    kept = [(name, value) for name, value in kept if name != b"x-forwarded-for"]
    if told:
        kept.append((b"x-forwarded-for", b", ".join(told)))
    names = {name for name, _ in kept}
    host = next((value for name, value in fields if name == b"host"), None)
    if b"x-forwarded-proto" not in names:
        kept.append((b"x-forwarded-proto", hop.scheme.encode("ascii", "replace")))
    if b"x-forwarded-host" not in names and host is not None:
        kept.append((b"x-forwarded-host", host))
    return kept
