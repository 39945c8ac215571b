"""``dns+http://name:port``: the servers behind a name are those that it has at each trigger."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from fleet import Fleet, fleet
from serving import hook, serving
from unit.source.spools import ALL, labels, settings, write

from dspark_json.errors import EndpointUnreachableError, InvalidOptionError
from dspark_json.source.discovery import Discovery, Survey
from dspark_json.source.names import resolved
from dspark_json.source.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEY = "s3cret-key"


@pytest.fixture(scope="module")
def servers() -> Iterator[Fleet]:
    with fleet() as running:
        yield running


class Table:
    """A name service: what it knows can change, and it can fail."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = dict(names)

    def __call__(self, host: str) -> Sequence[str]:
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.names[host]


def hosts(addresses: Sequence[str]) -> list[str]:
    return [urlsplit(address).hostname or "" for address in addresses]


def discovery(given: str, table: Table, timeout_s: float = 20.0) -> Discovery:
    return Discovery(given.split(","), local=False, key=KEY, timeout_s=timeout_s, resolve=table)


def known(survey: Survey) -> dict[str, str]:
    return {spool_id: found.address for spool_id, found in survey.spools.items()}


def test_a_name_is_looked_up_at_each_look(servers: Fleet) -> None:
    one, two, three = servers.live(3)
    port = urlsplit(one).port
    table = Table(replicas=hosts([one, two]))
    look = discovery(f"dns+http://replicas:{port}", table)
    first = look.look({}, first=True)
    assert sorted(known(first).values()) == sorted([one, two])
    table.names["replicas"] = hosts([two, three])
    second = look.look(known(first))
    assert sorted(known(second).values()) == sorted([two, three])
    assert list(second.addresses) == [two, three]


def test_an_address_listed_and_behind_a_name_is_asked_once(servers: Fleet) -> None:
    (one,) = servers.live(1)
    servers.counts()
    survey = discovery(f"{one},dns+http://replicas:{urlsplit(one).port}", Table(replicas=hosts([one]))).look({})
    assert list(survey.addresses) == [one]
    assert servers.counts()["requests"]["/dspark/v1/offsets"] == 1


def test_a_name_that_can_not_be_looked_up_stands_for_its_last_addresses(servers: Fleet) -> None:
    (one,) = servers.live(1)
    name = f"dns+http://replicas:{urlsplit(one).port}"
    table = Table(replicas=hosts([one]))
    look = discovery(name, table)
    before = known(look.look({}, first=True))
    table.names.clear()
    survey = look.look(before)
    assert known(survey) == before
    assert f"its last addresses ({one}) are asked" in str(survey.down[name])


def test_a_name_without_addresses_is_an_endpoint_that_is_down() -> None:
    survey = discovery("dns+http://nobody:8000", Table()).look({})
    (error,) = survey.down.values()
    assert isinstance(error, EndpointUnreachableError)
    assert "dns+http://nobody:8000" in error.message
    assert "headless" in error.remedy


def test_a_new_stream_needs_the_name() -> None:
    plan = Planner(settings({"vllm_endpoint": "dns+http://no-such-name.invalid:8000", "endpointTimeoutSec": "20"}))
    with pytest.raises(EndpointUnreachableError, match=r"dns\+http://no-such-name\.invalid:8000"):
        plan.initial()


def test_servers_behind_a_name_may_take_addresses_from_one_another(servers: Fleet) -> None:
    one, two = servers.live(2)
    table = Table(replicas=hosts([one, two]))
    look = discovery(f"dns+http://replicas:{urlsplit(one).port}", table)
    first = known(look.look({}, first=True))
    swapped = dict(zip(first, reversed(list(first.values())), strict=True))
    again = known(look.look(swapped))
    assert again == first
    assert known(look.look(swapped)) == first


def test_a_host_with_both_kinds_of_addresses_is_one_server() -> None:
    assert resolved("localhost") == ["127.0.0.1"]
    assert resolved("::1") == ["::1"]
    with pytest.raises(socket.gaierror):
        resolved("no-such-name.invalid")


def test_records_of_a_server_behind_a_real_name_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool_id = write(tmp_path / "spool", 4)
    with serving(hook(tmp_path / "spool", KEY)) as address, caplog.at_level(logging.INFO):
        given = address.replace("http://127.0.0.1", "dns+http://localhost") + "/v1"
        plan = Planner(settings({"vllm_endpoint": given, "vllm_api_key": KEY, "endpointTimeoutSec": "20"}))
        start = plan.initial()
        assert start["spools"][spool_id]["endpoint"] == address
        assert len(labels(plan, start, plan.latest(start, ALL), key=KEY)) == 4
    assert f"{given.removesuffix('/v1')}: {address}" in caplog.text
    assert "none of the addresses given" not in caplog.text


def test_names_are_for_plain_http() -> None:
    with pytest.raises(InvalidOptionError, match="certificates"):
        settings({"vllm_endpoint": "dns+https://replicas:8000"})
    assert settings({"vllm_endpoint": "dns+http://replicas:8000/v1/"}).addresses == ("dns+http://replicas:8000",)
