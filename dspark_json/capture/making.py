"""Making the records of captured exchanges: the quick ones on the event loop, all others in the writer thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.capture.captured import PARSED_BYTES, is_event_stream
from dspark_json.capture.density import let_go_if_dense
from dspark_json.capture.endpoints import RESPONSES
from dspark_json.capture.glance import Glance
from dspark_json.capture.pacing import Deadline, OutOfTimeError, Pacer
from dspark_json.capture.recording import Recording, make_recording, salvage
from dspark_json.capture.registration import UnknownSchemaError
from dspark_json.capture.stream import StreamReader, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dspark_json.capture.captured import Captured
    from dspark_json.capture.registration import SchemaRegistrar
    from dspark_json.capture.settings import HookSettings

# The most that is parsed in one go on the event loop: about 0.3 ms at the worst. A stream is read in smaller pieces.
_QUICK_BYTES: Final = 32 << 10
_QUICK_STREAM_BYTES: Final = PARSED_BYTES
_OK: Final = 200


class RecordMaker:
    """Makes records by the hook's settings."""

    def __init__(
        self, settings: HookSettings, schemas: SchemaRegistrar, pacer: Pacer, note_exception: Callable[[], None]
    ) -> None:
        """``pacer`` is the writer thread's; ``note_exception`` is called while an exception is handled."""
        self._mode = settings.capture_requests
        self._max_record = settings.max_record
        self._schemas = schemas
        self._pacer = pacer
        self._deadline = Deadline()
        self._glance = Glance.load(self._mode)
        self._note_exception = note_exception

    def make(self, captured: Captured) -> Recording:
        """The record of any exchange, in the writer thread; one that can't be read is kept as text."""
        try:
            let_go_if_dense(captured, self._max_record, self._pacer)
            return make_recording(captured, self._mode, self._pacer, self._schemas.register)
        except Exception as problem:  # noqa: BLE001 - one odd answer must not cost the others
            self._note_exception()
            record = salvage(captured, problem, self._mode, self._pacer)
            return Recording(record, failed=False, disconnected=False, untyped_model=None)
        finally:
            self._pacer.tick()

    def make_quickly(self, captured: Captured) -> Iterator[Recording | None]:
        """The record of an exchange, on the event loop, which may have its turn after each None.

        Ends without a record where this is work for the writer thread: a large answer, one that needs more than a look
        (errors, echoes of the request), a schema that was not met before, an exception.
        """
        streamed = is_event_stream(captured.headers)
        if not _is_quick(captured, streamed=streamed):
            return
        reader: StreamReader | None = None
        try:
            if streamed:
                reader = StreamReader()
                for _ in reading(reader, captured.body, cut_off=not captured.ended):
                    if reader.bad_event is not None:  # a stream of such ones would take long
                        return
                    yield None
            self._deadline.restart()
            recording = make_recording(
                captured,
                self._mode,
                self._deadline,
                self._schemas.recall,
                streamed=streamed,
                reader=reader,
                glance=self._glance,
            )
        except (OutOfTimeError, UnknownSchemaError):
            return
        except Exception:  # noqa: BLE001 - the writer thread meets it again, and tells it
            return
        yield recording


def _is_quick(captured: Captured, *, streamed: bool) -> bool:
    return (
        captured.status == _OK
        and captured.missing is None
        and captured.raised is None
        and captured.request is not None
        and captured.request_size <= _QUICK_BYTES
        and not (streamed and captured.path == RESPONSES)
        and captured.size <= (_QUICK_STREAM_BYTES if streamed else _QUICK_BYTES)
    )
