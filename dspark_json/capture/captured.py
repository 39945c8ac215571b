"""What one covered request left behind, before anybody looked into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What is larger is not parsed in the serving process (DESIGN §2 rule 5).
PARSED_BYTES: Final = 256 << 10
# Why an answer's bytes are not here, as error codes: too many of them, the server itself sent them from a file, or they
# are compressed.
TOO_LARGE: Final = "record_too_large"
ASSEMBLY_FULL: Final = "assembly_full"
NOT_SEEN: Final = "body_not_seen"
ENCODED: Final = "body_encoded"

_ENCODING: Final = b"content-encoding"


@dataclass(slots=True)
class Captured:
    """One request and its answer as the ASGI messages brought them.

    ``request`` and ``body`` are the messages' bodies in order; ``request`` is None where it was too large to keep, and
    ``body`` holds at most the first message where ``missing`` (an error code) tells why the answer was not kept.
    ``size`` is the number of bytes the answer had. ``status`` is None while no response began. ``ended``: the client
    has the whole answer. ``raised`` is the class name of an exception that the application ended with. Times:
    ``received_at`` in µs since the epoch, the others in milliseconds since then. ``asks_for_echo``: a request that was
    not kept has a member ``echo`` that is true, at any depth. ``path`` is None where nobody knows it, ``request_id`` an
    id that no header tells.
    """

    path: str | None
    request_headers: Sequence[tuple[bytes, bytes]]
    received_at: int
    request: list[bytes] | None = field(default_factory=list)
    request_size: int = 0
    status: int | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: list[bytes] = field(default_factory=list)
    size: int = 0
    missing: str | None = None
    first_byte_ms: float | None = None
    duration_ms: float | None = None
    ended: bool = False
    raised: str | None = None
    asks_for_echo: bool = False
    request_id: str | None = None


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The first header of this (lower case) name."""
    value = _first(headers, name)
    return None if value is None else value.decode("latin-1")


def is_encoded(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the body is compressed or otherwise encoded, so that its bytes are not its text."""
    for key, value in headers:
        if len(key) == len(_ENCODING) and key.lower() == _ENCODING and value.strip().lower() not in (b"", b"identity"):
            return True
    return False


def is_event_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether these response headers announce server-sent events."""
    value = _first(headers, b"content-type")
    return value is not None and value.strip().lower().startswith(b"text/event-stream")


def _first(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    # Names of other lengths are passed over at once: this is done several times for every answer.
    size = len(name)
    for key, value in headers:
        if len(key) == size and key.lower() == name:
            return value
    return None
