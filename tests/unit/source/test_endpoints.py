"""The planner over real servers: transport, keys, servers that go away, come back, or stand behind a load balancer."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from serving import App, Message, Receive, Send, elsewhere, free_port, hook, model, serving
from unit.source.spools import ALL, expire, labels, lanes_of, settings, write

from dspark_json.errors import (
    DataLossError,
    EndpointAnswerError,
    EndpointKeyError,
    EndpointUnreachableError,
    LoadBalancerError,
)
from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner

KEY = "s3cret-key"


def planner(*addresses: str, key: str | None = KEY, **options: str) -> Planner:
    given = {"vllm_endpoint": ",".join(addresses), "endpointTimeoutSec": "5", **options}
    return Planner(settings({**given, "vllm_api_key": key} if key else given))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def default_folder(port: int) -> Path:
    return Path(f"/dev/shm/dspark_vllm_{port}")


def turning(*apps: App) -> App:
    """A load balancer: each connection's requests go to the next application."""
    turn = -1
    seen: dict[object, App] = {}

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal turn
        if scope["type"] == "lifespan":
            await model(scope, receive, send)
            return
        connection = tuple(scope["client"])
        if connection not in seen:
            turn += 1
            seen[connection] = apps[turn % len(apps)]
        await seen[connection](scope, receive, send)

    return app


class Switch:
    """An application that can be exchanged while its server runs."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await (model if scope["type"] == "lifespan" else self.app)(scope, receive, send)


async def unavailable(scope: Message, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def control(folder: Path, key: str | None = KEY) -> App:
    """The control routes of a spool that exists already, without a server start of their own."""
    from dspark_json.capture.control import ControlRoutes

    served = hook(folder, key)
    served._appender.folder = folder
    assert isinstance(served._control, ControlRoutes)
    return served


@pytest.mark.parametrize("way", ["folder", "http"])
def test_both_ways_give_the_same_records(folder: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    spool_id = write(folder, 30, 4)
    app = hook(folder, KEY)
    with serving(app if way == "folder" else elsewhere(app)) as address, caplog.at_level(logging.INFO):
        plan = planner(address)
        start = plan.initial()
        end = plan.latest(start, ReadLimits(20, 1200))
        splits = plan.plan(start, end)
        assert {split.folder for split in splits} == {str(folder) if way == "folder" else None}
        assert end["spools"][spool_id]["endpoint"] == address
        read = labels(plan, start, end, key=KEY)
        while (following := plan.latest(end, ReadLimits(20, 1200))) is not end:
            read += labels(plan, end, following, key=KEY)
            end = following
    assert sorted(read) == sorted([f"0000:{i}" for i in range(30)] + [f"0001:{i}" for i in range(4)])
    assert KEY not in caplog.text
    (said,) = [r for r in caplog.records if r.name.endswith("transport")]
    assert said.levelno == logging.INFO
    assert ("from HTTP" in said.getMessage()) == (way == "http")


def test_without_a_key_the_default_folder_is_read(folder: Path) -> None:
    port = free_port()
    place = default_folder(port)
    try:
        write(place, 3)
        with serving(hook(place), port) as address:
            plan = planner(address, key=None)
            start = plan.initial()
            assert plan.plan(start, plan.latest(start, ALL))[0].folder == str(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_a_wrong_key_is_an_error_even_where_the_folder_needs_none() -> None:
    port = free_port()
    place = default_folder(port)
    try:
        write(place, 3)
        with serving(hook(place, "another-key"), port) as address, pytest.raises(EndpointKeyError, match="refuses"):
            planner(address).initial()
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("theirs", [KEY, None])
def test_a_key_for_a_server_that_has_none_is_told_once_where_the_folder_is_read(
    theirs: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    place = default_folder(port)
    try:
        write(place, 3)
        with serving(hook(place, theirs), port) as address:
            plan = planner(address)
            start = plan.initial()
            assert plan.plan(start, plan.latest(start, ALL))[0].folder == str(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [address in text and "has no key" in text for text in told] == ([] if theirs == KEY else [True])
    assert KEY not in caplog.text


def test_a_default_folder_of_another_spool_is_not_taken(folder: Path) -> None:
    port = free_port()
    place = default_folder(port)
    try:
        write(place, 3)
        write(folder, 1)
        with serving(hook(folder), port) as address, pytest.raises(EndpointKeyError, match="vllm_api_key") as caught:
            planner(address, key=None).initial()
        assert str(place) in str(caught.value)
        assert '.load("/that/folder")' in caught.value.remedy
        assert "start the server with DSPARK_API_KEY set" in caught.value.remedy
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_at_the_first_start_every_endpoint_must_answer(folder: Path) -> None:
    write(folder, 1)
    nobody = f"http://127.0.0.1:{free_port()}"
    with serving(hook(folder, KEY)) as address, pytest.raises(EndpointUnreachableError, match=nobody):
        planner(address, nobody).initial()


def test_several_endpoints_are_one_stream(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", 2), write(tmp_path / "b", 3)
    with serving(hook(tmp_path / "a", KEY)) as a, serving(elsewhere(hook(tmp_path / "b", KEY))) as b:
        plan = planner(a, b)
        start = plan.initial()
        end = plan.latest(start, ALL)
        assert (lanes_of(end, first), lanes_of(end, second)) == ({"0000": 2}, {"0000": 3})
        assert len(labels(plan, start, end, key=KEY)) == 5


def test_two_names_of_one_server_are_read_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, 3)
    with serving(hook(folder, KEY)) as address, caplog.at_level(logging.WARNING):
        plan = planner(address, address.replace("127.0.0.1", "localhost"))
        start = plan.initial()
        assert len(labels(plan, start, plan.latest(start, ALL), key=KEY)) == 3
    assert "one server" in caplog.text


def test_a_server_that_is_down_later_keeps_its_offsets(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 2)
    other = write(tmp_path / "b", 2)
    switch = Switch(elsewhere(control(folder)))
    with serving(switch) as address, serving(hook(tmp_path / "b", KEY)) as b, caplog.at_level(logging.WARNING):
        plan = planner(address, b)
        start = plan.latest(plan.initial(), ALL)
        there = switch.app
        switch.app = unavailable
        write(folder, 1)
        assert plan.latest(start, ALL) is start
        assert plan.latest(start, ALL) is start
        assert caplog.text.count("wait until it answers again") == 1
        assert plan.counts.endpoints_down == 2
        write(tmp_path / "b", 0, 1)
        end = plan.latest(start, ALL)
        assert labels(plan, start, end, key=KEY) == ["0001:0"] or labels(plan, start, end, key=KEY) == ["0002:0"]
        assert other in end["spools"]
        switch.app = there
        assert labels(plan, end, plan.latest(end, ALL), key=KEY) == ["0000:2"]


def test_the_folder_of_a_server_that_is_down_is_still_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, 2)
    switch = Switch(control(folder))
    with serving(switch) as address, caplog.at_level(logging.WARNING):
        plan = planner(address)
        start = plan.latest(plan.initial(), ALL)
        switch.app = unavailable
        write(folder, 1)
        end = plan.latest(start, ALL)
        assert labels(plan, start, end, key=KEY) == ["0000:2"]
    assert "does not answer; its spool is read from" in caplog.text


def test_after_a_restart_the_default_folder_of_a_server_that_is_down_is_read(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    place = default_folder(port)
    address = f"http://127.0.0.1:{port}"
    try:
        spool_id = write(place, 3)
        lanes = {"0000": {"next": 1, "seen": 3}}
        start = {"spools": {spool_id: {"endpoint": address, "lanes": lanes}}, "v": 1}
        plan = planner(address, key=None)
        assert labels(plan, start, plan.latest(start, ALL)) == ["0000:1", "0000:2"]
        ending = planner(address, key=None)
        ending.fix_target()
        assert labels(ending, start, ending.latest(start, ALL)) == ["0000:1", "0000:2"]
        shutil.rmtree(place)
        write(place, 3)
        again = planner(address, key=None)
        assert again.latest(start, ALL) is start
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_a_load_balancer_is_found_at_the_first_start(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 1)
    with serving(turning(control(tmp_path / "a"), control(tmp_path / "b"))) as address:
        with pytest.raises(LoadBalancerError, match="load balancer") as caught:
            planner(address).initial()
        assert "replicas" in caught.value.remedy


def test_a_load_balancer_that_comes_later_is_found(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 1)
    switch = Switch(control(tmp_path / "a"))
    with serving(switch) as address:
        plan = planner(address)
        start = plan.latest(plan.initial(), ALL)
        switch.app = turning(control(tmp_path / "b"), control(tmp_path / "a"))
        with pytest.raises(LoadBalancerError):
            plan.latest(start, ALL)


def test_an_id_that_was_given_up_and_comes_back_is_a_load_balancer(tmp_path: Path) -> None:
    write(tmp_path / "a", 1)
    write(tmp_path / "b", 1)
    switch = Switch(control(tmp_path / "a"))
    with serving(switch) as address:
        plan = planner(address)
        start = plan.latest(plan.initial(), ALL)
        switch.app = control(tmp_path / "b")
        end = plan.latest(start, ALL)
        assert end is not start
        switch.app = control(tmp_path / "a")
        with pytest.raises(LoadBalancerError):
            plan.latest(end, ALL)


def test_a_server_with_a_new_spool_supersedes_the_old_one(tmp_path: Path) -> None:
    write(tmp_path / "a", 4)
    new = write(tmp_path / "b", 2)
    switch = Switch(elsewhere(control(tmp_path / "a")))
    with serving(switch) as address:
        plan = planner(address)
        start = plan.initial()
        half, whole = plan.latest(start, ReadLimits(1)), plan.latest(start, ALL)
        switch.app = elsewhere(control(tmp_path / "b"))
        with pytest.raises(DataLossError, match="3 records"):
            plan.latest(half, ALL)
        end = plan.latest(whole, ALL)
        assert list(end["spools"]) == [new]
        assert labels(plan, whole, end, key=KEY) == ["0000:0", "0000:1"]


def test_a_server_that_moved_to_another_address_goes_on_where_it_was(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool_id = write(folder, 2)
    with serving(hook(folder, KEY)) as address:
        start = planner(address).initial()
    write(folder, 0)
    with serving(hook(folder, KEY)) as moved:
        plan = planner(moved)
        end = plan.latest(start, ALL)
        assert end["spools"][spool_id]["endpoint"] == moved
        assert labels(plan, start, end, key=KEY) == ["0000:0", "0000:1"]


def test_a_server_taken_off_the_list_keeps_its_position(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = write(tmp_path / "a", 2)
    write(tmp_path / "b", 2)
    with serving(hook(tmp_path / "a", KEY)) as a, serving(hook(tmp_path / "b", KEY)) as b:
        start = planner(a, b).initial()
        with caplog.at_level(logging.WARNING):
            end = planner(b).latest(start, ALL)
    assert lanes_of(end, gone) == {"0000": 0}
    assert "none of the addresses given" in caplog.text


@pytest.mark.parametrize("status", [200, 404])
def test_an_endpoint_that_turns_into_something_else_is_an_error(folder: Path, status: int) -> None:
    async def html(scope: Message, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/html"), (b"content-length", b"6")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"<html>"})

    write(folder, 1)
    switch = Switch(control(folder))
    with serving(switch) as address:
        plan = planner(address)
        start = plan.initial()
        switch.app = html
        with pytest.raises(EndpointAnswerError, match=f"status {status}, content type text/html"):
            plan.latest(start, ALL)


def test_records_that_expire_between_plan_and_read_are_data_loss(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, 30)
    with serving(elsewhere(hook(folder, KEY))) as address:
        plan = planner(address)
        start = plan.initial()
        end = plan.latest(start, ALL)
        first = expire(folder)
        splits = plan.plan(start, end)
        assert splits[0].start == 0
        with pytest.raises(DataLossError, match=f"records 0 to {first - 1}"):
            labels(plan, start, end, key=KEY)
        with caplog.at_level(logging.WARNING):
            assert labels(plan, start, end, key=KEY, fail=False) == [f"0000:{i}" for i in range(first, 30)]
        assert f"lost_records {first}" in caplog.text
