"""The parsers to compare that run in this process, each one on one thread."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from dspark_json.cli.bench.wire_types import duckdb_type, record_columns, without_maps, without_timestamps
from dspark_json.engine.base import build_plan
from dspark_json.spool.access import DEFAULT_CHUNK_BYTES, Chunk

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from dspark_json.cli.bench.answers import AnswerFile
    from dspark_json.engine.base import Engine, ParsePlan

_MICROS: Final = pa.timestamp("us", tz="UTC")


class ParserFailedError(Exception):
    """A parser gives no rows for these answers; the text is its own."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over answers: CPU seconds of all threads, bytes read, answers that came out, contents with a value.

    ``reading_s`` are CPU seconds for reading the lines where they are known apart; ``cpu_s`` is without them.
    """

    cpu_s: float
    bytes: int
    rows: int
    typed: int | None
    reading_s: float | None = None


class Parser(Protocol):
    """One of those compared."""

    @property
    def name(self) -> str:
        """What it is called in the results."""
        ...

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """Parse the file, with ``content`` its contents too; raises ``ParserFailedError``."""
        ...


class EngineParser:
    """One of this package's engines, on chunks as the source reads them, over the first ``limit`` bytes if given.

    The columns are all declared ones, ``_rescued_data``, ``_corrupt_record`` and ``parse_status`` among them.
    """

    def __init__(self, engine: Engine, content_type: pa.DataType, limit: int | None = None) -> None:
        self._engine = engine
        self._limit = limit
        self._plans = {True: _plan(content_type), False: _plan(None)}

    @property
    def name(self) -> str:
        """The engine's."""
        return self._engine.name

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """See ``Parser.run``."""
        plan = self._plans[content]
        count = len(file.ends) if self._limit is None else file.within(self._limit)
        with file.path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            chunks = list(_chunks(memoryview(mapped), file.ends[:count]))
            # Mapped in, as after the check of a spool's records: reading is not measured.
            _ = mapped[:: mmap.PAGESIZE]
            rows = typed = 0
            started = time.process_time()
            while chunks:
                batch, _ = self._engine.parse(chunks.pop(0), plan)
                rows += batch.num_rows
                typed += _values(batch.column("choices"), "parsed") if content else 0
                del batch
            cpu_s = time.process_time() - started
        return Pass(cpu_s, file.ends[count - 1], rows, typed if content else None)


class PyArrowParser:
    """``pyarrow.json.read_json`` with the whole schema, then the contents as a second text of lines.

    It has no maps, and a timestamp is made of the number it reads.
    """

    name = "pyarrow.json"

    def __init__(self, content_type: pa.DataType) -> None:
        self._answer = pa.schema([without_maps(without_timestamps(column)) for column in record_columns()])
        self._content = pa.schema(list(content_type))

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """See ``Parser.run``."""
        started = time.process_time()
        try:
            with file.path.open("rb") as opened:
                answers = _read_json(opened, self._answer)
            seconds = answers.column("created").cast(pa.timestamp("s", tz="UTC"))
            answers = answers.set_column(answers.schema.get_field_index("created"), "created", seconds.cast(_MICROS))
            typed = None
            if content:
                first = pc.list_element(answers.column("choices"), 0)
                texts = pc.struct_field(first, ["message", "content"])
                lines = pc.binary_join_element_wise(texts, "", "\n").combine_chunks()
                typed = _read_json(pa.BufferReader(lines.buffers()[2]), self._content).num_rows
        except pa.ArrowException as error:
            raise ParserFailedError(str(error)) from error
        return Pass(time.process_time() - started, file.bytes, answers.num_rows, typed)


class DuckDbParser:
    """DuckDB's ``read_json`` with all columns, and ``from_json`` of the contents; what can't be read becomes NULL."""

    name = "duckdb"

    def __init__(self, content_type: pa.DataType) -> None:
        import duckdb

        self._error = duckdb.Error
        self._connection = duckdb.connect(config={"threads": 1})
        columns = [without_timestamps(column) for column in record_columns()]
        self._columns = "{" + ", ".join(f"'{c.name}': '{duckdb_type(c.type)}'" for c in columns) + "}"
        members = {field.name: _duckdb_shape(field.type) for field in content_type}
        self._shape = orjson.dumps(members).decode()

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """See ``Parser.run``."""
        path = str(file.path).replace("'", "''")
        parsed = f", try(from_json(choices[1].message.content, '{self._shape}')) AS parsed" if content else ""
        query = (
            f"SELECT * REPLACE (to_timestamp(created) AS created){parsed} FROM read_json('{path}', "  # noqa: S608
            f"format='newline_delimited', ignore_errors=true, columns={self._columns})"
        )
        started = time.process_time()
        try:
            table = self._connection.sql(query).to_arrow_table()
        except self._error as error:
            raise ParserFailedError(str(error)) from error
        cpu_s = time.process_time() - started
        rows = len(table) - table.column("id").null_count
        return Pass(cpu_s, file.bytes, rows, len(table) - table.column("parsed").null_count if content else None)


class OrjsonParser:
    """``orjson.loads`` of each line and content to Python objects: no types, no columns, no check of either."""

    name = "orjson"

    def run(self, file: AnswerFile, *, content: bool) -> Pass:
        """See ``Parser.run``."""
        rows = typed = 0
        started = time.process_time()
        with file.path.open("rb") as lines:
            for line in lines:
                try:
                    answer: Any = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                rows += 1
                if content:
                    try:
                        orjson.loads(answer["choices"][0]["message"]["content"])
                    except orjson.JSONDecodeError:
                        continue
                    typed += 1
        return Pass(time.process_time() - started, file.bytes, rows, typed if content else None)


def _plan(content_type: pa.DataType | None) -> ParsePlan:
    return build_plan(content_type=content_type)


def _chunks(buffer: memoryview, ends: Sequence[int]) -> Iterator[Chunk]:
    begin = first = 0
    while first < len(ends):
        stop = first
        while stop < len(ends) and (stop == first or ends[stop] - begin <= DEFAULT_CHUNK_BYTES):
            stop += 1
        relative = [end - begin for end in ends[first:stop]]
        yield Chunk("bench", "0000", first, buffer[begin : ends[stop - 1]], relative, [0] * len(relative))
        begin, first = ends[stop - 1], stop


def _values(choices: pa.ListArray, name: str) -> int:
    column = choices.values.field(name)
    return int(len(column) - column.null_count)


def _read_json(source: io.IOBase | pa.NativeFile, schema: pa.Schema) -> pa.Table:
    return pyarrow.json.read_json(
        source,
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=DEFAULT_CHUNK_BYTES),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _duckdb_shape(kind: pa.DataType) -> object:
    if pa.types.is_struct(kind):
        return {field.name: _duckdb_shape(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_duckdb_shape(kind.value_type)]
    return duckdb_type(kind)
