"""Schemas of requests through the real hook: registered once, referred to by records, listed with counts."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from unit.capture.driving import (
    CHAT,
    Client,
    ReplayApp,
    answer_messages,
    asgi_messages,
    ask,
    closing,
    counters,
    make_hook,
    recorded_exchanges,
    records,
    scope_for,
    serving,
)

from dspark_json.errors import EndpointKeyError, SpoolReplacedError
from dspark_json.schema.registry import RegisteredSchema, register, select
from dspark_json.spool.http import HookClient, HttpSpool
from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.schemas import MAX_SCHEMAS, SchemaStore
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from pathlib import Path

    from dspark_json.capture.hook import JsonOutputHook

ANSWER = b'{"id":"a","choices":[{"index":0,"message":{"content":"{}"},"finish_reason":"stop"}]}'
APP = ReplayApp(answer_messages([ANSWER]))
ORDER = {"type": "object", "properties": {"id": {"type": "string"}, "amount": {"type": "number"}}}


def asking_for(name: str, schema: object, **more: object) -> dict[str, Any]:
    return {
        "model": "m",
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}},
        **more,
    }


def with_tools(*names: str, strict: bool = True) -> dict[str, Any]:
    functions = [{"name": name, "strict": strict, "parameters": {**ORDER, "title": name}} for name in names]
    return {"model": "m", "tools": [{"type": "function", "function": function} for function in functions]}


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": []}),
    "completions": ("/v1/completions", {"prompt": "x"}),
    "responses": ("/v1/responses", {"input": "x"}),
}
WAYS: dict[str, dict[str, Any]] = {
    "response_format": {"response_format": {"type": "json_schema", "json_schema": {"name": "Order", "schema": ORDER}}},
    "structured_outputs": {"structured_outputs": {"json": {**ORDER, "title": "Order"}}},
    "guided_json": {"guided_json": json.dumps({**ORDER, "title": "Order"})},
    "text.format": {"text": {"format": {"type": "json_schema", "name": "Order", "schema": ORDER}}},
}


@pytest.mark.parametrize(
    ("route", "way"),
    [*((route, way) for route in ("chat", "completions") for way in WAYS if way != "text.format"),
     ("responses", "text.format"), ("responses", "structured_outputs")],
)  # fmt: skip
def test_every_route_registers_the_schema_however_it_is_asked_for(
    route: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, request = FORMS[route]
    function = {"name": "f", "strict": True, "parameters": ORDER}
    tool = {"type": "function", **function} if route == "responses" else {"type": "function", "function": function}
    body = json.dumps({**request, **WAYS[way], "tools": [tool]}).encode()
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        asyncio.run(ask(hook, Client(body), scope_for(path)))
    (record,) = records(tmp_path)
    found = {document["kind"]: document for document in SpoolReader(tmp_path).schemas()}
    assert record["_dspark"]["schema"] == {"name": "Order", "hash": found["content"]["hash"]}
    assert (found["content"]["name"], found["tool"]["name"]) == ("Order", "f")


def fields(number: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"field_{number}": {"type": "string"}}}


def send(hook: JsonOutputHook, *requests: object) -> None:
    async def run() -> None:
        for request in requests:
            body = request if isinstance(request, bytes) else json.dumps(request).encode()
            await ask(hook, Client(body), scope_for())

    asyncio.run(run())


def documents(folder: Path) -> list[dict[str, Any]]:
    return [dict(stored.document) for stored in SchemaStore(folder).list()]


def names(folder: Path) -> list[str]:
    return [path.name for path in (folder / "schemas").iterdir()]


def references(folder: Path) -> list[dict[str, Any] | None]:
    return [record["_dspark"]["schema"] for record in records(folder)]


def test_a_record_refers_to_the_document_of_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time_ns() // 1000
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(hook, asking_for("order", ORDER), {"model": "m"}, asking_for("order", ORDER))
    (document,) = documents(tmp_path)
    assert document == register("content", "order", ORDER, document["first_seen"]).to_document()
    assert before <= document["first_seen"] <= time.time_ns() // 1000
    reference = {"name": "order", "hash": document["hash"]}
    assert references(tmp_path) == [reference, None, reference]
    assert names(tmp_path) == [document["hash"] + ".json"]


def test_the_recorded_exchanges_of_a_server_leave_its_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = [e for e in recorded_exchanges() if e["path"] == CHAT and not e["raised"]]

    async def run() -> None:
        for exchange in exchanges:
            hook.app = ReplayApp(asgi_messages(exchange["messages"]))
            await ask(hook, Client(json.dumps(exchange["request"]).encode()), scope_for())

    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        asyncio.run(run())
    named: dict[str, str | None] = {}
    for exchange, reference in zip(exchanges, references(tmp_path), strict=True):
        if reference is not None:
            named[exchange["name"]] = reference["name"]
    assert named["chat_order"] == named["stream_order_usage"] == named["chat_order_length"] == "order"
    assert named["chat_bad_schema"] == "bad"
    assert named["chat_guided_json"] is None
    assert "chat_plain" not in named
    found = [RegisteredSchema.from_document(document) for document in documents(tmp_path)]
    types = {schema.name: schema.type_text for schema in found if schema.kind == "content"}
    assert types == {
        "order": "STRUCT<order_id: STRING, amount: DOUBLE, paid: BOOLEAN, currency: STRING, "
        "items: ARRAY<STRUCT<sku: STRING, qty: BIGINT>>, customer: STRUCT<name: STRING, level: BIGINT>>",
        "risk": "STRUCT<score: DOUBLE, risk_level: STRING, reasons: ARRAY<STRING>>",
        "bad": None,
        None: "STRUCT<score: DOUBLE, risk_level: STRING, reasons: ARRAY<STRING>>",
    }


def test_no_schema_is_registered_where_nothing_of_requests_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch, CAPTURE_REQUESTS="none")) as hook:
        send(hook, asking_for("order", ORDER), with_tools("a"))
    assert references(tmp_path) == [None, None]
    assert documents(tmp_path) == []


def test_schemas_of_strict_tools_are_registered_and_not_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(hook, with_tools("a", "b"), with_tools("c", strict=False), with_tools("a"))
    assert sorted((d["kind"], d["name"]) for d in documents(tmp_path)) == [("tool", "a"), ("tool", "b")]
    assert references(tmp_path) == [None, None, None]


def test_a_schema_is_there_before_the_record_that_refers_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    append = LaneWriter.append

    def watching(self: LaneWriter, batch: Any) -> None:
        seen.append(len(names(tmp_path)))
        append(self, batch)

    monkeypatch.setattr(LaneWriter, "append", watching)
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        send(hook, *(asking_for("n", fields(number)) for number in range(3)))
    assert seen == [1, 2, 3]


def test_schemas_that_differ_in_descriptions_alone_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(hook, *(asking_for("order", {**ORDER, "description": str(n)}) for n in range(5)))
    (document,) = documents(tmp_path)
    assert {r["hash"] for r in references(tmp_path) if r} == {document["hash"]}
    assert document["schema"]["description"] == "0"


@pytest.mark.parametrize("status", [401, 403])
def test_a_client_that_may_not_ask_the_server_registers_nothing(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp(answer_messages([b'{"error":"Unauthorized"}'], status=status))
    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        send(hook, asking_for("order", ORDER))
    assert references(tmp_path) == [None]
    assert documents(tmp_path) == []


def test_an_answer_with_an_error_refers_to_the_schema_it_was_asked_for_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ReplayApp(answer_messages([b'{"error":{"message":"no","code":400}}'], status=400))
    with closing(make_hook(app, tmp_path, monkeypatch)) as hook:
        send(hook, asking_for("bad", {"type": "nonsense"}))
    (document,) = documents(tmp_path)
    assert document["error"]["code"] == "DSPARK_JSON_CONTENT_SCHEMA"
    assert references(tmp_path) == [{"name": "bad", "hash": document["hash"]}]


def test_a_full_registry_keeps_serving_known_schemas_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write", HOLD_MS="10000")) as hook:
        send(hook, asking_for("n", fields(0)))
        store = SchemaStore(tmp_path)
        assert all(store.put(f"{number:064x}", {}) for number in range(MAX_SCHEMAS - 1))
        send(hook, asking_for("n", fields(1)), asking_for("n", fields(1)), asking_for("n", fields(0)))
    assert len(names(tmp_path)) == MAX_SCHEMAS
    assert counters(hook)["schema_overflow"] == 1
    expected = [register("content", "n", fields(number), 0).hash for number in (0, 1, 1, 0)]
    assert [r["hash"] for r in references(tmp_path) if r] == expected
    assert set(hook._appender.schema_uses()) == {expected[0]}


def test_a_registration_that_fails_costs_neither_the_record_nor_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "schemas").write_text("in the way")
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        send(hook, asking_for("order", ORDER))
        (tmp_path / "schemas").unlink()
        send(hook, asking_for("order", ORDER))
    found = references(tmp_path)
    assert found[0] is None
    assert found[1] is not None
    assert found[1]["name"] == "order"
    assert counters(hook)["hook_exceptions"] == 1
    assert "the hook was caught" in caplog.text


HOSTILE = [
    b'{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":' + schema + b"}}}"
    for schema in (
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"properties":{"a":' * 150 + b"{}" + b"}}" * 150,
        b'{"properties":{"\\ud800":{}}}',
        b'{"$ref":"#/\\ud800"}',
        b'{"enum":[1e999, 123456789012345678901234567890]}',
        b"[" * 5000 + b"]" * 5000,
        b'"{"',
        b"null",
    )
]


def test_hostile_schemas_leave_readable_records_and_a_readable_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd_name = b'{"response_format":{"type":"json_schema","json_schema":{"name":"\\ud800","schema":{}}}}'
    with closing(make_hook(APP, tmp_path, monkeypatch, API_KEY="k", DURABILITY="write", HOLD_MS="10000")) as hook:
        send(hook, *HOSTILE, odd_name)
        with serving(hook) as port:
            headers = {"authorization": "Bearer k"}
            answer = httpx.get(f"http://127.0.0.1:{port}/health/json-schema", headers=headers, trust_env=False)
    assert counters(hook).get("hook_exceptions", 0) == 0
    assert all(record["_dspark"]["error"] is None for record in records(tmp_path))
    listed = answer.json()["schemas"]
    assert len(listed) == len(documents(tmp_path)) == 6
    for document in listed:
        RegisteredSchema.from_document(document)


@pytest.mark.parametrize("levels", [50, 150, 400, 900])
def test_a_deep_schema_in_the_request_does_not_make_the_record_unreadable(
    levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine_support import row

    deep = b'{"a":' * levels + b"1" + b"}" * levels
    request = b'{"temperature":0.5,"response_format":{"type":"json_schema","json_schema":{"schema":' + deep + b"}}}"
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(hook, request)
    (line,) = (tmp_path / "lanes/0000").glob("*.ndjson")
    found = row(line.read_bytes())
    assert found["_corrupt_record"] is None
    assert found["_dspark"]["error"] is None
    assert found["_dspark"]["request"]["temperature"] == 0.5
    assert deep.decode() in found["_dspark"]["request"]["response_format"]


def test_new_tools_cost_a_request_a_bounded_time_and_the_next_requests_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dspark_json.capture.registration._TOOLS_SECONDS", -1.0)
    with closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as hook:
        send(hook, with_tools("a", "b"))
        assert documents(tmp_path) == []
        monkeypatch.setattr("dspark_json.capture.registration._TOOLS_SECONDS", 5.0)
        send(hook, with_tools("a", "b"))
    assert len(documents(tmp_path)) == 2
    assert "some wait for the next request" in caplog.text


def test_what_is_remembered_of_schemas_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_json.capture.registration._MOST_REMEMBERED", 10)
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(hook, *(asking_for("n", fields(number)) for number in (*range(25), *range(25))))
    assert len(hook._appender._schemas._known) == 10
    assert len(documents(tmp_path)) == 25
    assert len({r["hash"] for r in references(tmp_path) if r}) == 25


def test_a_spool_made_anew_gets_the_schemas_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    spool = tmp_path / "spool"
    with closing(make_hook(APP, spool, monkeypatch, DURABILITY="write")) as hook:
        send(hook, asking_for("order", ORDER))
        shutil.rmtree(spool)
        deadline = time.monotonic() + 10
        while not spool.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        send(hook, asking_for("order", ORDER))
    assert [d["name"] for d in documents(spool)] == ["order"]
    assert [r["name"] for r in references(spool) if r] == ["order"]


@pytest.mark.parametrize("way", ["native", "long way", "tool"])
@pytest.mark.parametrize("made_anew", [False, True])
def test_the_first_record_of_a_spool_made_anew_refers_to_a_schema_that_is_there(
    way: str, made_anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr("dspark_json.capture.appender._MAINTAIN_SECONDS", 3600.0)  # the record is what notices it
    requests = {
        "native": asking_for("order", ORDER),
        "long way": asking_for("order", ORDER, guided_json=None),
        "tool": with_tools("order"),
    }
    spool = tmp_path / "spool"
    with closing(make_hook(APP, spool, monkeypatch, DURABILITY="write", HOLD_MS="10000")) as hook:
        send(hook, *[requests[way]] * 3)
        shutil.rmtree(spool)
        if made_anew:
            LaneWriter.open(spool).close()
        send(hook, requests[way], asking_for("new", fields(1)))
    assert len(records(spool)) == 2
    found = {document["name"]: document["hash"] for document in documents(spool)}
    assert set(found) == {"order", "new"}
    (of_old, of_new) = references(spool)
    assert of_old == (None if way == "tool" else {"name": "order", "hash": found["order"]})
    assert of_new == {"name": "new", "hash": found["new"]}
    uses = {name: hook._appender.schema_uses()[key].requests for name, key in found.items()}
    assert uses == {"order": 1, "new": 1}
    counted = counters(hook)
    assert (counted["records"], counted.get("dropped_records", 0)) == (5, 0)


def test_what_a_group_tells_is_counted_once_where_its_records_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr("dspark_json.capture.appender._MAINTAIN_SECONDS", 3600.0)
    app = ReplayApp(answer_messages([b'{"error":{"message":"no","code":400}}'], status=400))
    with closing(make_hook(app, tmp_path / "s", monkeypatch, DURABILITY="write", HOLD_MS="10000")) as hook:
        send(hook, {"model": "m"}, {"model": "m"})
        shutil.rmtree(tmp_path / "s")
        send(hook, {"model": "m"})
    counted = counters(hook)
    assert (counted["records"], counted["errors"]) == (3, 3)


def test_schemas_are_listed_with_counts_and_last_use_by_folder_and_over_http_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time_ns() // 1000
    with (
        serving(make_hook(APP, tmp_path, monkeypatch, API_KEY="k", DURABILITY="write")) as port,
        HookClient(f"http://127.0.0.1:{port}", "k", 5.0) as client,
    ):
        address = f"http://127.0.0.1:{port}{CHAT}"
        for request in (asking_for("order", ORDER), asking_for("risk", fields(1)), asking_for("order", ORDER)):
            assert httpx.post(address, json=request, trust_env=False).content == ANSWER
        httpx.post(address, json=with_tools("t"), trust_env=False)
        access = HttpSpool(client, client.identity().spool_id)
        over_http = access.schemas()
        assert {d["name"]: d["count"] for d in over_http} == {"order": 2, "risk": 1, "t": 1}
        assert all(before <= d["last_used"] <= time.time_ns() // 1000 for d in over_http)
        schemas = [RegisteredSchema.from_document(document) for document in over_http]
        assert [s.name for s in select(schemas, "*", "content")] == ["order", "risk"]
        with pytest.raises(SpoolReplacedError):
            HttpSpool(client, "another").schemas()
    assert SpoolReader(tmp_path).schemas() == over_http


def test_counts_go_on_over_restarts_and_are_summed_over_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
            send(hook, asking_for("order", ORDER))
    with (
        closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as one,
        closing(make_hook(APP, tmp_path, monkeypatch, DURABILITY="write")) as two,
    ):
        send(one, asking_for("order", ORDER))
        send(two, asking_for("order", ORDER))
        send(two, asking_for("order", ORDER))
    (document,) = SpoolReader(tmp_path).schemas()
    assert document["count"] == 5
    stats = [json.loads((tmp_path / f"lanes/{lane}/stats.json").read_text()) for lane in ("0000", "0001")]
    assert [s["schemas"][document["hash"]]["count"] for s in stats] == [3, 2]
    assert [s["records"] for s in stats] == [3, 2]
    assert document["last_used"] == max(s["schemas"][document["hash"]]["last_used"] for s in stats)
    assert "schemas" not in counters(one)


def test_without_the_key_the_schemas_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(make_hook(APP, tmp_path, monkeypatch, API_KEY="k", DURABILITY="write")) as port:
        httpx.post(f"http://127.0.0.1:{port}{CHAT}", json=asking_for("order", ORDER), trust_env=False)
        shown = httpx.get(f"http://127.0.0.1:{port}/health/json-schema", trust_env=False).json()
        assert "schemas" not in shown
        for key in (None, "wrong"):
            with (
                HookClient(f"http://127.0.0.1:{port}", key, 5.0) as client,
                pytest.raises(EndpointKeyError),
            ):
                client.schemas()


def test_json_without_a_schema_is_told_only_where_no_schema_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(make_hook(APP, tmp_path, monkeypatch)) as hook:
        send(
            hook,
            {"model": "a", "response_format": {"type": "json_object"}},
            {"model": "a", "structured_outputs": {"json_object": True}},
            {"model": "b", "response_format": {"type": "json_object"}, "guided_json": ORDER},
        )
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "'a' is asked for json_object without a schema" in warnings[0]
    assert counters(hook)["json_object_without_schema"] == 2
