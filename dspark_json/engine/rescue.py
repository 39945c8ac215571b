"""What found no column: the values of ``_rescued_data`` and the paths they go by (DESIGN §6).

The column is a JSON object ``{"<path>": <value as written>, …}`` in the order of the values in the record; what a
content kept stands at the place of the content's text.

A path is the steps from the record to the value, as in ``choices[0].parsed.extra``. A name that is not
``[A-Za-z_][A-Za-z0-9_]*`` is the step ``['…']``, inside which JSON's escapes hold, each in its shortest form, and
``'`` is ``\\u0027``. Below the record's own members the same form is taken by a member on the wire that has the name of
a field that the reader makes: ``choices[0]['parsed']`` came from the wire, ``choices[0].parsed`` is the content. So no
two values have the same path.

What is kept is bounded, so that time and memory stay linear in the line:

1. The bounds are 1,000 entries and 65,536 bytes of path text; 1,001 entries, or 65,537 bytes, pass them. Path text is
   the sum over the entries of their paths' length in UTF-8, of the path as it is before it is escaped as a name of the
   column's JSON object.
2. A content is what ``choices[i].parsed`` or a call's ``parsed_arguments`` is read from. Where the entries of one
   content pass a bound, one entry takes the place of all of them: the content's own path
   (``choices[i].parsed``, ``choices[i].message.tool_calls[j].function.parsed_arguments``) with the whole value as
   written.
3. Where then the entries of the record, those of its contents included, pass a bound, each member of the line that has
   entries gets one entry in their place: its name with its whole value as written, in the order of the members.

Only what counts is counted: not the earlier one of duplicate members, not an unknown null, no unknown member where
those are not kept. Columns, statuses and the count of mismatches do not depend on the bounds. An engine that goes
through the line once keeps no more than a bound's worth of entries for the record, as much for the content it is in,
and one mark for each member of the line.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from dspark_json.engine.json_spans import Value

__all__ = ["MAX_ENTRIES", "MAX_PATH_BYTES", "Path", "Rescue"]

MAX_ENTRIES: Final = 1_000
MAX_PATH_BYTES: Final = 65_536

_PLAIN_STEP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Path(NamedTuple):
    """A place inside a record: the place it is in, and a member's name or an array's index. ``None`` is the root.

    ``is_shadowed``: the reader makes a field of that name at that place, this is the member on the wire.
    """

    parent: Path | None
    step: str | int
    is_shadowed: bool = False

    def __str__(self) -> str:
        steps = [_written(self)]
        place = self.parent
        while place is not None:
            steps.append(_written(place))
            place = place.parent
        return "".join(reversed(steps))

    @property
    def first_step(self) -> str | int:
        """The name of the record's member that the place is in."""
        place = self
        while place.parent is not None:
            place = place.parent
        return place.step


def _written(place: Path) -> str:
    """The last step of a path."""
    if isinstance(place.step, int):
        return f"[{place.step}]"
    if _PLAIN_STEP.fullmatch(place.step) and not place.is_shadowed:
        return place.step if place.parent is None else f".{place.step}"
    escaped = json.dumps(place.step, ensure_ascii=False)[1:-1].replace("'", "\\u0027")
    return f"['{escaped}']"


class _Entry(NamedTuple):
    """A value that is kept; ``place`` is where it stands in the record, and where inside a content of it."""

    place: tuple[int, int]
    path: str
    raw: str


class Rescue:
    """Collects the values of one record, or of one content, that found no column, and counts the mismatches among them.

    ``passes_a_bound``: nothing more is collected. Without ``keeps_unknown`` only the mismatches are kept
    (``schemaEvolutionMode=none``).
    """

    __slots__ = ("_entries", "_keeps_unknown", "_members", "_path_bytes", "mismatches", "passes_a_bound")

    def __init__(self, *, keeps_unknown: bool = True, passes_a_bound: bool = False) -> None:
        self._entries: list[_Entry] = []
        self._path_bytes = 0
        self._members: set[str | int] = set()
        self._keeps_unknown = keeps_unknown
        self.passes_a_bound = passes_a_bound
        self.mismatches = 0

    def for_content(self) -> Rescue:
        """An empty one for a content of this record, to be absorbed after it is read."""
        return Rescue(keeps_unknown=self._keeps_unknown, passes_a_bound=self.passes_a_bound)

    def unknown(self, path: Path | None, value: Value) -> None:
        """Keeps the value of a member that no column has; a null says nothing and is not kept."""
        if self._keeps_unknown and not value.is_null:
            self._keep(path, value)

    def mismatch(self, path: Path | None, value: Value) -> None:
        """Keeps a value of another type than its column has."""
        self.mismatches += 1
        self._keep(path, value)

    def bound_content(self, path: Path | None, root: Value) -> None:
        """After all of a content is read: its whole value, if what was kept of it passes a bound."""
        if self.passes_a_bound and self._entries:
            self._entries = [_entry(path, root)]

    def bound_record(self, members: dict[str, Value]) -> None:
        """After all of a record is read: its members' whole values, if what was kept of them passes a bound."""
        if self.passes_a_bound:
            wholes = [(Path(None, name), value) for name, value in members.items() if name in self._members]
            self._entries = [_entry(path, value) for path, value in wholes]

    def absorb(self, content: Rescue, position: int) -> None:
        """Takes over what a content kept; the content's text stands at ``position`` of the record."""
        self.mismatches += content.mismatches
        self._members |= content._members
        for entry in content._entries:
            self._add(entry._replace(place=(position, entry.place[0])))

    def text(self) -> str | None:
        """``{"<path>": <value as written>, …}`` in the order of the values in the record; ``None``: there are none."""
        if not self._entries:
            return None
        ordered = sorted(self._entries, key=lambda entry: entry.place)
        return "{" + ", ".join(f"{json.dumps(entry.path, ensure_ascii=False)}: {entry.raw}" for entry in ordered) + "}"

    def _keep(self, path: Path | None, value: Value) -> None:
        if path is not None:
            self._members.add(path.first_step)
        if not self.passes_a_bound:
            self._add(_entry(path, value))

    def _add(self, entry: _Entry) -> None:
        if self.passes_a_bound:
            return
        self._entries.append(entry)
        self._path_bytes += len(entry.path.encode())
        self.passes_a_bound = len(self._entries) > MAX_ENTRIES or self._path_bytes > MAX_PATH_BYTES


def _entry(path: Path | None, value: Value) -> _Entry:
    return _Entry((value.start, 0), "" if path is None else str(path), value.raw())
