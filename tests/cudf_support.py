"""pylibcudf without a GPU: notes the calls made, holds each to the signature of the real one, and does it on the host.

``fixtures/pylibcudf/signatures.json`` has the signatures, as ``stub_signatures`` reads them out of the package's stubs.
Where libcudf's sources say that it is unkind to odd input, this is too: it takes no notice of what follows the first
value of a line, refuses all lines where some are no objects, takes any of the values of a name that is there twice, and
gives what is left of a list that is there twice to the next one.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import json
import re
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
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


@dataclass
class _Column:
    """Strings (bytes), or anything else as an Arrow array."""

    texts: list[bytes] | None = None
    array: pa.Array | None = None

    def to_arrow(self) -> pa.Array:
        assert self.array is not None
        return self.array

    def data(self) -> _Span:
        assert self.texts is not None
        return _Span(b"".join(self.texts))


@dataclass
class _Span:
    held: bytes

    @property
    def size(self) -> int:
        return len(self.held)


@dataclass
class _Options:
    """The reader's options as they were set; also its builder."""

    plc: HostCudf
    source: _Span
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
        self.TypeId = SimpleNamespace(STRING="STRING", STRUCT="STRUCT", LIST="LIST")
        self.DataType = call("types.DataType", lambda kind: kind)
        self.gpumemoryview = call("gpumemoryview.gpumemoryview", _view)
        self.Table = call("table.Table", list)
        self.Scalar = SimpleNamespace(from_py=call("scalar.Scalar.from_py", str.encode))
        self.Column = _callable(
            call("column.Column", _strings),
            from_arrow=call("column.Column.from_arrow", lambda array: _Column(array=array)),
            from_scalar=call("column.Column.from_scalar", lambda text, size: _Column(texts=[text] * size)),
        )
        self.interop = SimpleNamespace(ColumnMetadata=SimpleNamespace)
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
                columns[name] = pa.array(_passed_on(values, kind, inside), _type(kind, inside))
        names = [(name, _names(kind, inside)) for name, kind, inside in fields if name in columns]

        def to_arrow(metadata: list[Any]) -> pa.Table:
            assert [_named(one) for one in metadata] == names
            return pa.table(columns)

        return SimpleNamespace(
            tbl=SimpleNamespace(to_arrow=to_arrow),
            column_names=lambda *, include_children: names if include_children else [name for name, _ in names],
        )

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


def _view(held: Any) -> _Span:
    if isinstance(held, bytes):
        return _Span(held)
    shape, (pointer, _) = (held.__cuda_array_interface__[name] for name in ("shape", "data"))
    return _Span(ctypes.string_at(pointer, shape[0]))


def _strings(
    kind: str, size: int, data: _Span, mask: None, null_count: int, offset: int, children: list[_Column]
) -> _Column:
    assert (kind, mask, null_count, offset) == ("STRING", None, 0, 0)
    ends = children[0].to_arrow()
    assert ends.type == pa.int32()
    assert len(ends) == size + 1
    bounds = ends.to_pylist()
    return _Column(texts=[data.held[begin:end] for begin, end in pairwise(bounds)])


def _strip(column: _Column, side: str, what: bytes) -> _Column:
    assert column.texts is not None
    assert side == "RIGHT"
    return _Column(texts=[text.rstrip(what) for text in column.texts])


def _concatenate(columns: list[_Column], separator: bytes) -> _Column:
    rows = zip(*(column.texts or () for column in columns), strict=True)
    return _Column(texts=[separator.join(row) for row in rows])


def _count(column: _Column, program: re.Pattern[bytes]) -> _Column:
    return _Column(array=pa.array([len(program.findall(text)) for text in column.texts or ()], pa.int32()))


def _contains(column: _Column, program: re.Pattern[bytes]) -> _Column:
    return _Column(array=pa.array([program.search(text) is not None for text in column.texts or ()], pa.bool_()))


def _type(kind: str, inside: list[Any]) -> pa.DataType:
    if kind == "STRUCT":
        return pa.struct([pa.field(name, _type(*rest)) for name, *rest in inside])
    return pa.list_(_type(*inside[0][1:])) if kind == "LIST" else pa.string()


def _names(kind: str, inside: list[Any]) -> list[Any]:
    """The names of a column's children, as libcudf's JSON reader gives them."""
    if kind == "STRUCT":
        return [(name, _names(*rest)) for name, *rest in inside]
    return [("offsets", []), ("element", _names(*inside[0][1:]))] if kind == "LIST" else [("offsets", [])]


def _named(metadata: Any) -> tuple[str, list[Any]]:
    return metadata.name, [_named(one) for one in metadata.children_meta]
