"""The text reader on a GPU: pylibcudf's JSON reader, and its regular expressions for counting (DESIGN §7).

What becomes of the texts before they leave the GPU is in ``cudf_conversions``.

Not ``read_json_from_string_column``: it takes neither the option that keeps the quotes of strings nor the strict
validation, and without these neither a number can be told from a string nor an invalid value from a valid one.

Each line is put into an object of its own, ``{"v":LINE,"e":0}``, by cuDF's string functions, before it is read. Two
things that libcudf does with lines make that necessary (``nested_json_gpu.cu``, ``host_tree_algorithms.cu``): where it
recovers from bad lines it also takes no notice of what follows the first value of a line, so that ``{"a":1} x`` would
pass for ``{"a":1}``; and it refuses all lines at once where some are objects and some are something else. Inside the
object, text after the value makes the line a bad one, and a line that closes the object itself has no member ``e``
unless it brings one along, which the count of members shows.

Written against pylibcudf 26.10; not yet run on a GPU. ``engine.selftest`` decides at the start whether it does what is
expected of it, and where it does not, it is not used.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dspark_json.engine.cudf_conversions import CudfConversions
from dspark_json.engine.text_fields import TextField, text_type
from dspark_json.engine.text_reader import MEMBER, NULL_MEMBER, ODD, OPENING, BatchRefusedError, TextBatch
from dspark_json.errors import EngineFailedError, EngineUnavailableError
from dspark_json.extras import installing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CudfTextReader", "import_pylibcudf"]

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = (1 << 31) - (1 << 20)  # a strings column counts its bytes in 32 bits
_KEPT_BYTES: Final = 256 << 20  # what CUDA's pool keeps for the next batch; the rest goes back to the model
_HEAD: Final = '{"v":'
_TAIL: Final = ',"e":0}\n'
_LINE: Final = "v"
_END: Final = TextField("e")
# How libcudf says that it will not take an input, as against a CUDA error, after which no call can be trusted.
_REFUSAL: Final = "CUDF failure"


def import_pylibcudf() -> Any:
    """The pylibcudf module. Raises ``EngineUnavailableError`` where it is not installed or can't be loaded."""
    try:
        import pylibcudf
        import pylibcudf.io.json
        import rmm
    except Exception as error:
        raise EngineUnavailableError(
            f"pylibcudf can't be imported ({type(error).__name__}: {error})",
            remedy=f"Install it, for CUDA 12: {installing('gpu')}; for CUDA 13: {installing('gpu-cu13')}.",
        ) from error
    pylibcudf.rmm = rmm
    return pylibcudf


class CudfTextReader:
    """Reads text with cuDF; see ``TextReader``. Safe from any thread, one batch at a time."""

    def __init__(self, pylibcudf: Any) -> None:
        """``pylibcudf`` is the module, from ``import_pylibcudf``."""
        self._plc = pylibcudf
        self._busy = threading.Lock()
        self._pooled = False
        program = pylibcudf.strings.regex_program.RegexProgram.create
        flags = pylibcudf.strings.regex_flags.RegexFlags.DEFAULT
        self._member, self._null_member, self._opening, self._odd = (
            program(pattern, flags) for pattern in (MEMBER, NULL_MEMBER, OPENING, ODD)
        )
        self._conversions = CudfConversions(pylibcudf)

    def read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        """See ``TextReader.read``."""
        size = ends[-1] + len(ends) * len(_HEAD + _TAIL)
        if size > _MOST_BYTES:
            raise EngineFailedError(
                f"a batch of {size} bytes is more than the GPU engine takes at once ({_MOST_BYTES})",
                remedy="Set maxBytesPerTrigger or minPartitions.",
            )
        with self._busy:
            self._use_pool()
            try:
                return self._read(data, ends, members)
            except RuntimeError as error:
                if _REFUSAL in str(error):
                    raise BatchRefusedError(str(error)) from error
                raise

    def _read(self, data: memoryview | int, ends: Sequence[int], members: Sequence[TextField]) -> TextBatch:
        plc = self._plc
        held: Any = _DeviceBytes(data, ends[-1]) if isinstance(data, int) else plc.rmm.DeviceBuffer.to_device(data)
        column = self._strings(plc.gpumemoryview(held), ends)
        rows = self._rows(self._wrapped(column, len(ends)), len(ends), members)
        count, contains = plc.strings.contains.count_re, plc.strings.contains.contains_re
        return TextBatch(
            rows=rows,
            members=_array(count(column, self._member).to_arrow()),
            nulls=_array(count(column, self._null_member).to_arrow()),
            openings=_array(count(column, self._opening).to_arrow()),
            odd=_array(contains(column, self._odd).to_arrow()),
        )

    def _wrapped(self, column: Any, count: int) -> Any:
        """The bytes of the lines, each in an object of its own."""
        plc = self._plc
        text, strings = plc.Scalar.from_py, plc.strings
        bare = strings.strip.strip(column, strings.side_type.SideType.RIGHT, text("\n"))
        head, tail = (plc.Column.from_scalar(text(one), count) for one in (_HEAD, _TAIL))
        return strings.combine.concatenate(plc.Table([head, bare, tail]), text("")).data()

    def _rows(self, span: Any, count: int, members: Sequence[TextField]) -> pa.StructArray:
        asked = (TextField(_LINE, members=tuple(members)), _END)
        found = self._plc.io.json.read_json(self.options(span, asked))
        names = found.column_names(include_children=True)
        table = self._conversions.table(found.tbl.columns(), names, asked)
        if table.num_rows != count:
            raise BatchRefusedError(f"it read {table.num_rows} rows out of {count} lines")
        given = {name: _array(table.column(name)) for name in table.column_names}
        lines = given.get(_LINE)
        whole = pc.fill_null(pc.equal(given.get(_END.name, pa.nulls(count, pa.string())), "0"), fill_value=False)
        parts: dict[str, pa.Array] = {}
        if lines is not None and pa.types.is_struct(lines.type):
            inside = (lines.type.field(i).name for i in range(lines.type.num_fields))
            parts = dict(zip(inside, lines.flatten(), strict=True))
        columns = [parts.get(one.name, pa.nulls(count, text_type(one))) for one in members]
        rows = pa.StructArray.from_arrays(columns, names=[one.name for one in members], mask=pc.invert(whole))
        return pa.StructArray.from_arrays(rows.flatten(), names=[one.name for one in members])

    def options(self, source: Any, members: Sequence[TextField]) -> Any:
        """How cuDF's reader is asked for these members of the lines in a span of memory."""
        io = self._plc.io
        options = (
            io.json.JsonReaderOptions.builder(io.types.SourceInfo([source]))
            .lines(val=True)
            .dtypes([self._dtype(one) for one in members])
            .prune_columns(val=True)
            .keep_quotes(val=True)
            .mixed_types_as_string(val=True)
            .normalize_whitespace(val=False)
            .normalize_single_quotes(val=False)
            .recovery_mode(io.types.JSONRecoveryMode.RECOVER_WITH_NULL)
            .experimental(val=True)  # names of members in UTF-8
            .build()
        )
        options.set_strict_validation(val=True)
        options.allow_unquoted_control_chars(val=False)
        options.allow_numeric_leading_zeros(val=False)
        options.allow_nonnumeric_numbers(val=False)
        return options

    def _use_pool(self) -> None:
        """Take memory from CUDA's own pool, unless somebody has chosen another way: a plain ``cudaMalloc`` waits for
        the whole GPU, the model's work included, and a batch makes hundreds of allocations."""
        if self._pooled:
            return
        self._pooled = True
        resources = self._plc.rmm.mr
        if type(resources.get_current_device_resource()) is resources.CudaMemoryResource:
            try:
                pool = resources.CudaAsyncMemoryResource(release_threshold=_KEPT_BYTES)
            except (RuntimeError, MemoryError) as error:
                _log.info("the GPU has no memory pool, each allocation is one of its own: %s", error)
                return
            resources.set_current_device_resource(pool)

    def _strings(self, span: Any, ends: Sequence[int]) -> Any:
        """The values as a column of strings, over the same bytes."""
        plc = self._plc
        offsets = plc.Column.from_arrow(pa.array([0, *ends], pa.int32()))
        kind = plc.DataType(plc.TypeId.STRING)
        return plc.Column(kind, len(ends), span, None, 0, 0, [offsets])

    def _dtype(self, one: TextField) -> tuple[str, Any, list[Any]]:
        kinds = self._plc.TypeId
        if one.members is not None:
            return one.name, self._plc.DataType(kinds.STRUCT), [self._dtype(member) for member in one.members]
        if one.item is not None:
            return one.name, self._plc.DataType(kinds.LIST), [self._dtype(one.item)]
        return one.name, self._plc.DataType(kinds.STRING), []


class _DeviceBytes:
    """Bytes in a GPU's memory that somebody else owns, as pylibcudf takes them."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


def _array(column: Any) -> pa.Array:
    """One Arrow array, without an offset."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array if array.offset == 0 else pa.concat_arrays([array])
