"""A server that registers new schemas while a stream is planned."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from serving import elsewhere, hook, serving
from typed_spools import answer, schema, tool_answer, write

from dspark_json.errors import EndpointKeyError, EndpointUnreachableError, SchemaChangedError
from dspark_json.schema.ddl import to_ddl
from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner
from dspark_json.source.registered import ask_for_schemas
from dspark_json.source.row_type import RowType, resolve_row_type
from dspark_json.source.schema_location import FILE_NAME
from dspark_json.source.settings import ReaderSettings, reader_settings

if TYPE_CHECKING:
    from pathlib import Path

ALL = ReadLimits()
FIRST = schema("order", 1, a="integer")
SAME_FIELDS = schema("order", 2, a="string")
WIDER = schema("order", 3, a="integer", b="string")
OTHER = schema("invoice", 4, total="number")
WEATHER = schema("weather", 5, "tool", city="string")
WEATHER_2 = schema("weather", 6, "tool", city="string", days="integer")


def started(given: dict[str, str]) -> tuple[ReaderSettings, RowType]:
    """What a data frame has after it is made."""
    settings = reader_settings(given, {})
    return settings, resolve_row_type(settings.types, lambda: ask_for_schemas(settings))


class Stream:
    """A stream from its first start on; ``restart`` is a new data frame that goes on from the same offset."""

    def __init__(self, **given: str) -> None:
        self._given = given
        self.offset: dict[str, Any] | None = None
        self.restart()

    def restart(self) -> None:
        settings, self.row_type = started(self._given)
        self.planner = Planner(settings, self.row_type)
        if self.offset is None:
            self.offset = self.planner.initial()

    def trigger(self) -> int:
        """Plan a micro-batch; gives how many records it has."""
        assert self.offset is not None
        end = self.planner.latest(self.offset, ALL)
        splits = self.planner.plan(self.offset, end)
        self.offset = end
        return sum(split.stop - split.start for split in splits)

    @property
    def content(self) -> str:
        assert self.row_type.content_type is not None
        return to_ddl(self.row_type.content_type)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "spool", answer('{"a":1}', FIRST), registers=(FIRST,))
    return tmp_path / "spool"


def updates(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "SCHEMA_UPDATE" in record.getMessage()]


def test_with_rescue_the_type_stays_and_the_new_schema_is_said_and_counted(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(path=str(folder), responseSchema="order", schemaLocation=str(tmp_path / "types"))
    assert (stream.trigger(), updates(caplog)) == (1, [])
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    assert stream.trigger() == 1
    assert (stream.planner.counts.schema_updates, stream.content) == (1, "STRUCT<a: BIGINT>")
    assert WIDER.hash[:12] in updates(caplog)[0]
    assert "parsed.b" in updates(caplog)[0]

    caplog.clear()
    write(folder, answer('{"a":1}', FIRST))
    stream.restart()
    assert (stream.trigger(), stream.content, updates(caplog)) == (1, "STRUCT<a: BIGINT>", [])


def test_with_add_new_columns_the_query_ends_before_their_records_and_has_them_after_the_restart(
    folder: Path, tmp_path: Path
) -> None:
    location = tmp_path / "types"
    options = {"responseSchema": "order", "schemaLocation": str(location), "schemaEvolutionMode": "addNewColumns"}
    stream = Stream(path=str(folder), **options)
    assert stream.trigger() == 1
    write(folder, answer('{"a":1}', FIRST), answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    with pytest.raises(SchemaChangedError, match=r"parsed\.b.*restart the query") as caught:
        stream.trigger()
    assert caught.value.code == "DSPARK_JSON_SCHEMA_CHANGED"
    assert json.loads((location / FILE_NAME).read_text())["content_type"] == "STRUCT<a: BIGINT, b: STRING>"
    with pytest.raises(SchemaChangedError):  # the same data frame once more: its columns are still those of before
        stream.trigger()

    stream.restart()
    assert (stream.content, stream.trigger()) == ("STRUCT<a: BIGINT, b: STRING>", 2)
    assert stream.planner.counts.schema_updates == 0


def test_the_schema_that_came_while_the_query_was_down_is_noticed_at_its_first_trigger(
    folder: Path, tmp_path: Path
) -> None:
    options = {"responseSchema": "order", "schemaLocation": str(tmp_path), "schemaEvolutionMode": "addNewColumns"}
    stream = Stream(path=str(folder), **options)
    assert stream.trigger() == 1
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    stream.restart()
    assert stream.content == "STRUCT<a: BIGINT>"
    with pytest.raises(SchemaChangedError):
        stream.trigger()
    stream.restart()
    assert (stream.content, stream.trigger()) == ("STRUCT<a: BIGINT, b: STRING>", 1)


def test_with_fail_on_new_columns_nothing_is_written_and_every_restart_fails(folder: Path, tmp_path: Path) -> None:
    options = {"responseSchema": "order", "schemaLocation": str(tmp_path), "schemaEvolutionMode": "failOnNewColumns"}
    stream = Stream(path=str(folder), **options)
    assert stream.trigger() == 1
    before = (tmp_path / FILE_NAME).read_text()
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    for _ in range(2):
        with pytest.raises(SchemaChangedError, match="addNewColumns"):
            stream.trigger()
        stream.restart()
    assert (tmp_path / FILE_NAME).read_text() == before


def test_with_none_nothing_happens_and_unknown_fields_are_not_rescued(folder: Path, tmp_path: Path) -> None:
    options = {"responseSchema": "order", "schemaLocation": str(tmp_path), "schemaEvolutionMode": "none"}
    stream = Stream(path=str(folder), **options)
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    assert (stream.trigger(), stream.content) == (2, "STRUCT<a: BIGINT>")
    assert stream.row_type.plan().rescue_unknown is False


def test_a_schema_that_adds_no_column_ends_no_query(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"responseSchema": "order", "schemaLocation": str(tmp_path), "schemaEvolutionMode": "addNewColumns"}
    stream = Stream(path=str(folder), **options)
    write(folder, answer('{"a":"x"}', SAME_FIELDS), answer("{}", OTHER), registers=(SAME_FIELDS, OTHER))
    assert (stream.trigger(), stream.content) == (3, "STRUCT<a: BIGINT>")
    assert len(updates(caplog)) == 1
    assert "none of its fields" in updates(caplog)[0]


def test_the_schema_of_the_tool_is_followed_too(folder: Path, tmp_path: Path) -> None:
    write(folder, tool_answer("weather", '{"city":"Rome"}'), registers=(WEATHER,))
    options = {"toolSchema": "weather", "schemaLocation": str(tmp_path), "schemaEvolutionMode": "addNewColumns"}
    stream = Stream(path=str(folder), **options)
    assert stream.trigger() == 2
    write(folder, tool_answer("weather", '{"city":"Rome","days":2}'), registers=(WEATHER_2,))
    with pytest.raises(SchemaChangedError, match=r"parsed_arguments\.days"):
        stream.trigger()
    stream.restart()
    assert stream.row_type.tool_type is not None
    assert (to_ddl(stream.row_type.tool_type), stream.trigger()) == ("STRUCT<city: STRING, days: BIGINT>", 1)


def test_with_a_content_schema_new_schemas_are_said_and_change_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(path=str(folder), responseSchema="order", contentSchema="a INT")
    assert (stream.trigger(), updates(caplog)) == (1, [])
    write(folder, answer('{"a":1}', WIDER), registers=(WIDER,))
    assert (stream.trigger(), stream.content) == (1, "STRUCT<a: INT>")
    assert len(updates(caplog)) == 1


def test_a_hint_holds_for_a_column_that_comes_later(folder: Path, tmp_path: Path) -> None:
    stream = Stream(
        path=str(folder),
        responseSchema="order",
        schemaLocation=str(tmp_path),
        schemaEvolutionMode="addNewColumns",
        schemaHints="b BIGINT",
    )
    assert stream.content == "STRUCT<a: BIGINT, b: BIGINT>"
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    assert stream.trigger() == 2


def test_a_folder_of_schemas_that_does_not_change_is_read_once(folder: Path, tmp_path: Path) -> None:
    old = time.time() - 60
    os.utime(folder / "schemas", (old, old))
    stream = Stream(path=str(folder), responseSchema="order", schemaLocation=str(tmp_path))
    assert stream.trigger() == 1
    kept = folder / "schemas" / f"{FIRST.hash}.json"
    text = kept.read_text()
    kept.write_text("{}")  # a document like this would be refused if it was read
    write(folder, answer('{"a":1}', FIRST))
    assert stream.trigger() == 1
    kept.write_text(text)
    write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
    assert stream.trigger() == 1
    assert stream.planner.counts.schema_updates == 1


def test_over_http_columns_that_end_the_query_are_noticed_before_their_records(folder: Path, tmp_path: Path) -> None:
    with serving(elsewhere(hook(folder, "the-key"))) as address:
        stream = Stream(
            vllm_endpoint=address,
            vllm_api_key="the-key",
            responseSchema="order",
            schemaLocation=str(tmp_path),
            schemaEvolutionMode="addNewColumns",
        )
        assert stream.trigger() == 1
        write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
        with pytest.raises(SchemaChangedError):
            stream.trigger()
        stream.restart()
        assert stream.trigger() == 1


def test_over_http_the_answer_is_used_for_as_long_as_the_option_says(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(elsewhere(hook(folder, "the-key"))) as address:
        given = {"vllm_endpoint": address, "vllm_api_key": "the-key", "responseSchema": "order"}
        patient, prompt = Stream(**given), Stream(**given, schema_cache_ttl_sec="0")
        assert (patient.trigger(), prompt.trigger()) == (1, 1)
        write(folder, answer('{"a":1,"b":"x"}', WIDER), registers=(WIDER,))
        caplog.clear()
        assert patient.trigger() == 1
        assert updates(caplog) == []
        assert prompt.trigger() == 1
        assert len(updates(caplog)) == 1


def test_a_server_that_cannot_be_asked_is_an_error_unless_the_schema_location_has_the_types(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"vllm_endpoint": "", "vllm_api_key": "the-key", "responseSchema": "order", "schemaLocation": str(tmp_path)}
    with serving(elsewhere(hook(folder, "the-key"))) as address:
        given["vllm_endpoint"] = address
        first = started(given)[1]
        with pytest.raises(EndpointKeyError):
            started({**given, "vllm_api_key": "wrong", "schemaLocation": str(tmp_path / "new")})
    assert started(given)[1] == first
    with pytest.raises(EndpointUnreachableError):
        started({**given, "schemaLocation": str(tmp_path / "new")})


def test_schemas_of_several_servers_are_one_list_in_first_seen_order(tmp_path: Path) -> None:
    write(tmp_path / "a", answer("{}", WIDER), registers=(WIDER, OTHER))
    write(tmp_path / "b", answer("{}", FIRST), registers=(FIRST, OTHER))
    with serving(hook(tmp_path / "a", "k")) as one, serving(hook(tmp_path / "b", "k")) as two:
        settings = reader_settings({"vllm_endpoint": f"{one},{two}", "vllm_api_key": "k"}, {})
        assert [found.hash for found in ask_for_schemas(settings)] == [FIRST.hash, WIDER.hash, OTHER.hash]


def test_a_stream_whose_types_are_not_kept_is_warned_about(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Stream(path=str(folder), responseSchema="order", schemaLocation=str(tmp_path))
    assert "without schemaLocation" not in caplog.text
    Stream(path=str(folder), responseSchema="order")
    assert "responseSchema order without schemaLocation" in caplog.text
    assert "other columns" in caplog.text


def test_with_rescue_a_schema_that_no_row_can_take_in_ends_no_query(folder: Path) -> None:
    stream = Stream(path=str(folder), responseSchema="order")
    names = [{f"x{i}": "string" for i in range(start, start + 3_000)} for start in (0, 3_000)]
    huge = tuple(schema("order", 10 + n, **one) for n, one in enumerate(names))
    write(folder, answer('{"a":1}', huge[0]), registers=huge)
    assert (stream.trigger(), stream.planner.counts.schema_updates) == (2, 2)


def test_without_a_filter_no_schema_is_looked_at(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(path=str(folder), contentSchema="a INT")
    (folder / "schemas" / f"{FIRST.hash}.json").write_text("{}")
    assert stream.trigger() == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
