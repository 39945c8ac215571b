"""Which recording answers which request: the ones most alike, in turn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark_json.replay.recording import Recording, Traits


class Repertoire:
    """The recordings of a server, handed out in turn among those that fit a request best."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        """``recordings`` holds at least one streamed answer of each route, and one that is not."""
        self._recordings = tuple(recordings)
        self._turns: dict[Traits, Iterator[Recording]] = {}

    def pick(self, wanted: Traits) -> Recording:
        """The next recording among those most alike to ``wanted``."""
        turn = self._turns.get(wanted)
        if turn is None:
            turn = self._turns[wanted] = itertools.cycle(self.fitting(wanted))
        return next(turn)

    def fitting(self, wanted: Traits) -> list[Recording]:
        """All recordings that fit ``wanted`` equally well and better than any other."""
        best = max(wanted.likeness(recording.traits) for recording in self._recordings)
        return [recording for recording in self._recordings if wanted.likeness(recording.traits) == best]
