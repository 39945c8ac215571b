"""What a command line names with one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dspark_json.errors import InvalidOptionError
from dspark_json.source.target import is_remote, meant_address, target_option

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("target", ["http://a", "HTTPS://a", "dns+http://a:1", "http://a:1, http://b:1"])
def test_addresses_are_servers(target: str) -> None:
    assert is_remote(target)
    assert target_option(target) == {"vllm_endpoint": target}


@pytest.mark.parametrize("target", ["/data/spool", "spool", "a,b", "file:///data/spool", "localhost:8000", "s3://x"])
def test_all_else_is_a_folder(target: str) -> None:
    assert target_option(target) == {"path": target}


@pytest.mark.parametrize(
    ("target", "part", "remedy"),
    [
        ("imp,http://a:1", "imp", "Did you mean http://imp:8000?"),
        ("http://a:1,imp:8001", "imp:8001", "Did you mean http://imp:8001?"),
        ("http://a:1,/data/spool", "/data/spool", "A spool folder is named alone."),
    ],
)
def test_a_part_of_several_addresses_that_is_none_is_named(target: str, part: str, remedy: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        target_option(target)
    assert f'"{part}"' in caught.value.message
    assert caught.value.remedy == remedy


@pytest.mark.parametrize("target", ["/data/spool", "./spool", "dspark_vllm_8000", "-", "", "a b", "~/spool"])
def test_what_is_written_as_a_path_is_meant_as_one(target: str) -> None:
    assert meant_address(target) is None


@pytest.mark.parametrize("port", ["1", "8000", "18710", "65535"])
def test_a_bare_number_is_meant_as_a_port_of_this_machine(port: str) -> None:
    assert meant_address(port) == f"http://localhost:{port}"


def test_what_the_operating_system_refuses_to_look_for_is_no_error() -> None:
    assert meant_address("a" * 300) == f"http://{'a' * 300}:8000"


def test_what_is_there_is_meant_as_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert meant_address("imp") == "http://imp:8000"
    (tmp_path / "imp").mkdir()
    assert meant_address("imp") is None
