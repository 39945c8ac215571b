"""The routes that the hook answers itself: extents, records, index, health and metrics (DESIGN §2).

Beside the statuses of DESIGN: 429 with ``Retry-After`` where too many readers are served already.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar
from urllib.parse import parse_qsl

import orjson

import dspark_json
from dspark_json.capture.captured import header
from dspark_json.capture.jsontext import dumps
from dspark_json.capture.metrics import metrics_text
from dspark_json.capture.notices import LOGGER, Notice
from dspark_json.errors import (
    BeyondEndError,
    DSparkJsonError,
    EndpointKeyError,
    InvalidOptionError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.spool.data_range import PIECE_BYTES, DataRange
from dspark_json.spool.layout import FORMAT, is_lane_name, read_identity
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.schema_uses import documents_with_uses
from dspark_json.spool.schemas import SchemaStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from pathlib import Path

    from dspark_json.capture.exchange import Send
    from dspark_json.capture.settings import HookSettings
    from dspark_json.spool.schema_uses import SchemaUse

    Scope = MutableMapping[str, Any]

T = TypeVar("T")

OFFSET_FORMAT: Final = 1
_HEALTH: Final = "/health/json-schema"
_METRICS: Final = "/dspark/metrics"
_PREFIX: Final = "/dspark/v1/"
_OFFSETS: Final = "/dspark/v1/offsets"
_LANE_ROUTE: Final = re.compile(r"/dspark/v1/spools/([^/]+)/lanes/([^/]+)/(records|index)")
_THREADS: Final = 2
_DEFAULT_BYTES: Final = 8 << 20
_MOST_BYTES: Final = 64 << 20
_MOST_ENTRIES: Final = 65_536
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_LONGEST_QUERY: Final = 1024
_SHOWN: Final = 100  # characters of a path or method in an answer
_LONGEST_TEXT: Final = 500
# Answers under way at once, for each process: each holds a piece of 256 KiB at most, or a whole answer of a few MiB.
_MOST_READERS: Final = 64
_MOST_VISITORS: Final = 8
_RETRY_SECONDS: Final = 1
# A reader that takes nothing for so long is let go.
_STALL_SECONDS: Final = 60.0

_JSON: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class _Answer:
    """An HTTP answer; what of the body is in a file is read piece by piece, off the event loop."""

    status: int
    body: bytes | DataRange
    headers: tuple[tuple[bytes, bytes], ...] = (_JSON,)


class SpoolSource(Protocol):
    """Whose spool the routes tell of: the hook's own, or a folder that a side-car serves."""

    @property
    def folder(self) -> Path | None:
        """The spool's folder; None while none is known."""

    def counters(self) -> dict[str, int]:
        """The sum of each counter over all lanes."""

    def schema_uses(self) -> Mapping[str, SchemaUse]:
        """The uses of schemas over all lanes."""

    def note_exception(self) -> None:
        """Count and tell an exception that is being handled."""


class _Gate:
    """Lets so many in at once; ``_Refusal`` (429) for one more."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __enter__(self) -> Self:
        if not self._left:
            raise _Refusal(429, "DSPARK_JSON_BUSY", "too many readers at once; ask again in a moment")
        self._left -= 1
        return self

    def __exit__(self, *_: object) -> None:
        self._left += 1


class _Refusal(Exception):  # noqa: N818 - never leaves this module
    """An answer other than 200: its status, code, message and further members of ``error``.

    Texts come from paths, which may be long and hold lone surrogates: they are cut, and those become question marks, as
    JSON in UTF-8 has none.
    """

    def __init__(self, status: int, code: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.status = status
        members = {"code": code, "message": message, **details}
        self.error = {
            name: value[:_LONGEST_TEXT].encode("utf-8", "replace").decode() if isinstance(value, str) else value
            for name, value in members.items()
        }


@dataclass(frozen=True, slots=True)
class _Range:
    """The query of a lane's route."""

    start: int
    stop: int
    max_bytes: int


@dataclass(slots=True)
class ControlRoutes:
    """Answers GET on the control routes; files are read in threads of its own.

    ``is_side_car``: not the hook answers, but ``dspark-json serve``; texts and the health say so.
    """

    settings: HookSettings
    source: SpoolSource
    is_side_car: bool = False
    _readers: _Gate = field(default_factory=lambda: _Gate(_MOST_READERS), init=False, repr=False)
    _visitors: _Gate = field(default_factory=lambda: _Gate(_MOST_VISITORS), init=False, repr=False)
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _envelope: list[dict[str, str]] | None = field(default=None, init=False)
    _cut_answers: Notice = field(default_factory=Notice, init=False, repr=False)

    def owns(self, path: str) -> bool:
        """Whether the hook answers for this path (all of ``/dspark/v1/`` is its own)."""
        return path.startswith(_PREFIX) or path in (_HEALTH, _METRICS)

    @property
    def _answerer(self) -> str:
        return "dspark-json serve" if self.is_side_car else "the hook"

    def close(self) -> None:
        """Let the threads go."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def answer(self, path: str, scope: Scope, send: Send) -> None:
        """Answer a request for one of the routes."""
        with ExitStack() as held:
            try:
                gate, work = self._admitted(path, scope)
                held.enter_context(gate)
                answer = await self._in_thread(work)
            except _Refusal as refusal:
                answer = _refused(refusal)
            except Exception as problem:  # noqa: BLE001 - a named answer, and the rest in our log
                self.source.note_exception()
                message = f"{self._answerer} failed ({type(problem).__name__}); its log says more"
                answer = _Answer(500, orjson.dumps({"error": {"code": DSparkJsonError.code, "message": message}}))
            await self._send(answer, send)

    def _admitted(self, path: str, scope: Scope) -> tuple[_Gate, Callable[[], _Answer]]:
        """What is to be done for a request, and the gate before it; ``_Refusal`` where it may not have it."""
        if scope["method"] != "GET":
            raise _Refusal(405, "DSPARK_JSON_METHOD", f"{scope['method'][:_SHOWN]} is not allowed here, only GET is")
        if path == _METRICS:
            return self._visitors, self._metrics
        given = _bearer(scope)
        if path == _HEALTH:
            key = self.settings.api_key
            whole = key is not None and given is not None
            if whole:
                self._check(given)
            return self._readers if whole else self._visitors, lambda: self._health(whole=whole)
        self._check(given)
        if path == _OFFSETS:
            return self._readers, self._offsets
        match = _LANE_ROUTE.fullmatch(path)
        if match is None:
            raise _Refusal(404, "DSPARK_JSON_ROUTE", f"there is no route {path[:_SHOWN]}")
        spool_id, lane, kind = match.groups()
        asked = _range(scope["query_string"])
        read = self._records if kind == "records" else self._index
        return self._readers, lambda: read(self._reader(spool_id), lane, asked)

    def _check(self, given: str | None) -> None:
        """Let only those pass who have the hook's key."""
        key = self.settings.api_key
        if key is None:
            raise _Refusal(403, EndpointKeyError.code, "no DSPARK_API_KEY is set, so records are not given over HTTP")
        if given is None or not hmac.compare_digest(given.encode("latin-1"), key.encode()):
            problem = "the key is missing" if given is None else "the key is wrong"
            whose = f"the key of {self._answerer}" if self.is_side_car else "the hook's key"
            raise _Refusal(401, EndpointKeyError.code, f"{problem}: send Authorization: Bearer with {whose}")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="dspark-json-control")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _send(self, answer: _Answer, send: Send) -> None:
        body = answer.body
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, length]})
        for start in range(0, len(body) or 1, PIECE_BYTES):
            stop = start + PIECE_BYTES
            if isinstance(body, bytes):
                piece = body[start:stop]
            else:
                try:
                    piece = await self._in_thread(partial(body.piece, start, stop))
                except (EOFError, OSError) as error:
                    # Only the server can end an answer too soon: it does where an application returns in the middle.
                    self._cut_answers.say(f"records were not sent whole, their file changed meanwhile: {error}")
                    return
            try:
                async with asyncio.timeout(_STALL_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": stop < len(body)})
            except TimeoutError:
                self._cut_answers.say(f"a reader took nothing for {_STALL_SECONDS:g} s; its answer ends here")
                return

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _reader(self, spool_id: str | None) -> SpoolReader:
        if self.source.folder is None:
            raise _Refusal(503, SpoolNotFoundError.code, "no spool is open yet")
        try:
            return SpoolReader(self.source.folder, spool_id=spool_id)
        except SpoolReplacedError as error:
            current = read_identity(self.source.folder).spool_id
            raise _Refusal(412, error.code, error.message, spool_id=current) from None
        except SpoolError as error:
            raise _Refusal(503, error.code, error.message) from None

    def _offsets(self) -> _Answer:
        offsets = self._reader(None).offsets()
        lanes = {
            name: {"first": extent.first, "next": extent.next, "bytes": extent.bytes}
            for name, extent in sorted(offsets.lanes.items())
        }
        return _Answer(200, orjson.dumps({"v": 1, "spool_id": offsets.spool_id, "lanes": lanes}))

    def _records(self, reader: SpoolReader, lane: str, asked: _Range) -> _Answer:
        found = _looked_up(lambda: reader.lines(lane, asked.start, asked.stop, max_bytes=asked.max_bytes), lane)
        headers = ((b"content-type", b"application/x-ndjson"), (b"x-dspark-next", b"%d" % found.next_seq))
        return _Answer(200, found.data, headers)

    def _index(self, reader: SpoolReader, lane: str, asked: _Range) -> _Answer:
        stop = min(asked.stop, asked.start + _MOST_ENTRIES)
        part = _looked_up(lambda: reader.index(lane, asked.start, stop), lane)
        # u64 end, u64 appended_at, u32 crc, u32 0: three little-endian words an entry.
        words = array("Q", bytes(24 * len(part.ends)))
        words[0::3] = array("Q", part.ends)
        words[1::3] = array("Q", part.appended_at)
        words[2::3] = array("Q", part.crcs)
        if sys.byteorder == "big":
            words.byteswap()
        following = b"%d" % (part.first_seq + len(part.ends))
        return _Answer(
            200, words.tobytes(), ((b"content-type", b"application/octet-stream"), (b"x-dspark-next", following))
        )

    def _health(self, *, whole: bool) -> _Answer:
        document: dict[str, Any] = {
            "json_output_hook_enabled": True,
            "version": dspark_json.__version__,
            "formats": {"spool": FORMAT, "offset": OFFSET_FORMAT},
            "spool_id": None,
            "envelope": self._described_envelope(),
        }
        if self.is_side_car:
            document["side_car"] = True
        folder = self.source.folder
        schemas: list[orjson.Fragment] = []
        if folder is not None:
            try:
                document["spool_id"] = read_identity(folder).spool_id
                if whole:
                    described = documents_with_uses(SchemaStore(folder).list(), self.source.schema_uses())
                    # One by one: orjson keeps the GIL, and a thousand schemas may be megabytes.
                    schemas = [orjson.Fragment(dumps(schema)) for schema in described]
            except SpoolError as error:
                LOGGER.debug("DSpark JSON: health without a spool: %s", error)
        if whole:
            document["spool"] = None if folder is None else str(folder)
            document["schemas"] = schemas
        return _Answer(200, orjson.dumps(document))

    def _described_envelope(self) -> list[dict[str, str]]:
        if self._envelope is None:
            from dspark_json.schema.envelope import row_schema

            self._envelope = [{"name": column.name, "type": str(column.type)} for column in row_schema()]
        return self._envelope

    def _metrics(self) -> _Answer:
        counters = self.source.counters()
        try:
            lanes = SpoolReader(self.source.folder).offsets().lanes if self.source.folder is not None else {}
        except SpoolError as error:
            LOGGER.debug("DSpark JSON: metrics without lanes: %s", error)
            lanes = {}
        text = metrics_text(counters, lanes)
        return _Answer(200, text.encode(), ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),))


def _refused(refusal: _Refusal) -> _Answer:
    more: dict[int, tuple[bytes, bytes]] = {
        401: (b"www-authenticate", b"Bearer"),
        405: (b"allow", b"GET"),
        429: (b"retry-after", b"%d" % _RETRY_SECONDS),
    }
    headers = (_JSON, more[refusal.status]) if refusal.status in more else (_JSON,)
    return _Answer(refusal.status, orjson.dumps({"error": refusal.error}), headers)


def _looked_up(look: Callable[[], T], lane: str) -> T:
    """What a reader gives, its errors as answers."""
    if not is_lane_name(lane):
        raise _Refusal(404, LaneNotFoundError.code, "a lane is named by four digits")
    try:
        return look()
    except LaneNotFoundError as error:
        raise _Refusal(404, error.code, f"there is no lane {lane}") from None
    except RecordsExpiredError as error:
        raise _Refusal(410, error.code, error.message, first=error.first) from None
    except BeyondEndError as error:
        raise _Refusal(416, error.code, error.message, next=error.next) from None
    except SpoolCorruptError as error:
        raise _Refusal(500, error.code, error.message) from None
    except SpoolError as error:
        raise _Refusal(503, error.code, error.message) from None


def _bearer(scope: Scope) -> str | None:
    """The token of ``Authorization: Bearer``; another scheme's value as it is (it fits no key); None without one."""
    given = header(scope["headers"], b"authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    return token.strip(" \t") if scheme.lower() == "bearer" else ""


def _range(query: bytes) -> _Range:
    if len(query) > _LONGEST_QUERY:
        raise _bad_query(f"the query has {len(query)} bytes, {_LONGEST_QUERY} are allowed")
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    values: dict[str, int] = {}
    for name, text in pairs:
        if name not in ("from", "to", "max_bytes"):
            raise _bad_query(f"there is no parameter {name[:50]!r}")
        if name in values:
            raise _bad_query(f"{name} is given twice")
        if _NUMBER.fullmatch(text) is None:
            raise _bad_query(f"{name} must be a whole number")
        values[name] = int(text)
    for name in ("from", "to"):
        if name not in values:
            raise _bad_query(f"{name} is missing")
    if values["from"] >= values["to"]:
        raise _bad_query("from must be less than to")
    wanted = values.get("max_bytes", _DEFAULT_BYTES)
    if wanted == 0:
        raise _bad_query("max_bytes must be at least 1")
    return _Range(values["from"], values["to"], min(wanted, _MOST_BYTES))


def _bad_query(message: str) -> _Refusal:
    return _Refusal(400, InvalidOptionError.code, message)
