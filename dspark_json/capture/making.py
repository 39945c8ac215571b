"""Making the records of captured exchanges, in the writer thread: a group of ordinary ones in one go, natively."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_json.capture.density import let_go_if_dense
from dspark_json.capture.glance import Glance
from dspark_json.capture.jsontext import dumps
from dspark_json.capture.recording import Recording, make_recording, salvage
from dspark_json.spool.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark_json import _native
    from dspark_json.capture.captured import Captured
    from dspark_json.capture.pacing import Pacer
    from dspark_json.capture.registration import SchemaRegistrar
    from dspark_json.capture.settings import HookSettings


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
        self._glance = Glance.load(self._mode)
        self._note_exception = note_exception

    def make(self, group: Sequence[Captured]) -> list[Recording]:
        """The records of exchanges, in their order; one that can't be read is kept as text."""
        drafted = self._drafted(group)
        return [
            one if isinstance(one, Recording) else self._make_one(captured, one)
            for captured, one in zip(group, drafted, strict=True)
        ]

    def _drafted(self, group: Sequence[Captured]) -> list[Recording | _native.OddHalf | None]:
        """The records of those that are ordinary; of the others the half that is not, None where that is not known."""
        if self._glance is None:
            return [None] * len(group)
        try:
            drafts, schemas = self._glance.drafts(group)
            references = [dumps(self._schemas.register(*schema)) for schema in schemas]
        except BaseException:  # noqa: BLE001 - a native panic too: the long way meets what is wrong with one of them
            self._note_exception()
            return [None] * len(group)
        recordings: list[Recording | _native.OddHalf | None] = []
        for draft in drafts:
            if draft is None or isinstance(draft, str):
                recordings.append(draft)
                continue
            meta, tail, members, place, disconnected, untyped_model = draft
            if tail is not None:
                meta = b"".join((meta, references[place], tail))
            recordings.append(Recording(Record(meta, members), False, disconnected, untyped_model))
        return recordings

    def _make_one(self, captured: Captured, odd_half: _native.OddHalf | None) -> Recording:
        glance = self._glance if self._glance is None or odd_half is None else self._glance.but(odd_half)
        try:
            let_go_if_dense(captured, self._max_record, self._pacer)
            return make_recording(captured, self._mode, self._pacer, self._schemas.register, glance=glance)
        except BaseException as problem:  # noqa: BLE001 - a native panic too: one odd answer must not cost the others
            self._note_exception()
            record = salvage(captured, problem, self._mode, self._pacer)
            return Recording(record, failed=False, disconnected=False, untyped_model=None)
        finally:
            self._pacer.tick()
