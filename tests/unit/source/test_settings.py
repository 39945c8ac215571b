"""What a reader's options mean together, and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_json.errors import InvalidOptionError, MissingOptionError, UnknownOptionError
from dspark_json.source.settings import reader_settings

SERVER = {"vllm_endpoint": "http://h:1"}


def test_neither_an_endpoint_nor_a_path_is_an_error() -> None:
    with pytest.raises(MissingOptionError, match="vllm_endpoint"):
        reader_settings({}, {})


def test_an_endpoint_and_a_path_together_are_an_error() -> None:
    with pytest.raises(InvalidOptionError, match="both"):
        reader_settings({**SERVER, "path": "/x"}, {})


def test_an_unknown_option_names_the_closest() -> None:
    with pytest.raises(UnknownOptionError, match="maxOffsetsPerTrigger"):
        reader_settings({**SERVER, "maxofsetspertrigger": "1"}, {})


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("file://localhost/a", "/a"),
        ("/a/b/", "/a/b"),
    ],
)
def test_a_path_may_be_a_file_uri(path: str, folder: str) -> None:
    assert reader_settings({"path": path}, {}).addresses == (folder,)


def test_a_relative_path_is_made_absolute() -> None:
    assert reader_settings({"path": "a"}, {}).addresses == (str(Path.cwd() / "a"),)


@pytest.mark.parametrize(
    "path", ["s3://bucket/x", "hdfs://h/x", "file://otherhost/x", "file://[::1/x", "file:///a%00b", "file:"]
)
def test_a_path_that_is_not_local_is_an_error(path: str) -> None:
    with pytest.raises(InvalidOptionError, match="not "):
        reader_settings({"path": path}, {})


def test_the_key_is_the_option_else_the_file_else_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\nsecond line\n")
    environment = {"DSPARK_API_KEY": "from-environment"}
    assert reader_settings(SERVER, {}).key is None
    assert reader_settings(SERVER, environment).key == "from-environment"
    with_file = {**SERVER, "vllm_api_key_file": str(file)}
    assert reader_settings(with_file, environment).key == "from-file"
    assert reader_settings({**with_file, "vllm_api_key": "from-option"}, environment).key == "from-option"


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="No such file"):
        reader_settings({**SERVER, "vllm_api_key_file": str(tmp_path / "none")}, {})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidOptionError, match="first line of vllm_api_key_file"):
        reader_settings({**SERVER, "vllm_api_key_file": str(tmp_path / "empty")}, {})


@pytest.mark.parametrize("key", ["two words", "new\nline-secret", "schlüssel-secret"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        reader_settings({**SERVER, "vllm_api_key": key}, {})
    assert "secret" not in str(caught.value)
    assert "words" not in str(caught.value)


def test_the_key_is_in_no_repr() -> None:
    settings = reader_settings({**SERVER, "vllm_api_key": "hush-hush"}, {})
    assert settings.key == "hush-hush"
    assert "hush-hush" not in repr(settings)


@pytest.mark.parametrize("given", ["/types/of query", "file:///types/of%20query", "file:/types/of%20query"])
def test_the_schema_location_is_a_local_folder(given: str) -> None:
    assert reader_settings({**SERVER, "schemaLocation": given}, {}).types.location == "/types/of query"


@pytest.mark.parametrize("given", ["s3://bucket/types", "hdfs://name/types"])
def test_a_schema_location_elsewhere_is_refused(given: str) -> None:
    with pytest.raises(InvalidOptionError, match="schemaLocation is a local folder of the driver"):
        reader_settings({**SERVER, "schemaLocation": given}, {})
