"""pylibcudf without a GPU: notes the calls made, holds each to the signature of the real one, and does it on the host.

``fixtures/pylibcudf/signatures.json`` has the signatures, as ``stub_signatures`` reads them out of the package's stubs.
Where libcudf's sources say that it is unkind to odd input, this is too: it takes no notice of what follows the first
value of a line, refuses all lines where some are no objects, takes any of the values of a name that is there twice, and
gives what is left of a list that is there twice to the next one. Its conversions wrap, and read what is before an odd
character, as those do.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import json
import re
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dspark_json.engine.json_spans import JsonSyntaxError, Kind, Value, parse_prefix, skip_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SIGNATURES = Path(__file__).parent / "fixtures/pylibcudf/signatures.json"


def stub_signatures(package: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The parameters (``name`` or ``name=``) of functions and methods, by their dotted names, out of stubs."""
    return {name: _stub_signature(package, name.split(".")) for name in names}


def _stub_signature(package: Path, path: list[str]) -> list[str]:
    length = next(n for n in range(1, len(path)) if package.joinpath(*path[:n]).with_suffix(".pyi").exists())
    tree = ast.parse(package.joinpath(*path[:length]).with_suffix(".pyi").read_text(encoding="utf-8"))
    body = tree.body
    for one in path[length:]:
        found = next(node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == one)
        body = found.body
    if isinstance(found, ast.ClassDef):
        found = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert isinstance(found, ast.FunctionDef)
    names = [one.arg for one in found.args.args]
    required = len(names) - len(found.args.defaults)
    given = [name + "=" * (i >= required) for i, name in enumerate(names)]
    return [name for name in given if name not in {"self", "cls"}]


class _Type(str):
    """A type by its name, and a decimal's scale."""

    __slots__ = ("scale",)
    scale: int

    def id(self) -> str:
        return str(self)


@dataclass
class _Memory:
    """Something in a GPU's memory: bytes, values, or which of the values are valid."""

    held: Any

    @property
    def size(self) -> int:
        return len(self.held)


@dataclass
class _Column:
    """Values (those of strings are bytes), which of them are valid, and the columns inside."""

    plc: HostCudf
    kind: _Type
    values: list[Any]
    valid: list[bool]
    inside: list[_Column] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def noted(*values: Any, **named: Any) -> Any:
            self.plc.note(f"column.Column.{name}", values, named)
            return getattr(type(self), f"_{name}")(self, *values, **named)

        return noted

    def _type(self) -> _Type:
        return self.kind

    def _size(self) -> int:
        return len(self.valid)

    def _null_count(self) -> int:
        return self.valid.count(False)

    def _null_mask(self) -> _Memory | None:
        return None if all(self.valid) else _Memory(self.valid)

    def _data(self) -> _Memory | None:
        if self.kind != "STRING":
            return None if self.inside else _Memory(self.values)
        return _Memory(b"".join(self.values))

    def _children(self) -> list[_Column]:
        return self.inside

    def _with_mask(self, mask: _Memory, null_count: int) -> _Column:
        assert mask.held.count(False) == null_count
        return _Column(self.plc, self.kind, self.values, mask.held, self.inside)

    def _to_arrow(self, metadata: Any = None) -> pa.Array:
        mask = pa.array([not one for one in self.valid], pa.bool_())
        if self.kind == "STRUCT":
            made = [one._to_arrow(of) for one, of in zip(self.inside, metadata.children_meta, strict=True)]
            return pa.StructArray.from_arrays(made, names=[of.name for of in metadata.children_meta], mask=mask)
        if self.kind == "LIST":
            offsets, items = self.inside
            made = items._to_arrow(metadata.children_meta[1])
            return pa.ListArray.from_arrays(pa.array(offsets.values, pa.int32()), made, mask=mask)
        zone = "" if metadata is None else metadata.timezone
        kind = pa.timestamp("us", zone) if zone else _ARROW[self.kind]
        values = [one.decode() for one in self.values] if self.kind == "STRING" else self.values
        return pa.array([one if good else None for one, good in zip(values, self.valid, strict=True)], kind)


_ARROW = {
    "STRING": pa.string(),
    "BOOL8": pa.bool_(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT64": pa.float64(),
    "TIMESTAMP_MICROSECONDS": pa.timestamp("us"),
}


@dataclass
class _Options:
    """The reader's options as they were set; also its builder."""

    plc: HostCudf
    source: _Memory
    settings: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Callable[..., _Options]:
        kind = "JsonReaderOptions" if "built" in self.settings else "JsonReaderOptionsBuilder"

        def set_one(*values: Any, **named: Any) -> _Options:
            self.plc.note(f"io.json.{kind}.{name}", values, named)
            self.settings["built" if name == "build" else name] = next(iter((*values, *named.values())), None)
            return self

        return set_one


@dataclass
class HostCudf:
    """Stands where the module ``pylibcudf`` is expected; ``pick`` is which of several values counts: 0 or -1."""

    pick: int = -1
    calls: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = json.loads(SIGNATURES.read_text(encoding="utf-8"))["signatures"]
        self._signatures = {name: _signature(given) for name, given in known.items()}
        call = self._call
        kinds = ("STRING", "STRUCT", "LIST", "DECIMAL64", "TIMESTAMP_SECONDS", *_ARROW)
        self.TypeId = SimpleNamespace(**{kind: _Type(kind) for kind in kinds})
        self.DataType = call("types.DataType", _data_type)
        self.gpumemoryview = call("gpumemoryview.gpumemoryview", _view)
        self.Table = call("table.Table", _Table)
        self.Scalar = SimpleNamespace(from_py=call("scalar.Scalar.from_py", _scalar))
        self.Column = _callable(
            call("column.Column", self._column),
            from_arrow=call("column.Column.from_arrow", lambda array: self._made("INT32", array.to_pylist())),
            from_scalar=call("column.Column.from_scalar", lambda text, size: self._made("STRING", [text] * size)),
        )
        self.interop = SimpleNamespace(
            ColumnMetadata=lambda *, name, timezone, children_meta: SimpleNamespace(
                name=name, timezone=timezone, children_meta=children_meta
            )
        )
        self.transform = SimpleNamespace(
            bools_to_mask=call("transform.bools_to_mask", lambda bools: _mask(bools.valid, bools.values))
        )
        self.copying = SimpleNamespace(copy_if_else=call("copying.copy_if_else", _copy_if_else))
        self.unary = SimpleNamespace(cast=call("unary.cast", _cast))
        self.binaryop = SimpleNamespace(
            BinaryOperator=SimpleNamespace(TRUE_DIV="/"),
            binary_operation=call("binaryop.binary_operation", _divided),
        )
        self.strings = SimpleNamespace(
            regex_program=SimpleNamespace(
                RegexProgram=SimpleNamespace(
                    create=call("strings.regex_program.RegexProgram.create", lambda text, _: re.compile(text.encode()))
                )
            ),
            regex_flags=SimpleNamespace(RegexFlags=SimpleNamespace(DEFAULT=0)),
            side_type=SimpleNamespace(SideType=SimpleNamespace(RIGHT="RIGHT")),
            strip=SimpleNamespace(strip=call("strings.strip.strip", _strip)),
            combine=SimpleNamespace(concatenate=call("strings.combine.concatenate", _concatenate)),
            contains=SimpleNamespace(
                count_re=call("strings.contains.count_re", _count),
                contains_re=call("strings.contains.contains_re", _contains),
                matches_re=call("strings.contains.matches_re", _matches),
            ),
            convert=SimpleNamespace(
                convert_integers=SimpleNamespace(
                    to_integers=call("strings.convert.convert_integers.to_integers", _to_integers)
                ),
                convert_fixed_point=SimpleNamespace(
                    to_fixed_point=call("strings.convert.convert_fixed_point.to_fixed_point", _to_fixed_point)
                ),
                convert_booleans=SimpleNamespace(
                    to_booleans=call("strings.convert.convert_booleans.to_booleans", _to_booleans)
                ),
            ),
        )
        builder = call("io.json.JsonReaderOptions.builder", partial(_Options, self))
        self.io = SimpleNamespace(
            types=SimpleNamespace(
                SourceInfo=call("io.types.SourceInfo", lambda sources: sources[0]),
                JSONRecoveryMode=SimpleNamespace(RECOVER_WITH_NULL="null"),
            ),
            json=SimpleNamespace(
                JsonReaderOptions=SimpleNamespace(builder=builder), read_json=call("io.json.read_json", self._read)
            ),
        )
        plain = type("CudaMemoryResource", (), {})
        self.resource: object = plain()
        self.rmm = SimpleNamespace(
            DeviceBuffer=SimpleNamespace(to_device=_buffer),
            mr=SimpleNamespace(
                CudaMemoryResource=plain,
                CudaAsyncMemoryResource=lambda *, release_threshold: f"a pool that keeps {release_threshold}",
                get_current_device_resource=lambda: self.resource,
                set_current_device_resource=partial(setattr, self, "resource"),
            ),
        )

    def note(self, name: str, values: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note a call, which must fit the real one's signature."""
        self._signatures[name].bind(*values, **named)
        self.calls.append(name)

    def _call(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*values: Any, **named: Any) -> Any:
            self.note(name, values, named)
            return work(*values, **named)

        return noted

    def _read(self, options: _Options) -> Any:
        self.settings = options.settings
        roots = []
        for line in options.source.held.split(b"\n"):
            if not line.strip():
                continue  # lines that are blank are none
            try:
                document = parse_prefix(line, skip_space(line, 0))
            except JsonSyntaxError:
                roots.append(None)
            else:
                roots.append(document.root)
        if any(root is not None and root.kind != Kind.OBJECT for root in roots):
            raise RuntimeError("CUDF failure at: host_tree_algorithms.cu: Should be 1")
        fields: list[Any] = options.settings["dtypes"]
        columns = {}
        for name, kind, inside in fields:
            values = [None if root is None else self._member(root, name, kind, inside) for root in roots]
            if any(value is not None for value in values):
                columns[name] = self._tree(_passed_on(values, kind, inside), kind, inside)
        names = [(name, _names(kind, inside)) for name, kind, inside in fields if name in columns]
        return SimpleNamespace(
            tbl=_Table(list(columns.values())),
            column_names=lambda *, include_children: names if include_children else [name for name, _ in names],
        )

    def _made(self, kind: str, values: list[Any]) -> _Column:
        return _Column(self, _Type(kind), values, [True] * len(values))

    def _tree(self, values: list[Any], kind: str, inside: list[Any]) -> _Column:
        """The column of values as the reader gives it."""
        valid = [value is not None for value in values]
        if kind == "STRING":
            texts = [b"" if value is None else value.encode() for value in values]
            return _Column(self, _Type(kind), texts, valid, [self._made("INT32", [])])
        if kind == "STRUCT":
            members = [[None if value is None else value[name] for value in values] for name, *_ in inside]
            children = [self._tree(of, *rest) for of, (_, *rest) in zip(members, inside, strict=True)]
            return _Column(self, _Type(kind), [], valid, children)
        ends = accumulate((len(value or ()) for value in values), initial=0)
        items = self._tree([item for value in values for item in value or ()], *inside[0][1:])
        return _Column(self, _Type(kind), [], valid, [self._made("INT32", list(ends)), items])

    def _column(
        self,
        kind: _Type,
        size: int,
        data: _Memory | None,
        mask: _Memory | None,
        null_count: int,
        offset: int,
        children: list[_Column],
    ) -> _Column:
        valid = [True] * size if mask is None else mask.held
        assert (len(valid), valid.count(False), offset) == (size, null_count, 0)
        if kind == "STRING":
            assert data is not None
            (ends,) = children
            assert (ends.kind, len(ends.values)) == ("INT32", size + 1)
            return self._made("STRING", [data.held[begin:end] for begin, end in pairwise(ends.values)])
        if kind in {"STRUCT", "LIST"}:
            assert data is None
            return _Column(self, kind, [], valid, children)
        assert data is not None
        assert not children
        return _Column(self, kind, data.held, valid)

    def _member(self, value: Value, name: str, kind: str, inside: list[Any]) -> Any:
        """What is read of a member; ``_Left`` where a list is there twice."""
        there = [one for found, one in value.occurrences() if found == name]
        read = [self._value(one, kind, inside) for one in there]
        read = [one for one in read if one is not None] if kind != "STRING" else read
        if kind == "LIST" and len(read) > 1:
            return _Left(read[0], [item for one in read[1:] for item in one])
        return read[self.pick] if read else None

    def _value(self, value: Value, kind: str, inside: list[Any]) -> Any:
        if value.is_null:
            return None
        if kind == "STRUCT":
            if value.kind != Kind.OBJECT:
                return None
            return {name: self._member(value, name, *rest) for name, *rest in inside}
        if kind == "LIST":
            (_, *item) = inside[0]
            return [self._value(one, *item) for one in value.items()] if value.kind == Kind.ARRAY else None
        return f'"{value.string()}"' if value.kind == Kind.STRING else value.raw()


@dataclass
class _Left:
    """A list, and the items of the others that were there beside it."""

    taken: list[Any]
    left: list[Any]


def _passed_on(values: list[Any], kind: str, inside: list[Any]) -> list[Any]:
    """Values of a column, where what is left of a list has gone to the next one that is not empty."""
    if kind == "STRUCT":
        for name, *rest in inside:
            there = [value for value in values if value is not None]
            for value, passed in zip(there, _passed_on([one[name] for one in there], *rest), strict=True):
                value[name] = passed
    if kind != "LIST":
        return values
    left: list[Any] = []
    made = []
    for value in values:
        taken = value.taken if isinstance(value, _Left) else value
        if taken:
            taken, left = [*left, *taken], []
        left = left + (value.left if isinstance(value, _Left) else [])
        made.append(taken)
    items = [item for one in made for item in one or ()]
    passed = iter(_passed_on(items, *inside[0][1:]))
    return [None if one is None else [next(passed) for _ in one] for one in made]


def _signature(given: list[str]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [
            inspect.Parameter(one.rstrip("="), kind, default=None if one.endswith("=") else inspect.Parameter.empty)
            for one in given
        ]
    )


def _callable(work: Callable[..., Any], **attributes: Any) -> Any:
    """What is called itself, and has functions besides: a class with static methods."""
    methods = {name: staticmethod(one) for name, one in attributes.items()}
    return type("Callable", (), {"__call__": lambda _, *v, **n: work(*v, **n), **methods})()


def _buffer(data: memoryview) -> bytes:
    assert data.format == "B"
    assert data.contiguous
    return bytes(data)


def _view(held: Any) -> _Memory:
    if isinstance(held, bytes):
        return _Memory(held)
    shape, (pointer, _) = (held.__cuda_array_interface__[name] for name in ("shape", "data"))
    return _Memory(ctypes.string_at(pointer, shape[0]))


@dataclass
class _Table:
    held: list[_Column]

    def columns(self) -> list[_Column]:
        return self.held

    def to_arrow(self, metadata: list[Any]) -> pa.Table:
        made = {of.name: one._to_arrow(of) for one, of in zip(self.held, metadata, strict=True)}
        return pa.table(made)


def _data_type(kind: str, scale: int = 0) -> _Type:
    made = _Type(kind)
    made.scale = scale
    return made


def _scalar(value: Any, dtype: _Type | None = None) -> Any:
    assert value is not None or dtype is not None
    return value.encode() if isinstance(value, str) else value


def _mask(valid: list[bool], values: list[Any]) -> tuple[_Memory, int]:
    mask = [there and bool(value) for there, value in zip(valid, values, strict=True)]
    return _Memory(mask), mask.count(False)


def _other(column: _Column, kind: str, values: list[Any]) -> _Column:
    """Other values of a column, null where it is."""
    return _Column(column.plc, _Type(kind), values, column.valid)


def _strip(column: _Column, side: str, what: bytes) -> _Column:
    assert side == "RIGHT"
    return _other(column, "STRING", [text.rstrip(what) for text in column.values])


def _concatenate(table: _Table, separator: bytes) -> _Column:
    rows = zip(*(column.values for column in table.held), strict=True)
    return _other(table.held[0], "STRING", [separator.join(row) for row in rows])


def _count(column: _Column, program: re.Pattern[bytes]) -> _Column:
    return _other(column, "INT32", [len(program.findall(text)) for text in column.values])


def _contains(column: _Column, program: re.Pattern[bytes]) -> _Column:
    return _other(column, "BOOL8", [program.search(text) is not None for text in column.values])


def _matches(column: _Column, program: re.Pattern[bytes]) -> _Column:
    return _other(column, "BOOL8", [program.match(text) is not None for text in column.values])


def _copy_if_else(first: Any, second: Any, mask: _Column) -> _Column:
    """One of the two is a column of strings, the other a null."""
    column, taken = (first, True) if second is None else (second, False)
    assert (first is None) is not (second is None)
    chosen = [(known and value) is taken for value, known in zip(mask.values, mask.valid, strict=True)]
    valid = [there and here for there, here in zip(column.valid, chosen, strict=True)]
    values = [value if there else b"" for value, there in zip(column.values, valid, strict=True)]
    return _Column(column.plc, column.kind, values, valid, column.inside)


def _wrapped(number: int, bits: int) -> int:
    """What is left of an integer in so many bits."""
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _to_integers(column: _Column, kind: _Type) -> _Column:
    """``string_to_int.cuh``: what is before the first character that is no digit, wrapped."""
    numbers = []
    for text in column.values:
        found = re.match(rb"[-+]?[0-9]*", text)
        assert found is not None
        digits = found[0].lstrip(b"+")
        numbers.append(_wrapped(_wrapped(int(digits) if digits.strip(b"-") else 0, 64), int(kind[3:])))
    return _other(column, kind, numbers)


def _to_fixed_point(column: _Column, kind: _Type) -> _Column:
    """``fixed_point.cuh``: the digits before an exponent, in units of the scale, cut off behind it, wrapped."""
    assert kind == "DECIMAL64"
    numbers = []
    for text in column.values:
        sign, whole, decimals, exponent = _PARTS.match(text).groups()  # type: ignore[union-attr]
        power = int(exponent or 0) - len(decimals or b"") - kind.scale
        digits = int((whole + (decimals or b"")) or 0)
        value = digits * 10**power if power >= 0 else digits // 10**-power
        numbers.append(_wrapped(-value if sign == b"-" else value, 64))
    return _other(column, kind, numbers)


_PARTS = re.compile(rb"([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,4}))?")


def _to_booleans(column: _Column, true: bytes) -> _Column:
    return _other(column, "BOOL8", [text == true for text in column.values])


def _cast(column: _Column, kind: _Type) -> _Column:
    assert (column.kind, kind) == ("TIMESTAMP_SECONDS", "TIMESTAMP_MICROSECONDS"), "no other is known to be there"
    return _other(column, kind, [_wrapped(value * 1_000_000, 64) for value in column.values])


def _divided(first: _Column, second: float, operator: str, kind: _Type) -> _Column:
    assert (first.kind, operator, kind) == ("INT64", "/", "FLOAT64")
    return _other(first, kind, [float(value) / second for value in first.values])


def _names(kind: str, inside: list[Any]) -> list[Any]:
    """The names of a column's children, as libcudf's JSON reader gives them."""
    if kind == "STRUCT":
        return [(name, _names(*rest)) for name, *rest in inside]
    return [("offsets", []), ("element", _names(*inside[0][1:]))] if kind == "LIST" else [("offsets", [])]
