"""A thousand servers: what a trigger asks of them, and what those cost that never answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fleet import RECORDS, Fleet, fleet
from unit.source.spools import ALL, settings

from dspark_json.source.admission import ReadLimits
from dspark_json.source.asking import ask_all
from dspark_json.source.offsets import LanePosition, Offset, SpoolPosition
from dspark_json.source.planner import Planner, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = 1000
DEAD = 50


@pytest.fixture(scope="module")
def servers() -> Iterator[Fleet]:
    with fleet() as running:
        yield running


def planner(*addresses: str, **options: str) -> Planner:
    given = {"vllm_endpoint": ",".join(addresses), "vllm_api_key": "key", "endpointTimeoutSec": "60"}
    return Planner(settings({**given, **options}))


def begun(addresses: list[str]) -> Value:
    """The offset of a stream that has read one record of each server."""
    spools = {}
    for address in addresses:
        host = address.removeprefix("http://").split(":")[0]
        spools["spool-" + host.replace(".", "-")] = SpoolPosition(address, {"0000": LanePosition(1, RECORDS)})
    return Offset(spools).value()


def test_a_trigger_asks_each_of_a_thousand_servers_once(servers: Fleet) -> None:
    addresses = servers.live(SERVERS)
    plan = planner(*addresses)
    start = begun(addresses)
    servers.counts()
    end = plan.latest(start, ALL)
    assert len(plan.plan(start, end)) == SERVERS
    assert servers.counts()["requests"] == {"/health/json-schema": SERVERS, "/dspark/v1/offsets": SERVERS}
    for _ in range(2):
        assert plan.latest(end, ALL) is end
        found = servers.counts()
        assert found["requests"] == {"/dspark/v1/offsets": SERVERS}
        assert found["connections"] == SERVERS


def test_a_new_stream_is_bounded_by_the_silence_of_its_servers_not_by_their_number(servers: Fleet) -> None:
    ready = [threading.Event() for _ in range(6)]
    ready[0].set()

    def in_turn(name: str) -> str:
        ready[int(name)].wait(60)
        threading.Event().wait(0.5)
        ready[int(name) + 1].set()
        return name

    assert len(ask_all(["0", "1", "2", "3", "4"], in_turn, 2.0, patient=True)) == 5
    addresses = servers.live(100)
    assert len(planner(*addresses).initial()["spools"]) == len(addresses)


def test_servers_that_never_answer_cost_one_deadline_and_keep_their_records_waiting(servers: Fleet) -> None:
    live, dead = servers.live(SERVERS - DEAD), servers.dead(DEAD)
    mixed = [*dead[: DEAD // 2], *live, *dead[DEAD // 2 :]]
    plan = planner(*mixed, endpointTimeoutSec="8")
    start = begun(mixed)
    servers.counts()
    end = plan.latest(start, ALL)
    assert len(plan.plan(start, end)) == len(live)
    assert plan.counts.endpoints_down == DEAD
    # All hang at the same time, so that they can't cost one deadline after another.
    assert servers.counts()["hanging"] >= DEAD
    waiting = {spool["endpoint"]: spool["lanes"]["0000"]["next"] for spool in end["spools"].values()}
    assert {waiting[address] for address in dead} == {1}
    assert {waiting[address] for address in live} == {RECORDS}


def test_byte_limits_ask_for_no_more_than_one_index_of_each_lane(servers: Fleet) -> None:
    addresses = servers.live(100)
    plan = planner(*addresses)
    start = begun(addresses)
    servers.counts()
    plan.latest(start, ReadLimits(max_bytes=1 << 20))
    assert servers.counts()["requests"]["index"] == len(addresses)


def test_many_that_hang_keep_nobody_else_from_being_asked() -> None:
    released = threading.Event()

    def ask(name: str) -> str:
        if name.startswith("dead"):
            released.wait(60)
        return name

    names = [*(f"dead{i}" for i in range(200)), *(f"live{i}" for i in range(100))]
    found = ask_all(names, ask, 2.0)
    released.set()
    assert set(found) == {f"live{i}" for i in range(100)}


def test_what_asking_raises_is_handed_over() -> None:
    def ask(name: str) -> str:
        raise ValueError(name)

    found = ask_all(["a"], ask, 5.0)
    assert isinstance(found["a"], ValueError)
    assert ask_all([], ask, 5.0) == {}
