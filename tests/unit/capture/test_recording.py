"""What a record says about its exchange (DESIGN §2 rules 3, 4, 5 and 8; §3)."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import rows_of_both_engines
from unit.capture.driving import (
    RESPONSES,
    Message,
    answer_messages,
    asgi_messages,
    capture,
    lines,
    recorded_exchanges,
)

from dspark_json.capture.jsontext import dumps, loads, loads_to_write
from dspark_json.capture.request import SAMPLING_SETTINGS
from dspark_json.schema.envelope import row_schema

if TYPE_CHECKING:
    from pathlib import Path

META = [
    "seq", "lane", "request_id", "path", "model", "status", "stream", "received_at", "first_byte_ms", "duration_ms",
    "completed", "disconnected", "error", "schema", "request", "body",
]  # fmt: skip
STREAM = "text/event-stream"
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
ANSWER: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 1, "model": "from-answer"}
PLAIN = json.dumps({**ANSWER, "choices": [CHOICE]}).encode()


def test_all_members_of_dspark_are_there_in_order_for_every_recorded_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, exchange in enumerate(recorded_exchanges()):
        folder = tmp_path / str(number)
        request = json.dumps(exchange["request"]).encode()
        record = capture(
            asgi_messages(exchange["messages"]), folder, monkeypatch, request=request, path=exchange["path"]
        )
        meta = record["_dspark"]
        assert next(iter(record)) == "_dspark"
        assert list(meta) == META
        assert meta["path"] == exchange["path"]
        assert meta["stream"] is exchange["request"].get("stream", False)
        assert meta["status"] == exchange["messages"][0]["status"]
        assert meta["model"] == exchange["request"]["model"]
        assert meta["disconnected"] is exchange["name"].endswith("_client_leaves")
        assert meta["completed"] is (meta["status"] == 200 and not meta["disconnected"])
        assert (meta["error"] is None) is (meta["status"] == 200)
        assert isinstance(meta["first_byte_ms"], float)
        assert 0 <= meta["first_byte_ms"] <= meta["duration_ms"]
        assert meta["request_id"] == record.get("id")


def test_a_non_streaming_body_is_kept_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b' {"id":"c",\r\n\t"n":1.50e+3,"n":2, "s":"\\u00e9\xc3\xa9\xe2\x80\xa8\\ud83d" ,"z":{} } \n'
    capture(answer_messages([body]), tmp_path, monkeypatch)
    (line,) = lines(tmp_path)
    assert line.endswith(
        b'"body":null},"id":"c",  \t"n":1.50e+3,"n":2, "s":"\\u00e9\xc3\xa9\xe2\x80\xa8\\ud83d" ,"z":{}}\n'
    )
    assert line.count(b"\n") == 1


def test_invalid_utf8_becomes_the_replacement_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = capture(answer_messages([b'{"id":"a\xffb"}']), tmp_path, monkeypatch)
    assert record["id"] == "a\ufffdb"


def test_a_body_can_not_forge_dspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(answer_messages([b'{"_dspark":{"seq":99},"id":"c"}']), tmp_path, monkeypatch)
    (line,) = lines(tmp_path)
    assert line.startswith(b'{"_dspark":{"seq":0,"lane":"0000",')
    pairs = json.loads(line, object_pairs_hook=list)
    assert [key for key, _ in pairs] == ["_dspark", "_dspark", "id"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b"oops",
        b'{"a":NaN}',
        b'{"a":1',
        b'{"a":1}{"b":2}',
        b'{"a":1},"b":2',
        b"\xff\xfe",
        b"{" * 5000,
    ],
)
def test_a_body_that_is_no_json_object_is_kept_as_text(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture(answer_messages([body]), tmp_path, monkeypatch)
    assert list(record) == ["_dspark"]
    assert record["_dspark"]["body"] == body.decode("utf-8", "replace")
    assert record["_dspark"]["completed"] is False


def test_an_empty_object_leaves_no_comma_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(capture(answer_messages([b"{ \n }"]), tmp_path, monkeypatch)) == ["_dspark"]


@pytest.mark.parametrize(
    ("choices", "status", "completed"),
    [
        ([CHOICE], 200, True),
        ([CHOICE, {**CHOICE, "finish_reason": "length"}], 200, True),
        ([CHOICE], 400, False),
        ([CHOICE, {**CHOICE, "finish_reason": None}], 200, False),
        ([{**CHOICE, "finish_reason": "abort"}], 200, False),
        ([{**CHOICE, "finish_reason": "error"}], 200, False),
        ([{"index": 0}], 200, False),
        ([], 200, False),
        (["x"], 200, False),
        (None, 200, False),
    ],
)
def test_completed_needs_a_finish_reason_of_every_choice(
    choices: Any, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, completed: bool
) -> None:
    body = json.dumps({**ANSWER, "choices": choices}).encode()
    record = capture(answer_messages([body], status=status), tmp_path, monkeypatch)
    assert record["_dspark"]["completed"] is completed


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"error": {"message": "m", "type": "T", "param": "p", "code": 400}}, ("m", "T", "400")),
        ({"error": {"message": "m", "code": "bad"}}, ("m", None, "bad")),
        ({"error": {"message": {"a": 1}, "code": 1.5}}, ('{"a":1}', None, "1.5")),
        ({"error": "plain"}, ("plain", None, None)),
        ({"object": "error", "message": "old", "type": "T", "code": 404}, ("old", "T", "404")),
        ({"error": None}, ("status 400 (Bad Request)", "http", "400")),
    ],
)
def test_the_error_is_the_responses_own(
    body: dict[str, Any], error: tuple[str | None, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture(answer_messages([json.dumps(body).encode()], status=400), tmp_path, monkeypatch)
    expected = None if error is None else dict(zip(("message", "type", "code"), error, strict=True))
    assert record["_dspark"]["error"] == expected
    assert "error" in record or "object" in record


def test_a_body_that_the_server_sends_from_a_file_is_not_taken_for_a_client_that_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = answer_messages([PLAIN])[0]
    unseen: Message = {"type": "http.response.zerocopysend", "file": 1, "more_body": True}
    path: Message = {"type": "http.response.pathsend", "path": "/x"}
    for number, sent in enumerate(([path], [unseen, {**unseen, "more_body": False}])):
        for durability in ("async", "write"):
            folder = tmp_path / f"{number}-{durability}"
            messages = [start, *sent]
            meta = capture(messages, folder, monkeypatch, DURABILITY=durability)["_dspark"]
            assert (meta["completed"], meta["disconnected"], meta["body"]) == (False, False, None)
            assert meta["error"]["code"] == "body_not_seen"


def test_a_byte_order_mark_is_no_part_of_an_answer_or_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = b"\xef\xbb\xbf"
    record = capture(answer_messages([mark + PLAIN]), tmp_path, monkeypatch, request=mark + b'{"model":"asked"}')
    assert record.pop("_dspark") | {"completed": True, "model": "asked"} == record_meta(tmp_path)
    assert record == json.loads(PLAIN)


def record_meta(folder: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(lines(folder)[0])["_dspark"]
    return meta


def test_a_streams_number_beyond_a_double_is_kept_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = b"-" + b"9" * 5_000
    event = b'data: {"id":"c","created":1e400,"x":%s,"y":1.5e+999,"choices":[]}\n\n' % digits
    with contextlib.suppress(ValueError):  # Python's json refuses the long integer
        capture(answer_messages([event, b"data: [DONE]\n\n"], content_type=STREAM), tmp_path, monkeypatch)
    (line,) = lines(tmp_path)
    assert b'"created":1e400,' in line
    assert b'"x":%s,"y":1.5e+999' % digits in line


def test_an_event_that_is_no_json_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    bodies = [good, b"data: {oops" + b"!" * 500 + b"\n\n", b"data: 5\n\n", b"data: [DONE]\n\n"]
    record = capture(answer_messages(bodies, content_type=STREAM), tmp_path, monkeypatch)
    assert record["choices"][0]["message"]["content"] == "x"
    assert record["_dspark"]["error"]["code"] == "bad_event"
    assert record["_dspark"]["error"]["message"] == "{oops" + "!" * 195
    assert record["_dspark"]["completed"] is False
    assert record["_dspark"]["disconnected"] is False


def test_an_error_event_wins_over_a_bad_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b"data: oops\n\n", b'data: {"error":{"message":"boom","code":500}}\n\n']
    record = capture(answer_messages(bodies, content_type=STREAM), tmp_path, monkeypatch)
    assert record["_dspark"]["error"] == {"message": "boom", "type": None, "code": "500"}
    assert "error" not in record


def test_a_stream_that_saw_done_is_not_disconnected_without_a_last_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
    for number, (done, disconnected) in enumerate([(b"data: [DONE]\n\n", False), (b"", True)]):
        messages = answer_messages([good + done], content_type=STREAM, end=False)
        record = capture(messages, tmp_path / str(number), monkeypatch)
        assert record["_dspark"]["disconnected"] is disconnected
        assert record["_dspark"]["completed"] is True


def test_lone_surrogates_survive_assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a\\ud83db"},"finish_reason":"stop"}]}\n\n'
    record = capture(answer_messages([event], content_type=STREAM), tmp_path, monkeypatch)
    assert record["choices"][0]["message"]["content"] == "a\ud83db"
    assert b"a\\ud83db" in lines(tmp_path)[0]


def test_an_error_answer_to_a_streaming_request_is_read_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = answer_messages([b'{"error":{"message":"m","code":404}}'], status=404)
    record = capture(messages, tmp_path, monkeypatch, request=b'{"stream":true}')
    assert record["error"]["code"] == 404
    assert record["_dspark"]["stream"] is True


def test_what_the_request_does_not_say_comes_from_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = capture(answer_messages([PLAIN]), tmp_path, monkeypatch, request=b"not json")
    assert record["_dspark"]["model"] == "from-answer"
    assert record["_dspark"]["stream"] is False
    assert record["_dspark"]["request"] is None
    assert record["_dspark"]["request_id"] == "c"


def test_the_request_id_is_the_clients_then_the_servers_then_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = answer_messages([PLAIN])
    messages[0]["headers"].append((b"X-Request-Id", b"server"))
    given = capture(messages, tmp_path / "a", monkeypatch, headers=[(b"x-request-id", b"client")])
    assert given["_dspark"]["request_id"] == "client"
    assert capture(messages, tmp_path / "b", monkeypatch)["_dspark"]["request_id"] == "server"


def test_a_header_can_not_break_out_of_its_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = b'x","seq":99,"\\\x01\r\n\xff"}'
    record = capture(answer_messages([PLAIN]), tmp_path, monkeypatch, headers=[(b"x-request-id", evil)])
    assert record["_dspark"]["request_id"] == evil.decode("latin-1")
    assert list(record["_dspark"]) == META
    assert record["_dspark"]["seq"] == 0


REQUEST = {
    "model": "m",
    "messages": [{"role": "user", "content": "secret 日本"}],
    "temperature": 0.5,
    "n": 1,
    "stop": ["x"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "tools": [{"secret": 1}],
    "user": "secret",
}


@pytest.mark.parametrize("mode", ["none", "settings", "full"])
def test_what_is_kept_of_a_request_is_what_was_asked_for(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(REQUEST, ensure_ascii=False).encode()
    record = capture(answer_messages([PLAIN]), tmp_path, monkeypatch, request=text, CAPTURE_REQUESTS=mode)
    kept = {key: REQUEST[key] for key in ("temperature", "n", "stop", "response_format")}
    expected = {"none": None, "settings": kept, "full": {**kept, "body": text.decode()}}[mode]
    assert record["_dspark"]["request"] == expected
    assert record["_dspark"]["model"] == "m"
    assert (b"secret" in lines(tmp_path)[0]) is (mode == "full")


@pytest.mark.parametrize(
    ("text_format", "response_format"),
    [
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": True}},
        ),
        ({"type": "text"}, {"type": "text"}),
        ("text", None),
    ],
)
def test_the_format_of_a_response_is_told_as_that_of_the_other_routes(
    text_format: object, response_format: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = json.dumps({"input": "secret", "text": {"format": text_format, "verbosity": "low"}}).encode()
    body = {"status": "completed", "output": [{"type": "message", "content": [{"text": "{}"}]}]}
    messages = answer_messages([json.dumps(body).encode()])
    record = capture(messages, tmp_path, monkeypatch, request=request, path=RESPONSES)
    kept = {} if response_format is None else {"response_format": response_format}
    assert record["_dspark"]["request"] == kept
    (row,) = rows_of_both_engines(lines(tmp_path))
    assert row["choices"][0]["parse_status"] == ("ok" if "json" in str(response_format) else None)


def test_every_setting_that_is_kept_has_a_column() -> None:
    columns = row_schema().field("_dspark").type.field("request").type
    assert {columns.field(i).name for i in range(columns.num_fields)} == {*SAMPLING_SETTINGS, "body"}


@pytest.mark.parametrize("mode", ["none", "settings", "full"])
def test_a_large_request_is_not_parsed(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"model": "m", "stream": True, "temperature": 1, "messages": "x" * 300_000}).encode()
    record = capture(answer_messages([PLAIN]), tmp_path, monkeypatch, request=text, CAPTURE_REQUESTS=mode)
    assert record["_dspark"]["model"] == "from-answer"
    assert record["_dspark"]["stream"] is False
    assert record["_dspark"]["request"] == ({"body": text.decode()} if mode == "full" else None)


def test_a_request_that_is_not_json_is_kept_as_text_when_all_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture(answer_messages([PLAIN]), tmp_path, monkeypatch, request=b'{"a":\xff\n', CAPTURE_REQUESTS="full")
    assert record["_dspark"]["request"] == {"body": '{"a":\ufffd\n'}


def test_a_large_answer_is_spliced_without_being_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({**ANSWER, "choices": [{**CHOICE, "pad": "日" * 100_000}]}, ensure_ascii=False, indent=1)
    body = text.encode()
    pieces = [body[i : i + 1000] for i in range(0, len(body), 1000)]
    record = capture(answer_messages(pieces), tmp_path, monkeypatch)
    assert record.pop("_dspark")["completed"] is None
    assert record == json.loads(text)


@pytest.mark.parametrize(("status", "end"), [(500, True), (200, False)])
def test_a_large_answer_that_failed_or_was_cut_off_is_not_completed(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, end: bool
) -> None:
    body = json.dumps({**ANSWER, "pad": "x" * 300_000}).encode()
    record = capture(answer_messages([body], status=status, end=end), tmp_path, monkeypatch)
    assert record["_dspark"]["completed"] is False
    assert record["_dspark"]["disconnected"] is not end
    assert ("pad" in record) is end
    assert record["_dspark"]["body"] == (None if end else body.decode())


def test_a_large_body_that_is_no_object_is_kept_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'<p>"\\\xff\n' * 60_000
    record = capture(answer_messages([body]), tmp_path, monkeypatch)
    assert list(record) == ["_dspark"]
    assert record["_dspark"]["body"] == body.decode("utf-8", "replace")


def test_an_application_that_never_answers_leaves_a_record_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = capture([], tmp_path, monkeypatch)["_dspark"]
    assert (meta["status"], meta["body"], meta["first_byte_ms"]) == (None, None, None)
    assert (meta["completed"], meta["disconnected"]) == (False, True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "\ud800"}, b'{"a":"\\ud800"}'),
        ([1 << 70], b"[1180591620717411303424]"),
        (["\ud800", float("inf"), {"n": float("nan")}], b'["\\ud800",null,{"n":null}]'),
        ("日", '"日"'.encode()),
    ],
)
def test_any_value_is_written_as_json(value: Any, text: bytes) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (b'[1e400,-1E+999,{"a":1e400}]', b'[1e400,-1E+999,{"a":1e400}]'),
        (b"[" + b"9" * 5_000 + b"]", b"[" + b"9" * 5_000 + b"]"),
        (b'["\\ud800",1e400,12345678901234567890123]', b'["\\ud800","1e400",12345678901234567890123]'),
        (b"[1e-999,1.50]", b"[0.0,1.5]"),
        (b"\xef\xbb\xbf[1]", b"[1]"),
    ],
)
def test_what_is_read_to_be_written_loses_no_number_to_infinity(text: bytes, written: bytes) -> None:
    assert dumps(loads_to_write(text)) == written


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"[1,]", b"", b"{'a':1}", b'"\n"', b"[" * 100_000])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        loads(text)


@pytest.mark.parametrize(
    ("body", "content_type", "kept"),
    [
        (b'{"detail":"who are you"}', "application/json", {"detail": "who are you"}),
        (b'{"message":"slow down"}', "application/json", {"message": "slow down"}),
        (b"{}", "application/json", {}),
        (b"", "text/plain", {}),
        (b"Bad Gateway", "text/plain", {}),
        (b'{"detail":"no stream"}', "text/event-stream", {"detail": "no stream"}),
        (b"data: [DONE]\n\n", "text/event-stream", {}),
    ],
)
@pytest.mark.parametrize("status", [401, 503, 599])
def test_a_failed_request_has_an_error_whatever_its_body_says(
    status: int, body: bytes, content_type: str, kept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture(answer_messages([body], status=status, content_type=content_type), tmp_path, monkeypatch)
    error = record["_dspark"]["error"]
    assert (error["type"], error["code"]) == ("http", str(status))
    assert error["message"].startswith(f"status {status}")
    assert kept.items() <= record.items()
