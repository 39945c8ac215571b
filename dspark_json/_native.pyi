# Native code in Rust: the parse engine (dspark_json.engine.native), the hook's glance (dspark_json.capture.glance), the
# lines of a spool (dspark_json.spool.framing) and their checksums (dspark_json.spool.checksums).

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, final

from typing_extensions import Buffer

from dspark_json.capture.captured import Captured

class _ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> object: ...

# A malformed record in mode FAILFAST: its number, and the status of a content or None.
class MalformedError(Exception): ...

# The engine failed at a record: its number, and why.
class EngineError(Exception): ...

# Rows, to be taken over once: an ArrowArray of the plan's columns, at an address that holds as long as this lives.
@final
class Batch:
    def address(self) -> int: ...

# Counts of one batch.
@final
class Stats:
    records: int
    bytes: int
    corrupt: int
    mismatches: int
    invalid: int
    truncated: int
    dropped: int
    filtered: int

# What to make of records; threads may share it.
@final
class Plan:
    def __new__(
        cls,
        declared: _ArrowSchema,
        columns: _ArrowSchema,
        *,
        typed_content: bool,
        typed_arguments: bool,
        tools: Sequence[str] | None,
        answers_of: str | None,
        strict: bool,
        mode: str,
        corrupt_column: str,
        rescued_column: str,
        rescue_unknown: bool,
    ) -> Plan: ...
    def parse(
        self,
        buffer: Buffer,
        ends: Sequence[int],
        appended_at: Sequence[int],
        first_seq: int,
        spool_id: str,
        lane: str,
    ) -> tuple[Batch, Stats]: ...

# A record's meta up to the reference to its schema, and from there on (None: it is all in the first); the answer's
# members; the place of its schema among those of the group; whether the client left; the model that was asked for JSON
# without a schema.
Draft: TypeAlias = tuple[bytes, bytes | None, bytes, int, bool, str | None]
# The half of an exchange that is out of the ordinary; the answer is not looked at where the request is.
OddHalf: TypeAlias = Literal["request", "answer"]

# What to look for in requests and answers; threads may share it.
@final
class Glance:
    def __new__(
        cls,
        *,
        settings: Sequence[str],
        echoed: Sequence[str],
        echoed_inside: Sequence[str],
        echoed_in_output: Sequence[str],
        errors: Sequence[str],
        passed_events: Sequence[str],
        last_events: Sequence[str],
        top_order: Sequence[str],
        message_order: Sequence[str],
        text_choice_order: Sequence[str],
    ) -> Glance: ...
    def request(self, text: bytes) -> tuple[str | None, bool, bytes, str | None, bytes | None, bool] | None: ...
    def answer(self, text: bytes) -> tuple[str | None, str | None, bool, bytes] | None: ...
    def stream(self, parts: list[bytes], is_ended: bool) -> tuple[str | None, str | None, bool, bool, bytes] | None: ...
    def response(self, parts: list[bytes], is_private: bool) -> tuple[str | None, str | None, bool, bytes] | None: ...
    def streamed_response(
        self, parts: list[bytes], is_private: bool
    ) -> tuple[str | None, str | None, bool, bytes] | None: ...
    # The drafts (None: it was not looked at), and each schema: its name, its text, how many refer to it, when the last
    # one came.
    def drafts(
        self,
        exchanges: list[Captured],
        routes: Sequence[str],
        most_of_request: int,
        most_of_answer: int,
        most_of_stream: int,
        keeps_settings: bool,
    ) -> tuple[list[Draft | OddHalf | None], list[tuple[str | None, bytes, int, int]]]: ...

# Lines and index entries of records (pairs of meta and members), one part a segment: its first number, both.
def frame(
    records: Sequence[tuple[bytes, bytes]], seq: int, lane: str, end: int, full: int, appended_at: int
) -> list[tuple[int, bytes, bytes]]: ...

# Lines into the file data, then entries into the file index: the step that failed (0: none, 1: lines, 2: entries, 3:
# the look at the names), its error number, and whether the files still have their names (path is the index's).
# ValueError for a negative number of a file.
def store(
    data: int, lines: bytes, end: int, index: int, entries: bytes, place: int, path: Path
) -> tuple[int, int, bool]: ...

# The position of the first line buffer[ends[i - 1]:ends[i]] that does not match its CRC-32.
def first_damaged(buffer: Buffer, ends: Sequence[int], crcs: Sequence[int]) -> int | None: ...
