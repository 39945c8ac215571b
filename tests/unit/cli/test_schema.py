"""``dspark-json schema``: what a real hook has registered, from its folder and over HTTP."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest
from serving import elsewhere, serving

from dspark_json import JsonOutputHook
from dspark_json.cli.main import main
from dspark_json.replay import ReplayApp
from dspark_json.replay.recording import packaged_request
from dspark_json.schema.ddl import columns_to_ddl, from_ddl, to_ddl
from dspark_json.schema.envelope import row_schema
from dspark_json.schema.jsonschema import from_json_schema
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "the-hooks-key"
ORDER, RISK = (
    packaged_request(name)["response_format"]["json_schema"]["schema"] for name in ("chat_order", "chat_risk")
)
REMOTE = {"$ref": "http://example.org/schema.json"}
TOOL = {"type": "object", "properties": {"city name": {"type": "string"}, "days": {"type": "integer"}}}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that has been asked; ``remote`` is the same one, as from another machine."""

    folder: Path
    remote: str
    key_file: Path


def asked(schema: Any, name: str) -> dict[str, Any]:
    json_schema = {"name": name, "schema": schema}
    return {"messages": [], "response_format": {"type": "json_schema", "json_schema": json_schema}}


def with_tool(name: str) -> dict[str, Any]:
    return {
        "messages": [],
        "tools": [{"type": "function", "function": {"name": name, "strict": True, "parameters": TOOL}}],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("schema")
    key_file = folder / "key"
    key_file.write_text(KEY + "\n")
    longer = {**RISK, "properties": {**RISK["properties"], "model": {"type": "string"}, "score": {"type": "string"}}}
    requests = [
        asked(ORDER, "order"), asked(RISK, "risk"), asked(ORDER, "order"), asked(longer, "risk"),
        asked(REMOTE, "far"), with_tool("weather"), asked(ORDER, "a\x1b[31m"),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DSPARK_SPOOL", str(folder / "spool"))
        environment.setenv("DSPARK_API_KEY", KEY)
        app = JsonOutputHook(ReplayApp(speed=1000))
    with serving(elsewhere(app)) as address:
        for number, request in enumerate(requests):
            httpx.post(f"{address}/v1/chat/completions", json=request, timeout=10)
            # One after the other, so that they are first seen in this order.
            lines = 0
            deadline = time.monotonic() + 10
            while lines <= number and time.monotonic() < deadline:
                lanes = SpoolReader(folder / "spool").offsets().lanes.values()
                lines = sum(extent.next - extent.first for extent in lanes)
                time.sleep(0.01)
            assert lines == number + 1
        yield Server(folder / "spool", address, key_file)


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["schema", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_json_is_one_document_with_every_schema_in_the_order_of_their_first_use(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(shown(capsys, server.folder, "--json"))
    assert document["rows"] == columns_to_ddl(row_schema())
    assert document["spool_id"] == SpoolReader(server.folder).offsets().spool_id
    found = [(schema["name"], schema["kind"]) for schema in document["schemas"]]
    assert found == [
        ("order", "content"), ("risk", "content"), ("risk", "content"), ("far", "content"),
        ("weather", "tool"), ("a\x1b[31m", "content"),
    ]  # fmt: skip
    first, far = document["schemas"][0], document["schemas"][3]
    assert from_ddl(first["ddl"]) == from_json_schema(ORDER)
    assert (first["schema"], first["error"]) == (ORDER, None)
    assert far["ddl"] is None
    assert "example.org" in far["error"]
    assert document["schemas"][4]["ddl"] == "`city name` STRING, days BIGINT"


def test_over_http_counts_and_last_use_come_along(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, server.remote, "--json", "--key-file", server.key_file))
    order = document["schemas"][0]
    assert (order["name"], order["count"]) == ("order", 2)
    assert abs(order["last_used"] / 1_000_000 - time.time()) < 300


def test_text_says_rows_and_schemas_and_lets_no_name_speak_to_the_terminal(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, server.remote, "--key-file", server.key_file)
    assert "  id STRING,\n" in text
    assert "Schemas of answers: 6\n" in text
    assert "\norder  content  " in text
    assert "  2 answers  last 2" in text
    assert f"\n  {columns_to_ddl(list(from_json_schema(RISK)))}\n" in text
    assert "\n  no type: " in text
    assert "\x1b" not in text
    assert "a\\x1b[31m" in text


def test_ddl_is_that_of_the_rows(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, server.folder, "--ddl").replace(",\n", ", ") == columns_to_ddl(row_schema()) + "\n"


def test_ddl_of_a_name_is_what_to_paste_into_content_schema(
    server: Server, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ddl = shown(capsys, server.folder, "--ddl", "--name", "order")
    assert from_ddl(ddl) == from_json_schema(ORDER)
    file = tmp_path / "order.ddl"
    file.write_text(ddl)
    (tmp_path / "contents").write_text(json.dumps('{"amount": 2}'))
    assert main(["parse", str(tmp_path / "contents"), "--content", "--content-schema", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["parsed"]["amount"] == 2.0


def test_ddl_of_a_tool_has_the_names_of_the_wire(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    ddl = shown(capsys, server.folder, "--ddl", "--name", "weather")
    assert ddl == "`city name` STRING, days BIGINT\n"
    assert to_ddl(from_ddl(ddl)) == "STRUCT<city_name: STRING, days: BIGINT>"


def test_several_schemas_of_a_name_are_merged_and_what_did_not_fit_is_said(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", str(server.folder), "--ddl", "--name", "risk"]) == 0
    said = capsys.readouterr()
    assert said.out == "score STRING, risk_level STRING, reasons ARRAY<STRING>, model STRING\n"
    assert said.err.startswith("dspark-json: ")
    assert "score" in said.err


def test_a_hash_names_one_schema(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    schemas = json.loads(shown(capsys, server.folder, "--json", "--name", "risk"))["schemas"]
    assert len(schemas) == 2
    for schema in schemas:
        assert shown(capsys, server.folder, "--ddl", "--name", schema["hash"][:10]) == schema["ddl"] + "\n"


@pytest.mark.parametrize(
    ("name", "said"), [("odrer", 'Did you mean "order"?'), ("zzz", "It has: "), ("far", "can't be made a column type")]
)
def test_a_name_without_a_type_is_a_named_error(
    name: str, said: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", str(server.folder), "--ddl", "--name", name]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("dspark-json: DSPARK_JSON_CONTENT_SCHEMA: ")
    assert said in shown.err


def test_without_the_key_another_machine_is_told_so(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSPARK_API_KEY", raising=False)
    assert main(["schema", server.remote]) == 2
    assert "DSPARK_JSON_ENDPOINT_KEY" in capsys.readouterr().err


def test_a_spool_without_schemas_says_how_one_appears(capsys: pytest.CaptureFixture[str]) -> None:
    golden = Path(__file__).parents[2] / "golden" / "v1" / "spool"
    text = shown(capsys, golden)
    assert "none yet" in text
    assert "response_format" in text


def test_the_rows_are_ddl_that_reads_back(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    # Content can't be TIMESTAMP, so the three columns that are stand in as STRING here.
    text = shown(capsys, server.folder, "--ddl").replace("TIMESTAMP", "STRING")
    kind = from_ddl(text)
    assert pa.types.is_struct(kind)
    assert [kind.field(i).name for i in range(kind.num_fields)] == row_schema().names
