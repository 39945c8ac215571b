"""What a record says of a request and of its answer, found at a glance where both are as most are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import orjson

from dspark_json.capture.assembly import MESSAGE_ORDER, TEXT_CHOICE_ORDER, TOP_ORDER
from dspark_json.capture.captured import PARSED_BYTES
from dspark_json.capture.endpoints import CHAT, COMPLETIONS
from dspark_json.capture.redaction import ECHOED, ECHOED_IN_OUTPUT, ECHOED_INSIDE, ERROR_MEMBERS
from dspark_json.capture.request import SAMPLING_SETTINGS, RequestFacts
from dspark_json.capture.response_events import LAST_EVENTS, PASSED_EVENTS
from dspark_json.schema.requested import RequestedSchema, RequestedSchemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json import _native
    from dspark_json.capture.captured import Captured
    from dspark_json.capture.settings import RequestCapture

    # Id and model of an answer, whether it is completed, and the record's members.
    Seen = tuple[str | None, str | None, bool, bytes]

_NO_SCHEMAS: Final = RequestedSchemas()
_UNTYPED: Final = RequestedSchemas(json_object_without_schema=True)
# What is larger is for the long way: such a request is not parsed, and of such an answer nothing is judged here.
_MOST_OF_REQUEST: Final = PARSED_BYTES
_MOST_OF_ANSWER: Final = PARSED_BYTES
_MOST_OF_STREAM: Final = 8 << 20


class AskedSchema(NamedTuple):
    """The schema that ``times`` requests of a group name for their contents, the last received at ``at_us``.

    Its schema is an ``orjson.Fragment``. The fields are the arguments of ``SchemaRegistrar.register``.
    """

    requested: RequestedSchemas
    at_us: int
    times: int


class Glance:
    """Walks over the texts in native code and makes no objects of them.

    Everything out of the ordinary gives None, and is then looked at in the way that knows all cases: the facts are the
    same, but the settings of a request and the values of a stream stand as they were written. Where requests are kept
    whole, only responses are looked at: an answer that echoes its request keeps that.
    """

    def __init__(self, native: _native.Glance, mode: RequestCapture, odd: _native.OddHalf | None = None) -> None:
        """Use ``Glance.load``."""
        self._native = native
        self._mode = mode
        self._routes = () if mode == "full" else (CHAT, COMPLETIONS)
        # Whose requests, whose answers are looked at.
        self._requests = () if odd == "request" else self._routes
        self._answers = () if odd == "answer" else self._routes

    def but(self, odd: _native.OddHalf) -> Glance:
        """One that does not look at the half of an exchange that ``drafts`` has found to be out of the ordinary."""
        return Glance(self._native, self._mode, odd)

    @classmethod
    def load(cls, mode: RequestCapture) -> Self | None:
        """None where this installation has no native module."""
        try:
            from dspark_json import _native
        except ImportError:
            return None
        native = _native.Glance(
            settings=SAMPLING_SETTINGS,
            echoed=sorted(ECHOED),
            echoed_inside=sorted(ECHOED_INSIDE),
            echoed_in_output=sorted(ECHOED_IN_OUTPUT),
            errors=sorted(ERROR_MEMBERS),
            passed_events=sorted(PASSED_EVENTS),
            last_events=sorted(LAST_EVENTS),
            top_order=TOP_ORDER,
            message_order=MESSAGE_ORDER,
            text_choice_order=TEXT_CHOICE_ORDER,
        )
        return cls(native, mode)

    def drafts(
        self, group: Sequence[Captured]
    ) -> tuple[list[_native.Draft | _native.OddHalf | None], list[AskedSchema]]:
        """Of each exchange all that its record needs, and the schemas that are asked for.

        A draft is the record's meta, the rest of the meta that comes behind the reference to a schema (None where none
        is due), what stands between the answer's outer braces, the place of its schema among those given, whether the
        client left, and the model that was asked for JSON without a schema. Other threads run meanwhile, unless there
        is little to do. Of an exchange that is not ordinary, the half that was found not to be; None for one that was
        not looked at.
        """
        drafts, asked = self._native.drafts(
            list(group), self._routes, _MOST_OF_REQUEST, _MOST_OF_ANSWER, _MOST_OF_STREAM, self._mode != "none"
        )
        return drafts, [AskedSchema(_requested(name, text), last, times) for name, text, times, last in asked]

    def request(self, captured: Captured) -> RequestFacts | None:
        """The facts of a request; its schema is an ``orjson.Fragment``."""
        parts = captured.request
        if captured.path not in self._requests or parts is None or len(parts) != 1:
            return None
        if captured.request_size > _MOST_OF_REQUEST:
            return None
        seen = self._native.request(parts[0])
        if seen is None:
            return None
        model, is_stream, settings, name, schema, is_untyped = seen
        schemas = _requested(name, schema) if schema is not None else _UNTYPED if is_untyped else _NO_SCHEMAS
        return RequestFacts(model, is_stream, b"null" if self._mode == "none" else settings, schemas)

    def answer(self, captured: Captured) -> Seen | None:
        """A whole answer, whose members are what stands between its outer braces."""
        parts = captured.body
        if captured.path not in self._answers or len(parts) != 1:
            return None
        return self._native.answer(parts[0])

    def stream(self, captured: Captured) -> tuple[str | None, str | None, bool, bool, bytes] | None:
        """Id and model of a streamed answer, whether it is completed, whether ``[DONE]`` came, and what stands between
        the outer braces of the assembled object. Other threads run meanwhile.
        """
        if captured.path not in self._answers:
            return None
        return self._native.stream(captured.body, captured.ended)

    def response(self, captured: Captured, *, streamed: bool) -> Seen | None:
        """An answer of ``/v1/responses``, with ``choices`` made of its output before its own members.

        What it echoes of the request is null, unless requests are kept whole. Other threads run while a large one is
        looked at.
        """
        look = self._native.streamed_response if streamed else self._native.response
        return look(captured.body, self._mode != "full")


def _requested(name: str | None, schema: bytes) -> RequestedSchemas:
    return RequestedSchemas(RequestedSchema("content", name, orjson.Fragment(schema)))
