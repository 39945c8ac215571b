"""What a record says of a request and of its answer, found at a glance where both are as most are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import orjson

from dspark_json.capture.endpoints import CHAT, COMPLETIONS
from dspark_json.capture.redaction import ECHOED, ECHOED_INSIDE
from dspark_json.capture.request import SAMPLING_SETTINGS, RequestFacts
from dspark_json.schema.requested import RequestedSchema, RequestedSchemas

if TYPE_CHECKING:
    from dspark_json import _native
    from dspark_json.capture.captured import Captured
    from dspark_json.capture.settings import RequestCapture

# Routes whose requests and answers have the shape that is looked for.
_PATHS: Final = frozenset({CHAT, COMPLETIONS})
_NO_SCHEMAS: Final = RequestedSchemas()


class Glance:
    """Walks over the texts in native code and makes no objects of them.

    Everything out of the ordinary gives None, and is then looked at in the way that knows all cases: the facts are the
    same, but the settings of a request and the values of a stream stand as they were written.
    """

    def __init__(self, native: _native.Glance, mode: RequestCapture) -> None:
        """Use ``Glance.load``."""
        self._native = native
        self._mode = mode

    @classmethod
    def load(cls, mode: RequestCapture) -> Self | None:
        """None where this installation has no native module, or where requests are kept whole."""
        if mode == "full":
            return None
        try:
            from dspark_json import _native
        except ImportError:
            return None
        return cls(_native.Glance(list(SAMPLING_SETTINGS), list(ECHOED), list(ECHOED_INSIDE)), mode)

    def request(self, captured: Captured) -> RequestFacts | None:
        """The facts of a request; its schema is an ``orjson.Fragment``."""
        parts = captured.request
        if captured.path not in _PATHS or parts is None or len(parts) != 1:
            return None
        seen = self._native.request(parts[0])
        if seen is None:
            return None
        model, is_stream, settings, name, schema = seen
        schemas = _NO_SCHEMAS
        if schema is not None:
            schemas = RequestedSchemas(RequestedSchema("content", name, orjson.Fragment(schema)))
        return RequestFacts(model, is_stream, b"null" if self._mode == "none" else settings, schemas)

    def answer(self, captured: Captured) -> tuple[str | None, str | None, bool, bytes] | None:
        """Id and model of an answer, whether it is completed, and what stands between its outer braces."""
        parts = captured.body
        if captured.path not in _PATHS or len(parts) != 1:
            return None
        return self._native.answer(parts[0])

    def stream(self, captured: Captured) -> tuple[str | None, str | None, bool, bool, bytes] | None:
        """Id and model of a streamed answer, whether it is completed, whether ``[DONE]`` came, and what stands between
        the outer braces of the assembled object. Other threads run meanwhile.
        """
        if captured.path not in _PATHS:
            return None
        return self._native.stream(captured.body, captured.ended)
