"""The file that keeps a query's types over its restarts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dspark_json.errors import SchemaLocationError
from dspark_json.source.schema_location import FILE_NAME, KeptTypes, read_location, write_location

if TYPE_CHECKING:
    from pathlib import Path

KEPT = KeptTypes("order", "weather", "STRUCT<`a b`: BIGINT, é: STRING>", "STRUCT<c: INT>", ("weather",), ("aa", "bb"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    assert read_location(folder) is None
    for kept in (KEPT, KeptTypes()):
        write_location(folder, kept)
        assert read_location(folder) == kept
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


def test_the_history_says_which_schemas_came_and_what_the_types_were(tmp_path: Path) -> None:
    write_location(tmp_path, KeptTypes("order", content_type="STRUCT<a: BIGINT>", hashes=("aa",)))
    write_location(tmp_path, KeptTypes("order", content_type="STRUCT<a: BIGINT, b: INT>", hashes=("aa", "bb")))
    document = json.loads((tmp_path / FILE_NAME).read_text())
    assert document["v"] == 1
    assert [(entry["hashes"], entry["content_type"]) for entry in document["history"]] == [
        (["aa"], "STRUCT<a: BIGINT>"),
        (["bb"], "STRUCT<a: BIGINT, b: INT>"),
    ]
    assert document["history"][0]["at"] <= document["history"][1]["at"]


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"v":2}', '{"v":1}', '{"v":1,"response_schema":3,"tool_schema":null,"content_type":null}', "\xff"],
)
def test_a_file_that_is_damaged_or_of_another_version_is_a_named_error(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(SchemaLocationError, match="delete it"):
        read_location(tmp_path)


def test_a_place_that_is_no_folder_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SchemaLocationError, match="can't be read"):
        read_location(tmp_path / "file")
    with pytest.raises(SchemaLocationError, match="can't be"):
        write_location(tmp_path / "file" / "below", KEPT)
