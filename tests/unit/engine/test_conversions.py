"""What a reader turns into values is exactly what the text says, on both readers alike; a wrong GPU is refused."""

from __future__ import annotations

import importlib.util
import random
import re
import struct
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from cudf_support import HostCudf
from engine_support import choice_line, spans
from text_reader_support import HostTextReader, converted

from dspark_json.engine import build_plan
from dspark_json.engine.conversions import (
    CONVERSIONS,
    DECIMALS,
    DIGITS,
    LEFT,
    TO_BOOLEAN,
    TO_DOUBLE,
    TO_INT,
    VALUE,
    Conversion,
    conversion_to,
)
from dspark_json.engine.cudf import CudfEngine
from dspark_json.engine.cudf_conversions import CudfConversions
from dspark_json.engine.cudf_reader import CudfTextReader, import_pylibcudf
from dspark_json.engine.native import NativeEngine
from dspark_json.engine.selftest import NUMBERS, self_test
from dspark_json.engine.text_fields import TextField
from dspark_json.schema.ddl import from_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NATIVE = NativeEngine()
IDS = [f"{one.type}-{one.unit}" for one in CONVERSIONS]
MEMBERS = (
    *(TextField(f"m{i}", conversion=one) for i, one in enumerate(CONVERSIONS)),
    TextField("l", item=TextField("element", members=(TextField("x", conversion=TO_DOUBLE),))),
)
SCALAR = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false"
PLAN = build_plan(content_type=from_ddl("a BIGINT, c DOUBLE, d BOOLEAN, i INT"))


def drawn(draw: random.Random) -> str:
    """A number of some length, or something near one."""
    whole = "".join(
        draw.choice("0123456789") for _ in range(draw.choice((1, 1, 2, 7, 8, 9, 10, 11, 12, 16, 17, 18, 19)))
    )
    text = draw.choice(("", "", "-")) + (whole.lstrip("0") or "0")
    if draw.random() < 0.6:
        text += "." + "".join(draw.choice("00123456789") for _ in range(draw.choice((1, 2, 3, 6, 7, 8, 14, 16))))
    return text + draw.choice(("", "", "", "", "e0", "e-7", "E+22"))


def lines_of(numbers: Sequence[str]) -> list[bytes]:
    """Lines that have each number at each place; of values that are JSON, whatever a reader makes of others."""
    places = [f'"{one.name}":%s' for one in MEMBERS[:-1]] + ['"l":[{"x":%s},{"x":null}]']
    whole = [number for number in numbers if re.fullmatch(SCALAR, number)]
    return [b'{"m0":null}\n'] + [("{" + place % number + "}\n").encode() for number in whole for place in places]


def read(reader: Any, of: Sequence[bytes], members: Sequence[TextField] = MEMBERS) -> pa.StructArray:
    records = spans(of)
    rows = reader.read(records.buffer, records.ends, members).rows
    rows.validate(full=True)
    return rows


def test_both_readers_convert_the_same_texts_to_the_same_values() -> None:
    draw = random.Random(11)
    numbers = [*NUMBERS.split(), *(drawn(draw) for _ in range(1_500))]
    lines = lines_of(numbers)
    ours, theirs = read(CudfTextReader(HostCudf()), lines), read(HostTextReader(), lines)
    assert ours.type.equals(theirs.type)
    assert ours.equals(theirs)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=IDS)
def test_what_matches_is_a_value_and_nothing_else_is(conversion: Conversion) -> None:
    numbers = [*NUMBERS.split(), *map(str, range(-3, 4))]
    of = [f'{{"m":{number}}}\n'.encode() for number in numbers]
    column = read(CudfTextReader(HostCudf()), of, [TextField("m", conversion=conversion)]).field("m")
    values = column.field(VALUE).to_pylist()
    texts = {name: column.field(name).to_pylist() for name in (DIGITS, LEFT) if column.type.get_field_index(name) >= 0}
    for i, number in enumerate(numbers):
        left = [(name, part[i]) for name, part in texts.items() if part[i] is not None]
        if re.search(conversion.pattern, number):
            expected = pa.scalar(converted(number, conversion), conversion.type).as_py()
            assert repr(values[i]) == repr(expected)  # also the sign of a zero
            assert left == []
        else:
            assert values[i] is None
            named = DIGITS if conversion.digits and re.search(conversion.digits, number) else LEFT
            assert left in ([(named, number)], []), "not at all only where the line is no JSON"


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=IDS)
def test_columns_of_nothing_but_plain_texts_leave_as_values_and_those_without_values_are_not_looked_at(
    conversion: Conversion,
) -> None:
    cudf = HostCudf()
    text = "true" if conversion == TO_BOOLEAN else "7"
    members = [TextField("m", conversion=conversion), TextField("n", conversion=conversion)]
    rows = read(CudfTextReader(cudf), [f'{{"m":{text}}}\n'.encode(), b'{"n":null}\n'], members)
    assert rows.field("m").type == conversion.type
    assert rows.field("m").null_count == 1
    assert rows.field("n").type == pa.string()
    assert cudf.calls.count("strings.contains.matches_re") == 1
    assert "copying.copy_if_else" not in cudf.calls


def test_a_number_that_is_converted_is_a_whole_one_of_units_that_a_double_holds() -> None:
    """The proof that the division gives the nearest double: both numbers are exact."""
    draw = random.Random(5)
    found = 0
    for _ in range(60_000):
        text = drawn(draw)
        if re.search(TO_DOUBLE.pattern, text):
            found += 1
            units = Fraction(text) * 10**DECIMALS
            assert units.denominator == 1
            assert abs(units) < 1 << 53
            assert float(int(units)) / float(10**DECIMALS) == float(Fraction(text))
            assert units != 0 or not text.startswith("-")
    assert found > 5_000
    assert float(10**DECIMALS) == 10**DECIMALS


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=IDS)
def test_converted_integers_can_not_overflow(conversion: Conversion) -> None:
    if pa.types.is_floating(conversion.type) or conversion == TO_BOOLEAN:
        return
    most = max(length for length in range(1, 40) if re.search(conversion.pattern, "9" * length))
    scale = 1_000_000 if conversion.unit == "s" else 1
    bits = 32 if conversion == TO_INT else 64
    assert int("9" * most) * scale < 1 << (bits - 1)
    if conversion.unit is not None:
        assert int("9" * most) * scale <= 253_402_300_799_999_999, "no later than 9999"


def test_the_patterns_mean_the_same_to_arrow_and_to_python() -> None:
    draw = random.Random(3)
    texts = [*NUMBERS.split(), *(drawn(draw) for _ in range(2_000)), "", " 1", "1 ", "1\n2", "١"]
    for conversion in CONVERSIONS:
        for pattern in filter(None, (conversion.pattern, conversion.digits)):
            found = pc.match_substring_regex(pa.array(texts), pattern=pattern).to_pylist()
            assert found == [re.search(pattern, text) is not None for text in texts]
        assert conversion_to(conversion.type, conversion.unit) == conversion


def test_numbers_of_every_kind_give_the_rows_of_the_native_engine_and_plain_ones_need_no_other() -> None:
    draw = random.Random(17)
    plain = [choice_line('{"a":1,"c":0.25,"d":true,"i":-7}')]
    odd = [choice_line(f'{{"{name}":{drawn(draw)}}}') for _ in range(300) for name in "acdi"]
    records = spans([line for one in odd for line in (*plain * 4, one)])
    for reader in (HostTextReader(), CudfTextReader(HostCudf())):
        made, stats = CudfEngine(reader, NATIVE).parse(records, PLAN)
        assert made.equals(NATIVE.parse(records, PLAN)[0])
        assert len(plain) < stats.fallback < len(odd)


# -- a GPU that does it wrongly ----------------------------------------------------------------------------------------


def _single(cudf: HostCudf) -> None:
    _after(cudf.binaryop, "binary_operation", lambda value: struct.unpack("f", struct.pack("f", value))[0])


def _multiplied(cudf: HostCudf) -> None:
    _after(cudf.binaryop, "binary_operation", lambda value: value * 1e7 * 1e-7)


def _signed_zero(cudf: HostCudf) -> None:
    _after(cudf.binaryop, "binary_operation", lambda value: -value if value == 0 else value)


def _32_bits(cudf: HostCudf) -> None:
    _after(cudf.strings.convert.convert_integers, "to_integers", lambda n: (n + (1 << 31)) % (1 << 32) - (1 << 31))


def _through_a_double(cudf: HostCudf) -> None:
    _after(cudf.strings.convert.convert_integers, "to_integers", lambda n: int(float(n)))


def _without_a_sign(cudf: HostCudf) -> None:
    _after(cudf.strings.convert.convert_integers, "to_integers", abs)


def _without_decimals(cudf: HostCudf) -> None:
    _after(cudf.strings.convert.convert_fixed_point, "to_fixed_point", lambda n: n // 10**7 * 10**7)


def _seconds_as_they_are(cudf: HostCudf) -> None:
    _after(cudf.unary, "cast", lambda n: n // 1_000_000)


def _all_true(cudf: HostCudf) -> None:
    _after(cudf.strings.convert.convert_booleans, "to_booleans", lambda _: True)


def _matched_at_the_beginning(cudf: HostCudf) -> None:
    cudf.strings.regex_program.RegexProgram.create = lambda text, _: re.compile(text.rstrip("$").encode())


def _always_matched(cudf: HostCudf) -> None:
    _after(cudf.strings.contains, "matches_re", lambda _: True)


def _never_null(cudf: HostCudf) -> None:
    real = cudf.transform.bools_to_mask

    def wrong(bools: Any) -> Any:
        mask, _ = real(bools)
        mask.held = [True] * len(mask.held)
        return mask, 0

    cudf.transform.bools_to_mask = wrong


def _after(of: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change what a function of the module makes."""
    real = getattr(of, name)

    def wrong(*values: Any, **named: Any) -> Any:
        made = real(*values, **named)
        made.values = [change(value) for value in made.values]
        return made

    setattr(of, name, wrong)


@pytest.mark.parametrize(
    "spoil",
    [
        _single,
        _multiplied,
        _signed_zero,
        _32_bits,
        _through_a_double,
        _without_a_sign,
        _without_decimals,
        _seconds_as_they_are,
        _all_true,
        _matched_at_the_beginning,
        _always_matched,
        _never_null,
    ],
)
def test_the_self_test_refuses_a_gpu_that_converts_wrongly(spoil: Callable[[HostCudf], None]) -> None:
    cudf = HostCudf()
    spoil(cudf)
    assert self_test(CudfTextReader(cudf), NATIVE) != ""


# -- the real pylibcudf, as far as it goes without a GPU ---------------------------------------------------------------


@pytest.fixture
def plc() -> Any:
    if importlib.util.find_spec("pylibcudf") is None:
        pytest.skip("no pylibcudf here (extras gpu, gpu-cu13)")
    return import_pylibcudf()


def test_the_real_pylibcudf_takes_the_patterns_and_has_the_operations(plc: Any) -> None:
    CudfTextReader(plc)
    kind, kinds, operator = plc.DataType, plc.TypeId, plc.binaryop.BinaryOperator.TRUE_DIV
    assert plc.unary.is_supported_cast(kind(kinds.TIMESTAMP_SECONDS), kind(kinds.TIMESTAMP_MICROSECONDS))
    assert plc.binaryop.is_supported_operation(kind(kinds.FLOAT64), kind(kinds.INT64), kind(kinds.FLOAT64), operator)
    assert kind(kinds.DECIMAL64, -DECIMALS).scale() == -DECIMALS


def test_the_real_pylibcudf_builds_the_columns_that_the_host_expects(plc: Any) -> None:
    """Columns of memory that is not there; none of it is looked at before a GPU is."""

    def memory(size: int) -> Any:
        described = {"shape": (size,), "typestr": "|u1", "data": (4096, False), "version": 3, "strides": None}
        return plc.gpumemoryview(SimpleNamespace(__cuda_array_interface__=described))

    def column(kind: Any, size: int, nulls: int = 0, children: Sequence[Any] = ()) -> Any:
        mask = memory(64) if nulls else None
        data = None if kind in {kinds.STRUCT, kinds.LIST} else memory(8 * size)
        return plc.Column(plc.DataType(kind), size, data, mask, nulls, 0, children)

    def texts(size: int, nulls: int = 0) -> Any:
        return column(kinds.STRING, size, nulls, [column(kinds.INT32, size + 1)])

    class Converting(CudfConversions):
        """Converts all columns of texts, on no GPU, and leaves something over."""

        def _converted(self, texts: Any, title: str, conversion: Conversion) -> tuple[Any, Any]:
            values = self._seen_as(column(kinds.INT64, texts.size()), kinds.TIMESTAMP_MICROSECONDS)
            parts = {VALUE: values.with_mask(memory(64), 1), DIGITS: texts, LEFT: texts}
            named = [self._named(name, zone="UTC" if name == VALUE else "") for name in parts]
            return self._like(texts, list(parts.values()), kinds.STRUCT), self._named(title, named)

    kinds = plc.TypeId
    members = (TextField("x", conversion=TO_INT), TextField("y"))
    fields = TextField("v", members=(TextField("l", item=TextField("element", members=members)),))
    item = column(kinds.STRUCT, 5, 0, [texts(5, 2), texts(5)])
    lists = column(kinds.LIST, 3, 1, [column(kinds.INT32, 4), item])
    text: tuple[str, list[Any]] = ("offsets", [])
    names = ("v", [("l", [text, ("element", [("x", [text]), ("y", [text])])])])
    made, metadata = Converting(plc)._column(column(kinds.STRUCT, 3, 0, [lists]), names, fields)
    assert (made.size(), made.null_count(), made.child(0).null_count()) == (3, 0, 1)
    capsule = plc.Table([made])._to_schema([metadata])
    kind = pa.schema(SimpleNamespace(__arrow_c_schema__=lambda: capsule)).field("v").type
    x, y = (kind.field("l").type.value_type.field(name).type for name in "xy")
    assert y == pa.string()
    assert [x.field(i).name for i in range(x.num_fields)] == [VALUE, DIGITS, LEFT]
    assert [x.field(i).type for i in range(x.num_fields)] == [pa.timestamp("us", "UTC"), pa.string(), pa.string()]
