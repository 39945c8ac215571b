"""The schemas that requests name → the registry of the spool, each once (DESIGN §3, §5)."""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

import orjson

from dspark_json.capture.jsontext import loads
from dspark_json.capture.notices import Notice
from dspark_json.schema.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark_json.capture.pacing import Pacer
    from dspark_json.schema.requested import RequestedSchema, RequestedSchemas
    from dspark_json.spool.schema_uses import SchemaUses
    from dspark_json.spool.schemas import SchemaStore

# What is remembered of schemas that came before: about 300 bytes each.
_MOST_REMEMBERED: Final = 2_000
# New schemas of tools cost the writer thread no more than this a request; the next request goes on with the rest.
_TOOLS_SECONDS: Final = 0.05


class SchemaReference(TypedDict):
    """What a record says about the schema that its answer was asked for with (``_dspark.schema``)."""

    name: str | None
    hash: str


@dataclass(frozen=True, slots=True)
class _Known:
    """A schema that came before; ``kept`` tells whether the registry had room for it."""

    reference: SchemaReference
    kept: bool


class SchemaRegistrar:
    """Puts schemas into the registry before the records that refer to them; belongs to the writer thread.

    Nothing is raised: a failure is counted as ``hook_exceptions``, a schema without room as ``schema_overflow``.
    ``warm_up`` is for any thread.
    """

    def __init__(self, count: Callable[[str], None], note_exception: Callable[[], None], pacer: Pacer) -> None:
        """``note_exception`` is called while an exception is handled."""
        self._count = count
        self._note_exception = note_exception
        self._pacer = pacer
        self._store: SchemaStore | None = None
        self._uses: SchemaUses | None = None
        self._known: dict[bytes, _Known] = {}
        self._postponed = Notice(loud_times=1)

    def use(self, store: SchemaStore, uses: SchemaUses) -> None:
        """Register with this spool from now on, and count in ``uses``."""
        self._store, self._uses = store, uses
        self._known.clear()

    def warm_up(self) -> None:
        """Type a schema that nobody sent: the first one imports pyarrow, which would stall the event loop later."""
        try:
            register("content", None, {"type": "string"}, 0)
        except Exception:  # noqa: BLE001 - DESIGN §2 rule 1
            self._note_exception()

    def register(self, requested: RequestedSchemas, at_us: int, times: int = 1) -> SchemaReference | None:
        """Register what so many requests, the last of them received at ``at_us``, name; the reference to the schema
        of their content. A schema may be an ``orjson.Fragment``.
        """
        content = None if requested.content is None else self._noted(requested.content, at_us, times, math.inf)
        until = time.perf_counter() + _TOOLS_SECONDS
        for tool in requested.tools:
            self._noted(tool, at_us, times, until)
        return content

    def _noted(self, requested: RequestedSchema, at_us: int, times: int, until: float) -> SchemaReference | None:
        """Count uses of the schema, after registering it if it is new and it is not later than ``until``."""
        try:
            known = self._known_or_registered(requested, at_us, until)
            if known is None:
                self._postponed.say("a request names many new tools; some wait for the next request with them")
                return None
            if known.kept and self._uses is not None:
                self._uses.add(known.reference["hash"], at_us, times)
        except Exception:  # noqa: BLE001 - a schema that can't be registered must not cost the record
            self._note_exception()
            return None
        return known.reference

    def _known_or_registered(self, requested: RequestedSchema, at_us: int, until: float) -> _Known | None:
        key = _key(requested)
        known = None if key is None else self._touched(key)
        if known is not None:
            return known
        if isinstance(requested.schema, orjson.Fragment):  # maybe the same schema with other blanks
            parsed = loads(orjson.dumps(requested.schema))
            known = self._known_or_registered(requested._replace(schema=parsed), at_us, until)
        elif time.perf_counter() <= until:
            known = self._registered(requested, at_us)
            self._pacer.tick()
        if known is not None and key is not None:
            self._remember(key, known)
        return known

    def _touched(self, key: bytes) -> _Known | None:
        """What is known under the key, now at the end: the one that was not asked for longest goes first."""
        known = self._known.pop(key, None)
        if known is not None:
            self._known[key] = known
        return known

    def _remember(self, key: bytes, known: _Known) -> None:
        self._known[key] = known
        if len(self._known) > _MOST_REMEMBERED:
            del self._known[next(iter(self._known))]

    def _registered(self, requested: RequestedSchema, at_us: int) -> _Known:
        schema = register(requested.kind, requested.name, requested.schema, at_us)
        kept = self._store is not None and self._store.put(schema.hash, schema.to_document())
        if not kept:
            self._count("schema_overflow")
        return _Known({"name": schema.name, "hash": schema.hash}, kept)


def _key(requested: RequestedSchema) -> bytes | None:
    """What tells a schema from others as they were sent; None for one that is nested too deeply to be told."""
    whole = [requested.kind, requested.name, requested.schema]
    try:
        text = orjson.dumps(whole)
    except TypeError:  # nested deeply, or lone surrogates
        try:
            text = json.dumps(whole).encode("ascii")
        except RecursionError:
            return None
    return hashlib.sha256(text).digest()
