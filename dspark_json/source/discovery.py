"""Which spools there are now, how far their lanes reach: all endpoints asked at once, with a deadline (DESIGN §4)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dspark_json.errors import (
    DSparkJsonError,
    EndpointUnreachableError,
    LoadBalancerError,
    SpoolNotFoundError,
    SpoolReplacedError,
)
from dspark_json.source.asking import ask_all
from dspark_json.source.names import Names, Resolve, resolved
from dspark_json.source.transport import default_folder, key_not_needed, no_key_error, open_folder
from dspark_json.spool.http import HookClient, HttpSpool
from dspark_json.spool.reader import IndexSlice, SpoolOffsets, SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dspark_json.spool.http_answers import ServerIdentity

__all__ = ["Discovery", "FoundSpool", "Survey"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ASKED_AGAIN: Final = 3


@dataclass(frozen=True, slots=True)
class FoundSpool:
    """A spool that was found: its lanes, where, and the way to it (``folder``, or None for HTTP).

    ``answered`` is false where the server did not answer and its folder was read in its place.
    """

    address: str
    offsets: SpoolOffsets
    folder: str | None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look at all addresses found: spools by id, and the error of each address or name that gave none.

    ``addresses`` are those looked at: what was given, each name (``dns+http://…``) by the addresses it has now.
    """

    spools: Mapping[str, FoundSpool]
    down: Mapping[str, DSparkJsonError]
    addresses: Sequence[str] = ()


class Discovery:
    """Finds the spools behind a stream's addresses; remembers the folders it has found."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        local: bool,
        key: str | None,
        timeout_s: float,
        resolve: Resolve = resolved,
    ) -> None:
        """``local``: the one address is a spool folder, and no server is asked. ``resolve`` looks names up."""
        self._addresses = tuple(addresses)
        self._names = Names(addresses, resolve)
        self._local = local
        self._key = key
        self._timeout_s = timeout_s
        self._folders: dict[tuple[str, str], str] = {}  # (address, spool id) -> folder
        self._believed: dict[str, str] = {}  # address -> the id it last gave on several connections
        self._remote: dict[str, str] = {}  # address -> the id of its spool, which is read over HTTP
        self._told: set[str] = set()  # addresses of which it was said that they have no key
        # Ids that an address gave up. Not kept for the addresses of names, which servers may take from one another.
        self._former: dict[str, set[str]] = {address: set() for address in addresses}

    def look(self, known: Mapping[str, str], *, first: bool = False, each: bool = False) -> Survey:
        """Look at all addresses.

        ``known`` maps the spool ids of the stream's offset to their addresses. With ``first``, and for an id that is
        not known, a server is asked again on fresh connections; one that gives several ids is a ``LoadBalancerError``.
        An address where nobody answers is in the survey's ``down``, unless its spool's folder can be read without the
        server. Every other problem is raised; with ``each`` it is in ``down`` too, and costs the other addresses
        nothing.
        """
        spools: dict[str, FoundSpool] = {}
        addresses: Sequence[str] = self._addresses
        down: dict[str, DSparkJsonError] = {}
        if self._local:
            asked = self._look_at_folder()
        else:
            addresses, down, timeout_s = self._names.look(self._timeout_s)
            asked = self._ask_all(addresses, known, first, timeout_s)
        for address, result in asked:
            try:
                found = self._settled(address, result, known, first=first)
            except DSparkJsonError as error:
                if not each and not isinstance(error, EndpointUnreachableError):
                    raise
                down[address] = error
                continue
            earlier = spools.get(found.offsets.spool_id)
            if earlier is None or (found.answered and not earlier.answered):
                spools[found.offsets.spool_id] = found
            elif found.answered:
                _log.warning("%s and %s are one server; its records are read once", earlier.address, address)
        return Survey(spools, down, addresses)

    def index(self, found: FoundSpool, lane: str, start: int, stop: int) -> IndexSlice:
        """Index entries of a lane of a spool that was found, from ``start`` on."""
        return self._with_access(found, lambda access: access.index(lane, start, stop))

    def seek_time(self, found: FoundSpool, lane: str, timestamp_us: int) -> int:
        """The first record of a lane written at or after a time, else its end."""
        return self._with_access(found, lambda access: access.seek_time(lane, timestamp_us))

    def schemas(self, found: FoundSpool) -> list[dict[str, Any]]:
        """The documents of all schemas that a spool's server has registered."""
        return self._with_access(found, lambda access: access.schemas())

    def _with_access(self, found: FoundSpool, ask: Callable[[SpoolReader | HttpSpool], T]) -> T:
        if found.folder is not None:
            return ask(SpoolReader(Path(found.folder), spool_id=found.offsets.spool_id))
        with HookClient(found.address, self._key, self._timeout_s) as client:
            return ask(HttpSpool(client, found.offsets.spool_id))

    def _ask_all(
        self, addresses: Sequence[str], known: Mapping[str, str], first: bool, timeout_s: float
    ) -> list[tuple[str, FoundSpool | DSparkJsonError]]:
        """Ask every address; one that is not done at the deadline counts as not answering."""
        done = ask_all(addresses, lambda address: self._asked(address, known, first), timeout_s, patient=first)
        results: list[tuple[str, FoundSpool | DSparkJsonError]] = []
        for address in addresses:
            result = done.get(address)
            if result is None:
                result = EndpointUnreachableError(
                    f"{address} does not answer within {self._timeout_s:g} s",
                    remedy="Check the server, or give it more time with endpointTimeoutSec.",
                )
            if isinstance(result, BaseException) and not isinstance(result, DSparkJsonError):
                raise result
            results.append((address, result))
        return results

    def _look_at_folder(self) -> list[tuple[str, FoundSpool | DSparkJsonError]]:
        folder = self._addresses[0]
        try:
            return [(folder, FoundSpool(folder, SpoolReader(Path(folder)).offsets(), folder))]
        except DSparkJsonError as error:
            return [(folder, error)]

    def _settled(
        self, address: str, result: FoundSpool | DSparkJsonError, known: Mapping[str, str], *, first: bool
    ) -> FoundSpool:
        """The spool of an address, in the place of a server that does not answer that of its folder; else its error."""
        if isinstance(result, FoundSpool):
            return result
        if isinstance(result, EndpointUnreachableError) and not first:
            found = self._without_server(address, known)
            if found is not None:
                return found
        raise result

    def _asked(self, address: str, known: Mapping[str, str], first: bool) -> FoundSpool:
        try:
            return self._ask(address, known, first)
        except (SpoolNotFoundError, SpoolReplacedError):  # between two questions: the server was just started anew
            return self._ask(address, known, first)

    def _ask(self, address: str, known: Mapping[str, str], first: bool) -> FoundSpool:
        remote = self._remote.get(address)
        if remote is not None and known.get(remote) == address:
            with HookClient(address, self._key, self._timeout_s) as client:
                offsets = client.offsets(tries=2)
            if offsets.spool_id == remote:
                return FoundSpool(address, offsets, None)
            del self._remote[address]
        identity = self._identity(address)
        spool_id = identity.spool_id
        if first or (known.get(spool_id) != address and self._believed.get(address) != spool_id):
            self._ask_again(address, spool_id)
            self._believed[address] = spool_id
            if address in self._former:
                self._former[address].update(i for i, where in known.items() if where == address and i != spool_id)
        folder, reason = self._folder(address, identity)
        if folder is not None:
            if self._key is not None and identity.folder is None and address not in self._told:
                self._told.add(address)
                _log.warning("%s", key_not_needed(address, str(folder.folder)))
            self._folders[address, spool_id] = str(folder.folder)
            return FoundSpool(address, folder.offsets(), str(folder.folder))
        if self._key is None:
            raise no_key_error(address, reason)
        with HookClient(address, self._key, self._timeout_s) as client:
            found = FoundSpool(address, HttpSpool(client, spool_id).offsets(), None)
        self._remote[address] = spool_id
        return found

    def _identity(self, address: str) -> ServerIdentity:
        with HookClient(address, self._key, self._timeout_s) as client:
            return client.identity(tries=2)

    def _ask_again(self, address: str, spool_id: str) -> None:
        """Believe an id that is new here only if fresh connections give it again and it was not given up before."""
        others = [self._identity(address).spool_id for _ in range(_ASKED_AGAIN)]
        other = next((i for i in others if i != spool_id), None)
        if other is None and spool_id in self._former.get(address, ()):
            other = self._believed.get(address)
        if other is not None:
            raise LoadBalancerError(
                f"{address} answers for spool {spool_id} and for spool {other} in turn: it is a load balancer",
                remedy="List the replicas' own addresses in vllm_endpoint, separated by commas.",
            )

    def _folder(self, address: str, identity: ServerIdentity) -> tuple[SpoolReader | None, str]:
        """The folder of a server's spool: where it says, where it was, or where it would be by default."""
        reasons = []
        places = (identity.folder, self._folders.get((address, identity.spool_id)), default_folder(address))
        for place in dict.fromkeys(places):
            reader, reason = open_folder(place, identity.spool_id)
            if reader is not None:
                return reader, reason
            if place is not None:
                reasons.append(reason)
        return None, "; ".join(reasons) or "it is not on this machine"

    def _without_server(self, address: str, known: Mapping[str, str]) -> FoundSpool | None:
        """The folder of a server that does not answer, if it holds a spool that the stream knows (any, if none)."""
        ids: list[str | None] = [spool_id for spool_id, where in known.items() if where == address]
        for spool_id in ids if known else [None]:
            places = (self._folders.get((address, spool_id)) if spool_id else None, default_folder(address))
            for place in dict.fromkeys(places):
                reader, _ = open_folder(place, spool_id)
                if reader is not None:
                    offsets = reader.offsets()
                    self._folders[address, offsets.spool_id] = str(reader.folder)
                    return FoundSpool(address, offsets, str(reader.folder), answered=False)
        return None
