"""A spool read over HTTP, through the hook's control routes (DESIGN §2).

``HookClient`` asks one server and turns its answers into values or named errors; ``HttpSpool`` is the ``SpoolAccess``
on top of it. The key goes to the address given and nowhere else.
"""

from __future__ import annotations

import itertools
import random
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from dspark_json.errors import (
    BeyondEndError,
    EndpointAnswerError,
    EndpointKeyError,
    EndpointUnreachableError,
    LaneNotFoundError,
    RecordsExpiredError,
    SpoolCorruptError,
    SpoolReplacedError,
)
from dspark_json.spool.access import DEFAULT_CHUNK_BYTES, Chunk, IndexSlice, SpoolOffsets
from dspark_json.spool.checksums import first_damaged
from dspark_json.spool.http_answers import (
    HttpAnswer,
    ServerIdentity,
    header_number,
    number,
    server_identity,
    shown,
    spool_offsets,
    transport_problem,
)
from dspark_json.spool.http_connection import BAD_ADDRESS, FAILURES, CutError, HttpConnection, is_redirect
from dspark_json.spool.layout import INDEX_ENTRY, is_plausible_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["HookClient", "HttpSpool"]

T = TypeVar("T")

HOOK_REMEDY: Final = (
    "Start the server with `vllm serve MODEL --middleware dspark_json.JsonOutputHook`, or correct vllm_endpoint."
)
KEY_REMEDY: Final = "Set vllm_api_key to the hook's key (DSPARK_API_KEY of the server)."

_WAITS_S: Final = (0.1, 0.4)  # between the three tries
_PATIENT_WAIT_S: Final = 1.0  # between those of a patient client after them
_LEAST_WAIT_S: Final = 0.1
_MOST_WAIT_S: Final = 5.0  # of what a busy server asks for
_INDEX_SLICE: Final = 65_536  # the most entries one answer holds
_UNAVAILABLE: Final = frozenset({502, 503, 504})


class _Busy(Exception):  # noqa: N818 - never leaves this module
    """The server has too many readers at once; ``wait_s`` is how long it wants to be left alone."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"status {HTTPStatus.TOO_MANY_REQUESTS}, too many readers at once")
        self.wait_s = wait_s


class HookClient:
    """Asks one server's hook. Not for use by several threads at once; close it after use."""

    def __init__(self, address: str, key: str | None, timeout_s: float, *, patient: bool = False) -> None:
        """``address`` is ``scheme://host[:port][/prefix]``; ``timeout_s`` bounds one answer to a control question.

        ``patient``: a server that does not answer is asked for a lane's bytes as long as that, not just three times.
        """
        self.address = address
        self._patience_s = timeout_s if patient else 0.0
        self.has_key = key is not None
        self._timeout_s = timeout_s
        headers = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "dspark-json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._connection = HttpConnection(address, headers, timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identity(self, *, tries: int = 1) -> ServerIdentity:
        """Ask who is there (``GET /health/json-schema``).

        ``EndpointAnswerError`` where it is not the hook, ``EndpointUnreachableError`` where nobody answers in time.
        """

        def once() -> ServerIdentity:
            return self._health()[1]

        return self._tried(once, tries)

    def schemas(self, *, tries: int = 1) -> tuple[str, list[dict[str, Any]]]:
        """The spool's id, and the registry's documents with ``count`` and ``last_used`` (``GET /health/json-schema``).

        Raises as ``identity`` does, and ``EndpointKeyError`` where the key is missing.
        """

        def once() -> tuple[str, list[dict[str, Any]]]:
            answer, identity = self._health()
            schemas = (answer.document or {}).get("schemas")
            if schemas is None:
                raise EndpointKeyError(
                    f"{self.address} tells its schemas only to who has the hook's key",
                    remedy="Start the server with DSPARK_API_KEY set, and set vllm_api_key to the same key.",
                )
            if not isinstance(schemas, list) or not all(map(_is_schema, schemas)):
                self._refuse(answer, "JSON, but not the hook's (schemas)")
            return identity.spool_id, schemas

        return self._tried(once, tries)

    def offsets(self, *, tries: int = 1) -> SpoolOffsets:
        """The extent of every lane (``GET /dspark/v1/offsets``)."""

        def once() -> SpoolOffsets:
            answer = self._get("/dspark/v1/offsets", {}, deadline_s=self._timeout_s)
            return self._checked(answer, spool_offsets)

        return self._tried(once, tries)

    def lane_bytes(
        self, spool_id: str, lane: str, route: str, query: Mapping[str, int], deadline_s: float | None = None
    ) -> tuple[bytes, int]:
        """One whole answer of a lane's ``records`` or ``index`` route: its bytes, the number after its last record."""

        def once() -> tuple[bytes, int]:
            answer = self._get(f"/dspark/v1/spools/{spool_id}/lanes/{lane}/{route}", query, deadline_s=deadline_s)
            if answer.status != HTTPStatus.OK:
                self._raise_for(answer, spool_id, lane, query["from"])
            length, following = (header_number(answer.headers.get(n)) for n in ("content-length", "x-dspark-next"))
            if length is None or following is None:
                self._refuse(answer, "Content-Length or x-dspark-next is missing")
            if len(answer.body) != length:
                raise CutError(f"{len(answer.body)} of {length} bytes came")
            if not query["from"] < following <= query["to"]:
                self._refuse(
                    answer, f"records {query['from']} to {query['to']} were asked for, x-dspark-next is {following}"
                )
            return answer.body, following

        return self._tried(once, 1 + len(_WAITS_S), self._patience_s)

    def _health(self) -> tuple[HttpAnswer, ServerIdentity]:
        """What the hook says about itself."""
        answer = self._get("/health/json-schema", {}, deadline_s=self._timeout_s)
        if answer.status == HTTPStatus.NOT_FOUND:
            self._refuse(answer, "no hook there")
        document = self._json(answer)
        if document.get("json_output_hook_enabled") is not True:
            self._refuse(answer, "JSON, but not the hook's")
        if document.get("spool_id") is None and document.get("side_car") is True:
            raise EndpointUnreachableError(
                f"dspark-json serve at {self.address} finds no spool in its folder",
                remedy="Check the folder that it was started with. It gives a spool there once a server's hook has "
                "made it.",
            )
        if document.get("spool_id") is None:
            raise EndpointUnreachableError(
                f"the hook at {self.address} has no spool open ({shown(document.get('spool_problem', 'none yet'))})",
                remedy="The server's log says why; without a cause there, it opens one with the first answer.",
            )
        return answer, self._checked(answer, server_identity)

    def _checked(self, answer: HttpAnswer, check: Callable[[Mapping[str, Any]], T]) -> T:
        """What ``check`` makes of the JSON object of an answer."""
        document = self._json(answer)
        try:
            return check(document)
        except ValueError as problem:
            self._refuse(answer, f"JSON, but not the hook's ({problem})")

    def _tried(self, once: Callable[[], T], tries: int, patience_s: float = 0.0) -> T:
        """Try that many times, and longer than that while ``patience_s`` have not gone by."""
        deadline = time.monotonic() + patience_s
        for attempt in itertools.count(1):
            try:
                return self._patiently(once)
            except BAD_ADDRESS as error:  # what the check of the option let pass
                problem = shown(error)
                break
            except (*FAILURES, _Busy) as error:
                problem = transport_problem(error)
            wait = _WAITS_S[attempt - 1] if attempt <= len(_WAITS_S) else _PATIENT_WAIT_S
            if attempt >= tries and time.monotonic() + wait > deadline:
                break
            time.sleep(wait)
        raise EndpointUnreachableError(
            f"{self.address} does not answer ({problem})" + (f", asked {attempt} times" if attempt > 1 else ""),
            remedy="Check that the server runs, that the address and port are right, and that no firewall is between.",
        )

    def _patiently(self, once: Callable[[], T]) -> T:
        """Ask again while the server is busy with other readers, as long as one answer may take."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return once()
            except _Busy as busy:
                # Readers that were refused together must not come back together.
                wait = min(max(busy.wait_s, _LEAST_WAIT_S), _MOST_WAIT_S) * random.uniform(0.5, 1.5)  # noqa: S311
                if time.monotonic() + wait > deadline:
                    raise
                time.sleep(wait)

    def _get(self, path: str, query: Mapping[str, int], *, deadline_s: float | None) -> HttpAnswer:
        answer = self._connection.get(path, query, deadline_s)
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise _Busy(header_number(answer.headers.get("retry-after")) or 0)
        if answer.status in _UNAVAILABLE:
            said = answer.error.get("message")
            raise CutError(f"status {answer.status}, {shown(said)}" if said else f"status {answer.status}")
        return answer

    def _json(self, answer: HttpAnswer) -> dict[str, Any]:
        """The JSON object of an answer with status 200; a named error for anything else."""
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise EndpointKeyError(
                f"{self.address} refuses the key that was sent (status 401)"
                if self.has_key
                else f"{self.address} asks for a key (status 401)",
                remedy=KEY_REMEDY,
            )
        if answer.status == HTTPStatus.FORBIDDEN and answer.error:
            raise EndpointKeyError(
                f"{self.address} gives no records over HTTP (status 403): the server has no key",
                remedy="Start the server with DSPARK_API_KEY set and give the reader the same key as vllm_api_key, "
                "or run the reader where the spool folder can be opened.",
            )
        if answer.status != HTTPStatus.OK:
            self._refuse(answer, "not the hook's answer")
        document = answer.document
        if document is None:
            self._refuse(answer, "not a JSON object")
        return document

    def _raise_for(self, answer: HttpAnswer, spool_id: str, lane: str, start: int) -> NoReturn:
        details = answer.error
        where = f"lane {lane} of spool {spool_id} at {self.address}"
        first, following = number(details.get("first")), number(details.get("next"))
        if answer.status == HTTPStatus.NOT_FOUND and details:
            raise LaneNotFoundError(f"{where} does not exist")
        if answer.status == HTTPStatus.GONE and first is not None and first > start:
            raise RecordsExpiredError(f"record {start} of {where} is gone, the oldest one kept is {first}", first=first)
        if answer.status == HTTPStatus.PRECONDITION_FAILED and details:
            raise SpoolReplacedError(f"{self.address} has another spool now, not {spool_id}")
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and following is not None and following <= start:
            raise BeyondEndError(f"{where} ends before {following}, record {start} was asked for", next_seq=following)
        if details.get("code") == SpoolCorruptError.code:
            raise SpoolCorruptError(f"{where}: {shown(details.get('message'))}")
        self._json(answer)
        self._refuse(answer, "not the hook's answer")

    def _refuse(self, answer: HttpAnswer, why: str) -> NoReturn:
        redirect = ", a redirect, which is not followed because the key must not go elsewhere"
        status = f"{answer.status}{redirect if is_redirect(answer.status) else ''}"
        raise EndpointAnswerError(
            f"{self.address} does not answer as the hook does: {why} "
            f"(status {status}, content type {answer.content_type})",
            remedy=HOOK_REMEDY,
        ) from None


def _is_schema(document: object) -> bool:
    return isinstance(document, dict) and isinstance(document.get("hash"), str)


class HttpSpool:
    """``SpoolAccess`` to one spool over a ``HookClient`` (which the caller closes)."""

    def __init__(self, client: HookClient, spool_id: str) -> None:
        self.client = client
        self.spool_id = spool_id
        self._slices: dict[str, IndexSlice] = {}

    def offsets(self) -> SpoolOffsets:
        """The extent of every lane; ``SpoolReplacedError`` where the server has another spool now."""
        found = self.client.offsets(tries=1 + len(_WAITS_S))
        self._check_identity(found.spool_id)
        return found

    def schemas(self) -> list[dict[str, Any]]:
        """The documents of the schema registry, see ``SpoolAccess``; ``EndpointKeyError`` without the key."""
        spool_id, found = self.client.schemas(tries=1 + len(_WAITS_S))
        self._check_identity(spool_id)
        return found

    def _check_identity(self, found: str) -> None:
        if found != self.spool_id:
            raise SpoolReplacedError(f"{self.client.address} has spool {found} now, not {self.spool_id}")

    def index(self, lane: str, start: int, stop: int) -> IndexSlice:
        """The index entries of a range; ends before ``stop`` only at the end of the lane."""
        found = self._index(lane, start, stop)
        while len(found) % _INDEX_SLICE == 0 and start + len(found) < stop:
            try:
                found = _joined(found, self._index(lane, start + len(found), stop))
            except BeyondEndError:
                break
        return found

    def _index(self, lane: str, start: int, stop: int) -> IndexSlice:
        """One answer of the index route: at least one entry, at most 65,536."""
        body, following = self.client.lane_bytes(
            self.spool_id, lane, "index", {"from": start, "to": min(stop, start + _INDEX_SLICE)}
        )
        if len(body) != (following - start) * INDEX_ENTRY.size:
            raise EndpointAnswerError(
                f"{self.client.address} does not answer as the hook does: {len(body)} bytes of index for "
                f"{following - start} records",
                remedy=HOOK_REMEDY,
            )
        ends, appended_at, crcs = [], [], []
        for end, moment, crc, _ in INDEX_ENTRY.iter_unpack(body):
            ends.append(end)
            appended_at.append(moment)
            crcs.append(crc)
        return IndexSlice(start, ends, appended_at, crcs)

    def read(self, lane: str, start: int, stop: int, *, max_bytes: int = DEFAULT_CHUNK_BYTES) -> Chunk:
        """Records from ``start`` on, at least one; every line is held against its CRC-32 of the index."""
        body, following = self.client.lane_bytes(
            self.spool_id, lane, "records", {"from": start, "to": stop, "max_bytes": max_bytes}
        )
        index = self._index_for(lane, start, following, stop)
        at = start - index.first_seq
        base = index.ends[at - 1] if at else 0
        ends = [end - base for end in index.ends[at : at + following - start]]
        buffer = memoryview(body)
        if ends[-1] != len(body):
            raise SpoolCorruptError(
                f"records {start} to {following - 1} of lane {lane} of spool {self.spool_id} at {self.client.address} "
                f"have {ends[-1]} bytes by the index, {len(body)} came"
            )
        appended_at = index.appended_at[at : at + following - start]
        problem = None
        bad = first_damaged(buffer, ends, index.crcs[at : at + len(ends)])
        if bad is not None:
            problem = "does not match its checksum"
        elif not is_plausible_time(max(appended_at)):
            bad = next(i for i, moment in enumerate(appended_at) if not is_plausible_time(moment))
            problem = f"was written {appended_at[bad]} µs after 1970 by its index, which can't be"
        if bad is not None:
            raise SpoolCorruptError(
                f"record {start + bad} of lane {lane} of spool {self.spool_id} at {self.client.address} {problem}",
                remedy="If the server's folder is sound, something between changes answers: read without it.",
            )
        return Chunk(self.spool_id, lane, start, buffer, ends, appended_at)

    def seek_time(self, lane: str, timestamp_us: int) -> int:
        """The first record kept with ``appended_at >= timestamp_us``, else the number the next record will get.

        A record whose index entry is damaged counts as late: rather begin too early than leave records out.
        """
        extent = self.offsets().lanes.get(lane)
        if extent is None:
            raise LaneNotFoundError(f"lane {lane} of spool {self.spool_id} at {self.client.address} does not exist")
        low, high = extent.first, extent.next
        while low < high:
            middle = (low + high) // 2
            try:
                is_late = self.index(lane, middle, middle + 1).appended_at[0] >= timestamp_us
            except SpoolCorruptError:
                is_late = True
            if is_late:
                high = middle
            else:
                low = middle + 1
        return low

    def _index_for(self, lane: str, start: int, following: int, stop: int) -> IndexSlice:
        """A slice that covers ``start`` to ``following``; one answer of the index serves several reads in a row."""
        held = self._slices.get(lane)
        if held is None or not held.first_seq <= start <= following <= held.first_seq + len(held.ends):
            held = self._index(lane, start, stop)
            while start + len(held.ends) < following:
                held = _joined(held, self._index(lane, start + len(held.ends), stop))
            self._slices[lane] = held
        return held


def _joined(left: IndexSlice, right: IndexSlice) -> IndexSlice:
    base = left.ends[-1]
    return IndexSlice(
        left.first_seq,
        [*left.ends, *(base + end for end in right.ends)],
        [*left.appended_at, *right.appended_at],
        [*left.crcs, *right.crcs],
    )
