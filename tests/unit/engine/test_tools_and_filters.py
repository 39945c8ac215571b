"""Typed arguments of one tool's calls, the filters, renamed columns, and rows without unknown fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_support import choice_line, line, parse, row, rows

from dspark_json.engine import build_plan
from dspark_json.errors import ContentSchemaError, InvalidOptionError, MalformedRecordError, SchemaError
from dspark_json.schema.ddl import from_ddl

WEATHER = from_ddl("city STRING, days BIGINT")
ORDER = from_ddl("a BIGINT")
HASH = "0123456789abcdef" * 4


def call_line(*calls: tuple[str, str], content: str | None = None, finish_reason: str = "tool_calls") -> bytes:
    """A line whose answer is one choice with these calls (name, arguments)."""
    tool_calls = [
        {"id": str(n), "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"content": content, "tool_calls": tool_calls}
    return line(json.dumps({"choices": [{"message": message, "finish_reason": finish_reason}]})[1:-1])


def functions(made: Any) -> list[Any]:
    return [call["function"] for call in made["choices"][0]["message"]["tool_calls"]]


def schema(name: str | None, hash_: str = HASH) -> dict[str, Any]:
    return {"schema": {"name": name, "hash": hash_}}


def test_the_arguments_of_the_tool_have_its_type_and_those_of_others_are_null() -> None:
    plan = build_plan(tool_type=WEATHER, tools=frozenset({"weather"}))
    made = row(call_line(("clock", '{"zone":"UTC"}'), ("weather", '{"city":"Rome","days":3}')), plan)
    clock, weather = functions(made)
    assert (clock["arguments"], clock["parsed_arguments"], clock["arguments_status"]) == ('{"zone":"UTC"}', None, None)
    assert (weather["parsed_arguments"], weather["arguments_status"]) == ({"city": "Rome", "days": 3}, "ok")
    assert made["choices"][0]["parse_status"] is None


def test_without_names_the_arguments_of_all_calls_have_the_type() -> None:
    made = row(call_line(("a", '{"city":"Rome"}'), ("b", '{"days":1}')), build_plan(tool_type=WEATHER))
    assert [one["parsed_arguments"]["city"] for one in functions(made)] == ["Rome", None]


def test_what_arguments_have_beyond_their_type_is_rescued_at_its_place_in_the_record() -> None:
    plan = build_plan(content_type=ORDER, tool_type=WEATHER)
    answer = (
        '"x":1,"choices":[{"message":{"content":"{\\"b\\":4}","tool_calls":[{"function":{"name":"w",'
        '"arguments":"{\\"city\\":\\"R\\",\\"unit\\":\\"C\\",\\"days\\":\\"two\\"}"}}],"y":2}}]'
    )
    made, stats = parse([line(answer)], plan)
    assert list(json.loads(made.column("_rescued_data")[0].as_py()).items()) == [
        ("x", 1),
        ("choices[0].parsed.b", 4),
        ("choices[0].message.tool_calls[0].function.parsed_arguments.unit", "C"),
        ("choices[0].message.tool_calls[0].function.parsed_arguments.days", "two"),
        ("choices[0].message.y", 2),
    ]
    assert functions(made.to_pylist()[0])[0]["arguments_status"] == "mismatch"
    assert stats.mismatches == 1


def test_arguments_that_were_cut_short_are_truncated() -> None:
    plan = build_plan(tool_type=WEATHER, tools=frozenset({"weather"}))
    cut, broken = rows(
        [
            call_line(("weather", '{"city":"Ro'), finish_reason="length"),
            call_line(("weather", "{city}")),
        ],
        plan,
    )
    assert functions(cut)[0]["arguments_status"] == "truncated"
    assert functions(broken)[0]["arguments_status"] == "invalid"


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ("order", [0, 2]),
        (HASH[:6], [0, 1]),
        (HASH.upper()[:12], [0, 1]),
        (HASH[:5], []),
        ("Order", []),
        ("missing", []),
        (None, [0, 1, 2, 3]),
    ],
)
def test_only_the_answers_asked_for_with_the_schema_are_kept(wanted: str | None, kept: list[int]) -> None:
    lines = [
        choice_line("{}", **schema("order")),
        choice_line("{}", **schema(None)),
        choice_line("{}", **schema("order", "f" * 64)),
        choice_line("{}"),
    ]
    made, stats = parse(lines, build_plan(content_type=ORDER, answers_of=wanted))
    assert [one["seq"] - 70 for one in made.column("_dspark").to_pylist()] == kept
    assert (stats.records, stats.filtered) == (4, 4 - len(kept))


def test_failed_and_truncated_answers_of_the_schema_are_kept() -> None:
    plan = build_plan(content_type=ORDER, answers_of="order")
    record = '"path":"/v1/chat/completions","status":500,"completed":false,"schema":{"name":"order","hash":"aa"}'
    made = rows([choice_line('{"a":', "length", **schema("order")), line('"error":{"message":"no"}', record)], plan)
    assert [one["_dspark"]["status"] for one in made] == [200, 500]
    assert made[0]["choices"][0]["parse_status"] == "truncated"


def test_a_line_that_cannot_be_read_is_kept_where_it_cannot_be_told() -> None:
    plan = build_plan(content_type=ORDER, answers_of="order", tools=frozenset({"weather"}))
    head = b'{"_dspark":{"seq":1,"schema":{"name":"%s","hash":"aa"}},'
    made, stats = parse([head % b"order" + b"\n", head % b"other" + b"\n", b"nothing\n"], plan)
    assert made.column("_corrupt_record").to_pylist() == [(head % b"order").decode(), "nothing"]
    assert stats.filtered == 1


def test_only_answers_that_call_the_tool_are_kept_and_both_filters_hold() -> None:
    weather, clock = call_line(("weather", "{}")), call_line(("clock", "{}"))
    lines = [weather, clock, call_line(("clock", "{}"), ("weather", "{}")), choice_line("{}"), line()]
    _, stats = parse(lines, build_plan(tool_type=WEATHER, tools=frozenset({"weather"})))
    assert stats.filtered == 3
    both = build_plan(tool_type=WEATHER, tools=frozenset({"weather"}), answers_of="order")
    assert parse(lines, both)[1].filtered == 5


def test_modes_judge_only_what_the_filters_keep() -> None:
    plan = build_plan(content_type=ORDER, answers_of="order", mode="FAILFAST")
    made, stats = parse([choice_line("nothing"), choice_line('{"a":1}', **schema("order"))], plan)
    assert (made.num_rows, stats.filtered, stats.invalid) == (1, 1, 0)
    with pytest.raises(MalformedRecordError, match="record 71 of lane 0003"):
        parse([choice_line("nothing"), choice_line("nothing", **schema("order"))], plan)


def test_modes_judge_the_arguments_that_have_a_type() -> None:
    broken = call_line(("weather", "{city}"))
    typed = {"tool_type": WEATHER, "tools": frozenset({"weather"})}
    assert parse([broken], build_plan(**typed, mode="DROPMALFORMED"))[1].dropped == 1
    assert parse([broken], build_plan(mode="DROPMALFORMED"))[1].dropped == 0
    with pytest.raises(MalformedRecordError, match="invalid"):
        parse([broken], build_plan(**typed, mode="FAILFAST"))


def test_the_two_columns_of_what_did_not_fit_can_have_other_names() -> None:
    plan = build_plan(content_type=ORDER, corrupt_column="bad", rescued_column="rest")
    made, stats = parse([b"nothing\n", choice_line('{"b":1}')], plan)
    assert made.column("bad").to_pylist() == ["nothing", None]
    assert made.column("rest").to_pylist() == [None, '{"choices[0].parsed.b": 1}']
    assert not {"_corrupt_record", "_rescued_data"} & set(made.schema.names)
    assert stats.corrupt == 1


@pytest.mark.parametrize(("corrupt", "rescued"), [("id", "rest"), ("bad", "Model"), ("same", "SAME")])
def test_a_name_that_another_column_has_is_refused(corrupt: str, rescued: str) -> None:
    with pytest.raises(InvalidOptionError, match="another column has it"):
        build_plan(corrupt_column=corrupt, rescued_column=rescued)


def test_a_users_schema_names_the_columns_by_their_new_names() -> None:
    columns = build_plan(rescued_column="rest").declared
    assert build_plan(columns, rescued_column="rest").columns.names == columns.names
    with pytest.raises(SchemaError, match='no "rest"'):
        build_plan(columns)


def test_without_rescue_of_unknown_fields_only_mismatches_are_rescued() -> None:
    plan = build_plan(content_type=ORDER, tool_type=WEATHER, rescue_unknown=False)
    made = row(choice_line('{"a":"x","b":1}'), plan)
    assert made["_rescued_data"] == '{"choices[0].parsed.a": "x"}'
    assert row(line('"x":1'), plan)["_rescued_data"] is None
    assert row(call_line(("w", '{"x":1}')), plan)["_rescued_data"] is None


def test_a_tool_type_that_arguments_cannot_have_is_refused() -> None:
    import pyarrow as pa

    with pytest.raises(ContentSchemaError):
        build_plan(tool_type=pa.struct([]))


def test_filtered_records_are_logged_with_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="dspark_json"):
        parse([choice_line("{}")], build_plan(answers_of="order"))
    assert "filtered_records 1" in caplog.text
