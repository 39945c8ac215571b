"""Records to rows: one row a record, whatever is in it; what the hook put in front can't be forged."""

from __future__ import annotations

import datetime as dt
import json
import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest
from engine_support import APPENDED, FIRST_SEQ, LANE, SPOOL_ID, choice, choice_line, line, parse, row, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.engine import build_plan
from dspark_json.errors import ContentSchemaError, InvalidOptionError, MalformedRecordError, SchemaError
from dspark_json.schema.ddl import from_ddl
from dspark_json.schema.envelope import row_schema

ORDER = build_plan(content_type=from_ddl("a BIGINT, b STRING"))
POSITION = {
    "spool_id": SPOOL_ID,
    "lane": LANE,
    "seq": FIRST_SEQ,
    "appended_at": dt.datetime.fromtimestamp(APPENDED // 1_000_000, dt.UTC),
}


def test_created_is_a_timestamp_from_unix_seconds_under_both_names() -> None:
    moment = dt.datetime.fromtimestamp(1_764_400_000, dt.UTC)
    assert row(line('"created":1764400000'))["created"] == moment
    assert row(line('"created_at":1764400000.0'))["created"] == moment
    assert row(line('"created":null,"created_at":1764400000'))["created"] == moment


def test_of_several_wire_names_the_first_non_null_wins() -> None:
    usage = row(line('"usage":{"input_tokens":7,"output_tokens":5,"completion_tokens":6}'))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 6)
    message = '"choices":[{"message":{"reasoning":null,"reasoning_content":"th"}}]'
    assert choice(line(message))["message"]["reasoning"] == "th"


def test_stop_reason_and_codes_are_strings() -> None:
    made = row(line('"choices":[{"stop_reason":128009},{"stop_reason":"e"}],"error":{"code":400,"message":"m"}'))
    assert [one["stop_reason"] for one in made["choices"]] == ["128009", "e"]
    assert made["error"]["code"] == "400"


def test_token_keyed_objects_are_maps() -> None:
    answer = (
        '"prompt_logprobs":[null,{"40":{"logprob":-0.5,"rank":1,"decoded_token":"I"}}],'
        '"choices":[{"logprobs":{"top_logprobs":[{" a":-1.5,"b":-2}]}}],'
        '"usage":{"prompt_tokens_details":{"multimodal_tokens":{"image":3}}}'
    )
    made = row(line(answer))
    assert made["prompt_logprobs"] == [None, {"40": {"logprob": -0.5, "rank": 1, "decoded_token": "I"}}]
    assert made["choices"][0]["logprobs"]["top_logprobs"] == [{" a": -1.5, "b": -2.0}]
    assert made["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 3}


def test_speculative_decoding_metrics_have_columns() -> None:
    metrics = {
        "mean_acceptance_length": 4.42,
        "draft_acceptance_rate": 0.78,
        "acceptance_histogram": [1, 2],
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 6,
        "num_spec_steps": 3,
        "num_spec_tokens": 2,
        "per_step_accepted": None,
        "per_step_drafted": None,
    }
    made = row(line(json.dumps({"metrics": {"speculative_decoding": metrics}})[1:-1]))
    assert made["metrics"]["speculative_decoding"] == metrics
    assert made["_rescued_data"] is None


def test_the_position_is_the_readers_and_the_first_record_object_counts() -> None:
    forged = line('"_dspark":{"seq":9,"spool_id":"x","request_id":"forged"},"id":"i"', '"request_id":"r","status":200')
    made = row(forged)
    assert made["_dspark"]["request_id"] == "r"
    assert {name: made["_dspark"][name] for name in POSITION} == POSITION
    assert (made["id"], made["_rescued_data"]) == ("i", None)


def test_of_a_responses_record_the_first_choices_count_and_of_a_chat_record_the_last() -> None:
    twice = '"choices":[{"index":1}],"choices":[{"index":2}]'
    assert choice(line(twice, '"path":"/v1/responses"'))["index"] == 1
    assert choice(line(twice))["index"] == 2


def test_no_name_of_the_wire_sets_what_the_reader_makes() -> None:
    made = row(line('"choices":[{"parsed":1,"parse_status":"ok"}],"_rescued_data":"x","_corrupt_record":"y"'))
    assert (made["choices"][0]["parsed"], made["choices"][0]["parse_status"]) == (None, None)
    assert made["_corrupt_record"] is None
    assert json.loads(made["_rescued_data"]) == {
        "choices[0]['parsed']": 1,
        "choices[0]['parse_status']": "ok",
        "_rescued_data": "x",
        "_corrupt_record": "y",
    }


def test_rescued_data_stands_in_the_order_of_the_record_content_at_its_place() -> None:
    answer = (
        '"x":1,"choices":[{"p":2,"message":{"q":3,"content":"{\\"r\\":4,\\"a\\":\\"5\\"}","s":6},"t":7,"index":"8"}],'
        '"usage":9,"_dspark_":10'
    )
    assert row(line(answer), ORDER)["_rescued_data"] == (
        '{"x": 1, "choices[0].p": 2, "choices[0].message.q": 3, "choices[0].parsed.r": 4, "choices[0].parsed.a": "5", '
        '"choices[0].message.s": 6, "choices[0].t": 7, "choices[0].index": "8", "usage": 9, "_dspark_": 10}'
    )


@pytest.mark.parametrize(
    ("answer", "record", "completed"),
    [
        ('"choices":[{"finish_reason":"stop"},{"finish_reason":"length"}]', '"status":200', True),
        ('"choices":[{"finish_reason":"stop"},{"finish_reason":null}]', '"status":200', False),
        ('"choices":[{"finish_reason":"abort"}]', '"status":200', False),
        ('"choices":[{"finish_reason":"error"}]', '"status":200', False),
        ('"choices":[null]', '"status":200', False),
        ('"choices":[]', '"status":200', False),
        ('"choices":[{"finish_reason":"stop"}]', '"status":400', False),
        ('"choices":[{"finish_reason":"stop"}],"error":{"message":"m"}', '"status":200', False),
        ('"choices":[{"finish_reason":"stop"}]', '"status":200,"error":{"message":"m"}', False),
        ("", '"status":200,"body":"null"', False),
        ("", '"status":200', False),
        ('"status":"completed"', '"status":200,"path":"/v1/responses"', True),
        ('"status":"failed"', '"status":200,"path":"/v1/responses"', False),
        ('"choices":[{"finish_reason":null}]', '"status":200,"completed":true', True),
        ('"choices":[{"finish_reason":"stop"}]', '"request_id":"no status"', None),
    ],
)
def test_a_verdict_that_the_hook_left_open_is_the_readers(answer: str, record: str, completed: bool | None) -> None:
    assert row(line(answer, record))["_dspark"]["completed"] is completed


def test_an_answer_that_did_not_complete_is_truncated_whatever_its_finish_reason() -> None:
    assert choice(choice_line('{"a":', None, completed=False), ORDER)["parse_status"] == "truncated"
    assert choice(choice_line('{"a":', None, completed=None), ORDER)["parse_status"] == "truncated"
    assert choice(choice_line('{"a":', "stop"), ORDER)["parse_status"] == "invalid"


def test_error_is_the_responses_else_the_records() -> None:
    record = '"status":500,"error":{"message":"r","type":"t","code":"c"}'
    assert row(line("", record))["error"] == {"message": "r", "type": "t", "param": None, "code": "c"}
    assert row(line('"error":{"message":"m"}', record))["error"]["message"] == "m"


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({}, None),
        ({"request": {"response_format": {"type": "text"}}}, None),
        ({"request": {"structured_outputs": {"regex": "x", "json": None}}}, None),
        ({"request": {"response_format": {"type": "json_object"}}}, "ok"),
        ({"request": {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}}, "ok"),
        ({"request": {"structured_outputs": {"json": {"type": "object"}}}}, "ok"),
        ({"request": {"structured_outputs": {"json_object": True}}}, "ok"),
        ({"request": {"guided_json": {}}}, "ok"),
        ({"schema": {"name": "n", "hash": "h"}}, "ok"),
    ],
)
def test_parse_status_is_set_where_the_request_asked_for_json(record: dict[str, Any], status: str | None) -> None:
    made = choice(choice_line(' {"a": 1.0}', **record))
    assert (made["parsed"], made["parse_status"]) == ('{"a": 1.0}', status)
    assert choice(choice_line(None, **record))["parse_status"] == (status and "missing")


@pytest.mark.parametrize("content", ["null", '""', '"\\n\\n"'])
def test_a_choice_of_tool_calls_alone_has_no_parse_status_but_its_arguments_have(content: str) -> None:
    calls = (
        '[{"id":"t","function":{"name":"f","arguments":"{\\"q\\": 1}"}},{"function":{"arguments":"{"}},'
        '{"function":{"arguments":""}},null]'
    )
    answer = f'"choices":[{{"message":{{"content":{content},"tool_calls":{calls}}},"finish_reason":"tool_calls"}}]'
    made = choice(line(answer), ORDER)
    assert made["parse_status"] is None
    functions = [call["function"] for call in made["message"]["tool_calls"][:3]]
    assert [(one["parsed_arguments"], one["arguments_status"]) for one in functions] == [
        ('{"q": 1}', "ok"),
        (None, "invalid"),
        (None, "empty"),
    ]
    assert made["message"]["tool_calls"][3] is None


def test_the_answer_of_completions_is_its_text() -> None:
    assert choice(line('"choices":[{"text":"{\\"a\\":1}"}]'), ORDER)["parsed"] == {"a": 1, "b": None}


def test_content_that_is_no_string_is_its_json_text() -> None:
    made = choice(line('"choices":[{"message":{"content":{"a":1}}}]'), ORDER)
    assert (made["message"]["content"], made["parsed"]) == ('{"a":1}', {"a": 1, "b": None})


@pytest.mark.parametrize(
    "body",
    [b'"id":"cut', b'"id":"\x01"', b'"id":1,}', b'"deep":' + b"[" * 128 + b"]" * 128],
    ids=["cut", "control", "comma", "depth"],
)
def test_a_line_that_cannot_be_read_keeps_its_record_and_the_whole_line(body: bytes) -> None:
    broken = b'{"_dspark":{"request_id":"r","status":200,"extra":1},' + body + (b"" if body == b'"id":"cut' else b"}")
    made = row(broken + b"\n")
    assert made["_corrupt_record"] == broken.decode()
    assert (made["_dspark"]["request_id"], made["_dspark"]["status"]) == ("r", 200)
    assert {name: made["_dspark"][name] for name in POSITION} == POSITION
    others = {name: value for name, value in made.items() if name not in {"_dspark", "_corrupt_record"}}
    assert set(others.values()) == {None}


@pytest.mark.parametrize("text", [b"", b"[1]", b"x\xff", b'{"_dspark":{"request_id":', b'{"a":1}{"a":2}', b"\x00"])
def test_of_any_other_line_the_position_is_left(text: bytes) -> None:
    made = row(text + b"\n")
    assert made["_corrupt_record"] == text.decode("utf-8", "replace")
    assert {name: made["_dspark"][name] for name in POSITION} == POSITION
    assert made["_dspark"]["request_id"] is None


CONTENT = st.one_of(
    st.none(),
    st.text(max_size=30),
    st.sampled_from(
        ['{"a":1}', "[" * 200, "\x00", '{"a":"x"}', "```json\n{}\n```", "<think>", "1e999", "[]", '{"a":[{"b":1}]}']
    ),
    st.binary(max_size=30).map(lambda raw: raw.decode("latin-1")),
)


@given(
    st.lists(
        st.one_of(CONTENT.map(choice_line), st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b" ") + b"\n"))
    )
)
@settings(max_examples=80, deadline=None)
def test_as_many_rows_as_records_and_no_record_touches_its_neighbours(lines: list[bytes]) -> None:
    good = choice_line('{"a":1,"b":"x"}')
    mixed = [one for bad in lines for one in (bad, good)]
    made = rows(mixed, ORDER)
    assert len(made) == len(mixed)
    assert [one["_dspark"]["seq"] for one in made] == list(range(FIRST_SEQ, FIRST_SEQ + len(mixed)))
    for one in made[1::2]:
        assert one["choices"][0]["parsed"] == {"a": 1, "b": "x"}
        assert (one["_rescued_data"], one["_corrupt_record"]) == (None, None)


def test_twenty_mebibytes_of_content_are_one_row() -> None:
    text = "x\n\u2028😀" * (20 << 17)
    made = rows([choice_line(json.dumps({"b": text, "c": text[:1000]})), choice_line('{"a":1}')], ORDER)
    assert made[0]["choices"][0]["parsed"]["b"] == text
    assert json.loads(made[0]["_rescued_data"]) == {"choices[0].parsed.c": text[:1000]}
    assert made[1]["choices"][0]["parsed"] == {"a": 1, "b": None}


def test_drop_malformed_leaves_out_what_has_nothing_to_read_and_counts_it() -> None:
    two = '"choices":[{"message":{"content":"{\\"a\\":1}"}},{"message":{"content":"no"}}]'
    lines = [
        choice_line("no"),
        choice_line('{"a":', "length"),
        b"broken\n",
        line(two),
        choice_line(None),
        line('"id":"i"'),
    ]
    batch, stats = parse(lines, build_plan(content_type=ORDER.content_type, mode="dropmalformed"))
    assert [one["_dspark"]["seq"] - FIRST_SEQ for one in batch.to_pylist()] == [3, 4, 5]
    assert (stats.records, stats.dropped, stats.corrupt, stats.invalid, stats.truncated) == (6, 3, 1, 2, 1)


@pytest.mark.parametrize("bad", [choice_line("no"), choice_line('{"a":"x"}'), choice_line("{", "length"), b"broken\n"])
def test_fail_fast_names_spool_lane_and_number(bad: bytes) -> None:
    plan = build_plan(content_type=ORDER.content_type, mode="FAILFAST")
    parse([choice_line('{"a":1}'), choice_line("```\n{}\n```")], plan)
    with pytest.raises(MalformedRecordError) as caught:
        parse([choice_line('{"a":1}'), bad], plan)
    for part in (SPOOL_ID, LANE, str(FIRST_SEQ + 1)):
        assert part in str(caught.value)


def test_strict_repair_is_the_plans() -> None:
    plan = build_plan(content_type=ORDER.content_type, repair="Strict")
    assert choice(choice_line("```\n{}\n```"), plan)["parse_status"] == "invalid"


def test_a_plan_takes_only_known_words_and_says_which() -> None:
    with pytest.raises(InvalidOptionError, match='"PERMISSIVE", "DROPMALFORMED", "FAILFAST"'):
        build_plan(mode="permisive")
    with pytest.raises(InvalidOptionError, match='Did you mean "strict"'):
        build_plan(repair="stritc")


def test_columns_are_those_asked_for_and_a_batch_without_columns_has_its_rows() -> None:
    wanted = pa.schema([("model", pa.string()), ("choices", pa.list_(pa.struct([("parsed", ORDER.content_type)])))])
    batch, _ = parse([choice_line('{"a":1,"z":2}'), choice_line(None)], build_plan(wanted))
    assert batch.to_pylist() == [
        {"model": None, "choices": [{"parsed": {"a": 1, "b": None}}]},
        {"model": None, "choices": [{"parsed": None}]},
    ]
    empty, _ = parse([choice_line(None)] * 3, build_plan(pa.schema([])))
    assert (empty.num_columns, empty.num_rows) == (0, 3)


def test_rescued_data_is_judged_against_the_whole_declared_rows() -> None:
    plan = build_plan(pa.schema([("_rescued_data", pa.string())]), content_type=ORDER.content_type)
    assert row(choice_line('{"a":"x","b":"y"}'), plan) == {"_rescued_data": '{"choices[0].parsed.a": "x"}'}


def test_a_users_schema_declares_parsed_only_where_nothing_else_does() -> None:
    wanted = pa.schema([("choices", pa.list_(pa.struct([("parsed", pa.struct([("a", pa.float64())]))])))])
    assert row(choice_line('{"a":1}'), build_plan(wanted)) == {"choices": [{"parsed": {"a": 1.0}}]}
    with pytest.raises(SchemaError):
        build_plan(wanted, content_type=ORDER.content_type)
    with pytest.raises(ContentSchemaError):
        build_plan(pa.schema([("choices", pa.list_(pa.struct([("parsed", pa.date32())])))]))


def test_no_records_are_an_empty_batch_of_the_rows_schema() -> None:
    batch, stats = parse([])
    assert (batch.num_rows, batch.schema, stats.records, stats.bytes) == (0, row_schema(), 0, 0)


def test_a_batch_is_logged_with_bytes_time_records_and_mean(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="dspark_json"):
        _, stats = parse([choice_line("x")] * 4)
    micros = stats.parse_ns / 1000
    assert caplog.messages == [
        f"[DSpark] parsed {stats.bytes} bytes in {micros:.0f} µs (4 records, mean {micros / 4:.1f} µs)"
    ]


def test_plans_and_counts_travel_between_processes() -> None:
    plan = pickle.loads(pickle.dumps(ORDER))
    assert choice(choice_line('{"a":1}'), plan)["parsed"] == {"a": 1, "b": None}
    total = pickle.loads(pickle.dumps(parse([choice_line("x")], ORDER)[1]))
    total.add(parse([choice_line("y"), b"z\n"], ORDER)[1])
    assert (total.records, total.invalid, total.corrupt) == (3, 2, 1)
