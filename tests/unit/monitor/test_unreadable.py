"""A server whose spool can't be read is told to be down, by its name, and costs the others nothing."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml
from serving import elsewhere, free_port, hook, model, serving
from typed_spools import answer, write

from dspark_json.errors import (
    EndpointAnswerError,
    EndpointKeyError,
    EndpointUnreachableError,
    SpoolError,
    SpoolNotFoundError,
)
from dspark_json.monitor.exporter import Exporter, metrics_text
from dspark_json.monitor.watch import Watch, WatchSettings
from dspark_json.source.settings import reader_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RULES = Path(__file__).parents[3] / "docker" / "prometheus" / "rules.yml"
KEY = "the-hooks-key"
_FIVE_MINUTES_US = 301_000_000


class Clock:
    """The wall clock, which may be put on."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us


def watch_of(*addresses: str, clock: Callable[[], int] | None = None, once: bool = False) -> Watch:
    given = reader_settings({"vllm_endpoint": ",".join(addresses), "vllm_api_key": KEY})
    settings = WatchSettings(given, windows_s=(60,), all_up=once)
    return Watch(settings) if clock is None else Watch(settings, clock)


def junk_identity(spool: Path) -> None:
    (spool / "spool.json").write_bytes(b"junk")


def lanes_that_are_a_file(spool: Path) -> None:
    (spool / "lanes").rename(spool / "away")
    (spool / "lanes").write_bytes(b"")


def lane_that_loops(spool: Path) -> None:
    """An index that can't be opened, whoever asks."""
    (index,) = (spool / "lanes/0000").glob("*.index")
    (spool / "away").mkdir(exist_ok=True)
    index.rename(spool / "away" / index.name)
    index.symlink_to(index.name)


DAMAGES = pytest.mark.parametrize("damage", [junk_identity, lanes_that_are_a_file])


@contextlib.contextmanager
def two_servers(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two servers with an answer each, in ``a`` and ``b``."""
    for name in "ab":
        write(tmp_path / name, answer(name))
    with serving(hook(tmp_path / "a", KEY)) as one, serving(hook(tmp_path / "b", KEY)) as other:
        yield one, other


@DAMAGES
def test_a_spool_that_can_not_be_read_is_down_by_its_servers_name_and_the_others_go_on(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    with two_servers(tmp_path) as (one, other):
        watch = watch_of(one, other)
        watch.look()
        assert (watch.figures(60).total.answers, watch.figures(60).down) == (2, {})
        damage(tmp_path / "a")
        write(tmp_path / "b", answer("b"))
        for _ in range(2):
            watch.look()
            figures = watch.figures(60)
            assert figures.total.answers == 3
            assert list(figures.down) == [one]
            assert one in figures.down[one]
            assert str(tmp_path / "a") in figures.down[one]
            assert figures.value("servers_down") == 1


@DAMAGES
def test_at_the_start_it_is_down_too_and_an_error_where_all_must_be_read(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    with two_servers(tmp_path) as (one, other):
        damage(tmp_path / "a")
        watch = watch_of(one, other)
        watch.look()
        assert (watch.figures(60).total.answers, list(watch.figures(60).down)) == (1, [one])
        with pytest.raises((SpoolError, EndpointUnreachableError)):
            watch_of(one, other, once=True).look()


def test_at_the_start_it_is_an_error_where_nothing_else_can_be_read(tmp_path: Path) -> None:
    with two_servers(tmp_path) as (one, _):
        lanes_that_are_a_file(tmp_path / "a")
        for lone in (watch_of(one), watch_of(one, "http://127.0.0.1:1")):
            with pytest.raises(SpoolError):
                lone.look()


def test_it_is_picked_up_when_it_can_be_read_again(tmp_path: Path) -> None:
    with two_servers(tmp_path) as (one, other):
        kept = (tmp_path / "a/spool.json").read_bytes()
        junk_identity(tmp_path / "a")
        watch = watch_of(one, other)
        watch.look()
        (tmp_path / "a/spool.json").write_bytes(kept)
        watch.look()
        assert (watch.figures(60).total.answers, watch.figures(60).down) == (2, {})


def test_a_lane_that_can_not_be_read_is_its_servers_trouble_alone(tmp_path: Path) -> None:
    with two_servers(tmp_path) as (one, other):
        watch = watch_of(other)
        watch.look()
        lane_that_loops(tmp_path / "a")
        late = watch_of(one, other)
        late.look()
        assert (late.figures(60).total.answers, list(late.figures(60).down)) == (1, [one])


def test_a_server_that_lost_its_hook_is_down_and_the_others_go_on(tmp_path: Path) -> None:
    write(tmp_path / "b", answer("b"))
    port = free_port()
    with serving(hook(tmp_path / "b", KEY)) as other:
        with serving(elsewhere(hook(tmp_path / "a", KEY)), port) as one:
            watch = watch_of(one, other)
            watch.look()
            assert watch.figures(60).down == {}
        with serving(model, port):
            write(tmp_path / "b", answer("b"))
            watch.look()
            assert (watch.figures(60).total.answers, list(watch.figures(60).down)) == (2, [one])
            with pytest.raises(EndpointAnswerError):
                watch_of(one).look()
    with pytest.raises(EndpointUnreachableError):
        watch_of(one, other, once=True).look()


def test_a_server_with_another_key_is_down_and_the_others_go_on(tmp_path: Path) -> None:
    with serving(elsewhere(hook(tmp_path / "a", "another"))) as one, serving(hook(tmp_path / "b", KEY)) as other:
        write(tmp_path / "b", answer("b"))
        watch = watch_of(one, other)
        watch.look()
        assert (watch.figures(60).total.answers, list(watch.figures(60).down)) == (1, [one])
        assert KEY not in watch.figures(60).down[one]
        with pytest.raises(EndpointKeyError):
            watch_of(one).look()


def test_a_folder_that_can_not_be_read_any_more_is_down(tmp_path: Path) -> None:
    write(tmp_path / "spool", answer("1"))
    watch = Watch(WatchSettings(reader_settings({"path": str(tmp_path / "spool")}), (60,), all_up=False))
    watch.look()
    (tmp_path / "spool").rename(tmp_path / "moved")
    watch.look()
    assert list(watch.figures(60).down) == [str(tmp_path / "spool")]
    assert watch.figures(60).value("servers_down") == 1
    with pytest.raises(SpoolNotFoundError):
        Watch(WatchSettings(reader_settings({"path": str(tmp_path / "spool")}), (60,), all_up=False)).look()


# -- the alerts that are shipped ------------------------------------------------------------------------------------


def rule(name: str) -> str:
    """The expression of an alert."""
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    (found,) = [one["expr"] for one in group["rules"] if one.get("alert") == name]
    return str(found)


def fires(name: str, exposition: str, now_us: int) -> bool:
    """Whether a rule of the form ``[time() -] SERIES > NUMBER`` has a result over an exposition, as Prometheus has it.

    A series that is not there has none.
    """
    match = re.fullmatch(r"(time\(\) - )?(\w+) > ([0-9]+)", rule(name))
    assert match is not None, "the rule has a form that this test does not know"
    values = re.findall(rf"^{match[2]} (\S+)$", exposition, re.MULTILINE)
    return any((now_us / 1e6 - float(v) if match[1] else float(v)) > float(match[3]) for v in values)


@pytest.mark.parametrize("at_the_start", [True, False])
@pytest.mark.parametrize("damage", [junk_identity, lanes_that_are_a_file, shutil.rmtree])
def test_the_shipped_alerts_fire_where_a_server_can_not_be_read(
    damage: Callable[[Path], None], at_the_start: bool, tmp_path: Path
) -> None:
    clock = Clock()
    with two_servers(tmp_path) as (one, other):
        is_gone = damage is shutil.rmtree  # and its server with it
        watch = watch_of("http://127.0.0.1:1" if is_gone else one, other, clock=clock)
        if not (at_the_start or is_gone):
            watch.look()
            text = metrics_text(watch.figures(60))
            assert not fires("DsparkMonitoredServerDown", text, clock())
            assert not fires("DsparkMonitorStale", text, clock())
        damage(tmp_path / "a")
        watch.look()
        text = metrics_text(watch.figures(60))
        assert fires("DsparkMonitoredServerDown", text, clock())
        assert not fires("DsparkMonitorStale", text, clock())
        clock.ahead_us = _FIVE_MINUTES_US
        watch.look()
        text = metrics_text(watch.figures(60))
        assert fires("DsparkMonitoredServerDown", text, clock())
        assert fires("DsparkMonitorStale", text, clock())


def test_when_it_was_last_read_is_told_from_the_start() -> None:
    began_us = 1_795_970_578_000_000
    with Exporter("127.0.0.1", 0, began_us) as exporter:
        text = httpx.get(f"http://127.0.0.1:{exporter.port}/metrics", trust_env=False).text
    assert not fires("DsparkMonitorStale", text, began_us)
    assert fires("DsparkMonitorStale", text, began_us + _FIVE_MINUTES_US)
    assert "dspark_monitor_servers_down" not in text.replace("# ", ""), "nothing was looked at yet"
