"""What a server said, and the hook's answers in it: nothing of it is trusted before it was checked here."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.printable import printable
from dspark_json.spool.access import LaneExtent, SpoolOffsets
from dspark_json.spool.layout import is_lane_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HttpAnswer",
    "ServerIdentity",
    "header_number",
    "number",
    "server_identity",
    "shown",
    "spool_offsets",
    "transport_problem",
]

_HIGHEST: Final = 2**63 - 1
_SHOWN: Final = 300  # characters of a server's text in an error
_SPOOL_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server says about itself: its spool, and (only to who has the key) where the folder is."""

    spool_id: str
    folder: str | None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that came whole; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """Its content type for people, ``none`` without one."""
        return shown(self.headers.get("content-type", "none"))

    @property
    def document(self) -> dict[str, Any] | None:
        """The body as a JSON object, None if it is none."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None

    @property
    def error(self) -> dict[str, Any]:
        """The members of the hook's error object, empty if the body is none."""
        error = (self.document or {}).get("error")
        return error if isinstance(error, dict) else {}


def transport_problem(error: Exception) -> str:
    """Why a question got no answer, for people."""
    text = str(error) or type(error).__name__
    return "the server speaks http, not https" if "WRONG_VERSION_NUMBER" in text else shown(text)


def shown(value: object) -> str:
    """Something that a server said, for an error's message."""
    return printable(str(value), _SHOWN)


def number(value: object) -> int | None:
    """A whole number of a server's JSON: 0 or more, in 63 bits; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST else None


def header_number(text: str | None) -> int | None:
    """A whole number in a header, as ``number``."""
    return number(int(text)) if text is not None and re.fullmatch("[0-9]{1,19}", text) else None


def server_identity(document: Mapping[str, Any]) -> ServerIdentity:
    """The identity in the answer of ``/health/json-schema``; ``ValueError`` says what is wrong with it."""
    folder = document.get("spool")
    if folder is not None and not _is_folder(folder):
        raise ValueError("spool is not the path of a folder")
    return ServerIdentity(_spool_id(document), folder)


def spool_offsets(document: Mapping[str, Any]) -> SpoolOffsets:
    """The extents in the answer of ``/dspark/v1/offsets``; ``ValueError`` says what is wrong with it."""
    lanes = document.get("lanes")
    entries = lanes.items() if isinstance(lanes, dict) else None
    if entries is None:
        raise ValueError("lanes is not an object")
    found = {}
    for lane, extent in entries:
        members = extent if isinstance(extent, dict) else {}
        first, following, size = (number(members.get(name)) for name in ("first", "next", "bytes"))
        if not is_lane_name(lane) or first is None or following is None or size is None or first > following:
            raise ValueError(f'"{shown(lane)}" is no lane with the numbers of its records')
        found[lane] = LaneExtent(first, following, size)
    return SpoolOffsets(_spool_id(document), found)


def _spool_id(document: Mapping[str, Any]) -> str:
    spool_id = document.get("spool_id")
    if not isinstance(spool_id, str) or _SPOOL_ID.fullmatch(spool_id) is None:
        raise ValueError("spool_id is not the id of a spool")
    return spool_id


def _is_folder(path: object) -> bool:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        return False
    try:
        return len(os.fsencode(path)) <= 4096
    except UnicodeEncodeError:
        return False
