"""What a watch makes of spools, servers and checkpoints."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from serving import elsewhere, free_port, hook, serving
from typed_spools import answer, schema, write

from dspark_json.errors import EndpointKeyError, EndpointUnreachableError, InvalidOptionError, SpoolNotFoundError
from dspark_json.monitor.counters import ACCEPTED, DRAFTED, DRAFTS
from dspark_json.monitor.figures import Lag
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.watch import Watch, WatchSettings
from dspark_json.source.offsets import LanePosition, Offset, SpoolPosition
from dspark_json.source.settings import reader_settings
from dspark_json.spool.layout import read_identity
from dspark_json.spool.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase
    from pathlib import Path


def watch_of(target: Path | str, **changes: Any) -> Watch:
    option = "vllm_endpoint" if isinstance(target, str) else "path"
    return Watch(WatchSettings(reader_settings({option: str(target)}, {}), windows_s=(60,), **changes))


def told(body: dict[str, Any], **record: Any) -> Record:
    """A record of these members."""
    meta = {"path": "/v1/chat/completions", "status": 200, "completed": True, "duration_ms": 250.0, **record}
    return Record(json.dumps(meta).encode()[1:-1], json.dumps({"model": "tiny", **body}).encode()[1:-1])


def test_contents_are_judged_by_the_schema_that_was_asked_for(tmp_path: Path) -> None:
    order, risk = schema("order", 1, amount="integer"), schema(None, 2, level="string")
    unknown = schema("gone", 3, x="integer")
    write(
        tmp_path,
        answer('{"amount": 1}', order),
        answer('{"level": "high"}', risk),
        answer('{"amount": "many"}', order),
        answer('```json\n{"amount": 2}\n```', order),
        answer('{"amount": "many"}', unknown),
        answer("no JSON was asked for"),
        registers=(order, risk),
    )
    watch = watch_of(tmp_path)
    watch.look()
    groups = {group[1]: dict(tally.statuses) for group, tally in watch.figures(60).groups.items()}
    assert groups == {
        "order": {"ok": 1, "mismatch": 1, "fenced": 1},
        risk.hash[:12]: {"ok": 1},
        "gone": {"ok": 1},
        "-": {},
    }
    figures = watch.figures(60)
    assert figures.value("validity") == 4 / 5
    assert figures.total.untyped == figures.document()["answers_judged_as_json"] == 1
    assert "1 answers are judged as JSON alone" in figures.notes[0]


def test_a_schema_that_comes_later_is_asked_for(tmp_path: Path) -> None:
    order = schema("order", 1, amount="integer")
    write(tmp_path, answer("no schema"))
    watch = watch_of(tmp_path)
    watch.look()
    write(tmp_path, answer('{"amount": "x"}', order), registers=(order,))
    watch.look()
    assert dict(watch.figures(60).total.statuses) == {"mismatch": 1}


def test_a_schema_that_comes_just_after_one_that_is_not_registered_is_asked_for(tmp_path: Path) -> None:
    order = schema("order", 1, amount="integer")
    write(tmp_path, answer("{}", schema("gone", 2, x="integer")))
    watch = watch_of(tmp_path)
    watch.look()
    write(tmp_path, answer('{"amount": "x"}', order), registers=(order,))
    watch.look()
    assert dict(watch.figures(60).total.statuses) == {"ok": 1, "mismatch": 1}
    assert watch.figures(60).total.untyped == 1


def test_what_can_not_be_judged_for_now_is_counted_later(tmp_path: Path) -> None:
    order = schema("order", 1, amount="integer")
    write(tmp_path, answer("no schema"))
    watch = watch_of(tmp_path)
    watch.look()
    write(tmp_path, answer("1"), answer('{"amount": "x"}', order), registers=(order,))
    registry = tmp_path / "schemas"
    registry.rename(tmp_path / "away")
    registry.write_bytes(b"")
    watch.look()
    figures = watch.figures(60)
    assert (figures.total.answers, figures.total.untyped) == (1, 0)
    assert str(registry) in figures.down[str(tmp_path)]
    registry.unlink()
    (tmp_path / "away").rename(registry)
    watch.look()
    assert dict(watch.figures(60).total.statuses) == {"mismatch": 1}
    assert (watch.figures(60).total.answers, watch.figures(60).notes) == (3, ())


def test_records_are_counted_once_from_look_to_look_and_only_those_of_the_window(tmp_path: Path) -> None:
    write(tmp_path, answer("1"), answer("2"))
    watch = watch_of(tmp_path)
    for expected in (2, 2):
        watch.look()
        assert watch.figures(60).total.answers == expected
    write(tmp_path, answer("3"))
    watch.look()
    assert watch.figures(60).total.answers == 3
    later = Watch(
        WatchSettings(reader_settings({"path": str(tmp_path)}), (60,)), lambda: time.time_ns() // 1000 + 10**9
    )
    later.look()
    assert later.figures(60).total.answers == 0


def test_the_clock_of_a_server_may_be_ahead(tmp_path: Path) -> None:
    write(tmp_path, answer("1"))
    time.sleep(1.1)
    write(tmp_path, answer("2"))
    settings = WatchSettings(reader_settings({"path": str(tmp_path)}), (1, 60))
    watch = Watch(settings, lambda: time.time_ns() // 1000 - 600_000_000)
    watch.look()
    assert [watch.figures(seconds).total.answers for seconds in (1, 60)] == [1, 2]
    write(tmp_path, answer("3"))
    watch.look()
    assert watch.figures(60).total.answers == 3


def test_errors_usage_and_latency_are_as_the_records_tell_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        told({"usage": {"prompt_tokens": 5, "completion_tokens": 7}}),
        told({"usage": {"input_tokens": 5, "output_tokens": 9}}, path="/v1/responses"),
        told({"error": {"message": "no"}}, status=404, completed=False, duration_ms=9000.0),
        told({}, status=200, completed=False, error={"message": "cut", "code": "record_too_large"}),
        told({}, completed=False, disconnected=True, duration_ms=7000.0),
    )
    watch = watch_of(tmp_path)
    watch.look()
    total = watch.figures(60).total
    assert (total.answers, total.failed, total.tokens, total.untold) == (5, 2, 16, 3)
    assert (total.latency(0.99) or 0) == pytest.approx(0.25, rel=0.01)


def test_acceptance_is_what_the_answers_tell(tmp_path: Path) -> None:
    def spoken(accepted: object, drafted: int, steps: int) -> Record:
        told_of = {"num_accepted_draft_tokens": accepted, "num_draft_tokens": drafted, "num_spec_steps": steps}
        return told({"metrics": {"speculative_decoding": told_of}})

    write(tmp_path, spoken(6, 10, 5), spoken(0, 0, 0), spoken(None, 100, 1), told({"metrics": {"queue_time_ms": 1}}))
    watch = watch_of(tmp_path)
    watch.look()
    figures = watch.figures(60)
    assert (figures.acceptance_from, figures.speculation) == ("answers", Speculation(6, 10, 5))
    assert figures.acceptance_told_by == "2 of 4 answers"
    document = figures.document()
    assert document["answers_with_drafts"] == document["groups"][0]["answers_with_drafts"] == 2


@contextmanager
def metrics_page(give: Callable[[BufferedIOBase, threading.Event], None]) -> Iterator[str]:
    """A server whose answers ``give`` writes, until the event says that it is over; its address has secrets."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                give(self.wfile, over)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://user:secret@127.0.0.1:{server.server_port}/secret?token=secret"
        finally:
            over.set()
            server.shutdown()
            thread.join()


def endless(file: BufferedIOBase, over: threading.Event) -> None:
    file.write(b"HTTP/1.0 200 OK\r\n\r\n")
    while not over.is_set():
        file.write(b"#" * 65_536)


def dripping_page(file: BufferedIOBase, over: threading.Event) -> None:
    file.write(b"HTTP/1.0 200 OK\r\n\r\n")
    while not over.wait(0.1):
        file.write(b"#")


def dripping_head(file: BufferedIOBase, over: threading.Event) -> None:
    file.write(b"HTTP/1.0 200 OK\r\nx: ")
    while not over.wait(0.1):
        file.write(b"#")


@pytest.mark.parametrize("give", [endless, dripping_page, dripping_head])
def test_metrics_that_do_not_end_are_none_and_their_address_is_not_shown_whole(
    give: Callable[[BufferedIOBase, threading.Event], None], tmp_path: Path
) -> None:
    write(tmp_path, answer("1"))
    with metrics_page(give) as url:
        watch = watch_of(tmp_path, counters_url=url)
        watch.look()  # comes to its end though the page does not
        (note,) = watch.figures(60).notes
    assert note == f"http://127.0.0.1:{urlsplit(url).port} gives no metrics"


@pytest.mark.parametrize("url", ["", "localhost:9/secret", "ftp://x/secret", "http://x:secret"])
def test_an_address_of_metrics_that_is_none_is_refused_and_not_shown(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="--server-metrics") as caught:
        watch_of(tmp_path, counters_url=url)
    assert "secret" not in str(caught.value)


def test_the_servers_counters_are_asked_twice_in_a_short_window(tmp_path: Path) -> None:
    asked = itertools.count(1)

    def growing(file: BufferedIOBase, _: threading.Event) -> None:
        count = next(asked)
        lines = "".join(f"{name} {count}\n" for name in (ACCEPTED, DRAFTED, DRAFTS))
        file.write(b"HTTP/1.0 200 OK\r\n\r\n" + lines.encode())

    write(tmp_path, answer("1"))
    with metrics_page(growing) as url:
        watch = Watch(WatchSettings(reader_settings({"path": str(tmp_path)}), (1,), counters_url=url))
        watch.look()
        for _ in range(5):
            time.sleep(0.55)
            watch.look()
            assert watch.figures(1).acceptance_from == "server"


def test_lines_that_are_no_answers_are_counted(tmp_path: Path) -> None:
    write(tmp_path, told({}), Record(b'"status":200', b'"choices":7,"usage":[1],"metrics":"x"'), Record(b"", b""))
    watch = watch_of(tmp_path)
    watch.look()
    assert watch.figures(60).total.answers == 3


def test_a_target_that_is_not_there_is_an_error_at_the_first_look_and_a_note_later(tmp_path: Path) -> None:
    with pytest.raises(SpoolNotFoundError):
        watch_of(tmp_path / "none").look()
    with pytest.raises(EndpointUnreachableError):
        watch_of("http://127.0.0.1:1").look()
    app = hook(tmp_path / "spool", "k")
    with serving(elsewhere(app)) as address:
        with pytest.raises(EndpointKeyError):
            watch_of(address).look()
        watch = Watch(WatchSettings(reader_settings({"vllm_endpoint": address, "vllm_api_key": "k"}), (60,)))
        watch.look()
        assert (watch.figures(60).notes, watch.figures(60).down) == ((), {})
    watch.look()
    assert "does not answer" in watch.figures(60).down[address]
    assert watch.figures(60).value("servers_down") == 1


def test_a_server_whose_folder_is_read_is_told_to_be_down(tmp_path: Path) -> None:
    write(tmp_path, answer("1"))
    with serving(hook(tmp_path, "k")) as address:
        by_folder = watch_of(tmp_path)
        by_address = Watch(WatchSettings(reader_settings({"vllm_endpoint": address, "vllm_api_key": "k"}), (60,)))
        for watch in (by_address, by_folder):
            watch.look()
            assert watch.figures(60).down == {}
    for watch, where in ((by_address, address), (by_folder, str(tmp_path))):
        watch.look()
        figures = watch.figures(60)
        assert figures.total.answers == 1
        assert list(figures.down) == list(figures.document()["down"]) == [where]
        assert str(tmp_path) in figures.down[where]
        assert figures.value("servers_down") == 1
    with serving(hook(tmp_path, "k"), urlsplit(address).port):
        for watch in (by_address, by_folder):
            watch.look()
            assert watch.figures(60).value("servers_down") == 0


def test_a_server_that_is_down_at_the_start_is_picked_up_when_it_comes(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    write(tmp_path / "late", answer("old"))
    clock = [0]
    with serving(hook(tmp_path / "up", "k")) as up:
        settings = reader_settings({"vllm_endpoint": f"{up},{address}", "vllm_api_key": "k"})
        watch = Watch(WatchSettings(settings, (60,), all_up=False), lambda: time.time_ns() // 1000 + clock[0])
        began_us = watch.read_us
        watch.look()
        assert list(watch.figures(60).down) == [address]
        assert watch.figures(60).read_us == began_us, "a look that could not read all is none"
        with serving(hook(tmp_path / "late", "k"), urlsplit(address).port):
            watch.look()
            figures = watch.figures(60)
            assert (figures.down, figures.total.answers, figures.read_us) == ({}, 1, figures.at_us)
        clock[0] = 90_000_000
        watch.look()
        assert watch.figures(60).total.answers == 0
    with pytest.raises(EndpointUnreachableError):
        watch_of(address).look()


def commit_to(checkpoint: Path, spool: Path, number: int, following: int) -> None:
    """Commit a micro-batch that ended before the record ``following`` of the spool's first lane."""
    at = {"0000": LanePosition(following, following)}
    text = Offset({read_identity(spool).spool_id: SpoolPosition("http://x", at)}).text()
    (checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n-\n{text}\n{{"other":1}}')
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (checkpoint / "commits" / f".{number}.crc").write_bytes(b"")


def test_the_lag_is_that_of_the_streams_checkpoint(tmp_path: Path) -> None:
    spool, checkpoint = tmp_path / "spool", tmp_path / "checkpoint"
    write(spool, *(answer(str(number)) for number in range(10)))
    (checkpoint / "offsets").mkdir(parents=True)
    commit = functools.partial(commit_to, checkpoint, spool)

    watch = watch_of(spool, checkpoint=checkpoint)

    def lag() -> Lag:
        watch.look()
        found = watch.figures(60).lag
        assert found is not None
        return found

    assert lag().records == 10
    assert 0 <= lag().seconds < 60
    commit(0, 3)
    commit(9, 4)
    commit(10, 7)
    (checkpoint / "offsets" / "11").write_text("v1\n{}\nnot committed yet")
    assert lag().records == 3
    commit(11, 10)
    assert lag() == Lag(0, 0)


def test_the_lag_of_a_server_that_is_down_goes_on(tmp_path: Path) -> None:
    spool, checkpoint, moved = tmp_path / "spool", tmp_path / "checkpoint", tmp_path / "moved"
    (checkpoint / "offsets").mkdir(parents=True)
    clock = [0]
    write(spool, *(answer(str(number)) for number in range(10)))
    with serving(elsewhere(hook(spool, "k"))) as address:
        settings = WatchSettings(
            reader_settings({"vllm_endpoint": address, "vllm_api_key": "k"}), (60,), checkpoint=checkpoint
        )
        watch = Watch(settings, lambda: time.time_ns() // 1000 + clock[0])
        commit_to(checkpoint, spool, 0, 4)
        watch.look()
        up = watch.figures(60)
        assert up.lag is not None
        assert (up.lag.records, up.notes, up.read_us) == (6, (), up.at_us)
    clock[0] = 90_000_000
    watch.look()
    down = watch.figures(60)
    assert down.lag is not None
    assert down.lag.records == 6
    assert down.lag.seconds >= up.lag.seconds + 90
    assert f"the lag counts what {address} held when it last answered" in down.notes
    assert down.read_us == up.at_us, "a look that could not read is none"
    checkpoint.rename(moved)
    watch.look()
    assert (watch.figures(60).value("lag") or 0) >= 90, "no checkpoint to read is no reason to be content"
    moved.rename(checkpoint)
    commit_to(checkpoint, spool, 1, 10)
    watch.look()
    assert watch.figures(60).lag == Lag(0, 0)


def test_the_lag_of_a_folder_that_is_gone_goes_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    write(tmp_path / "spool", answer("1"))
    watch = watch_of(tmp_path / "spool", checkpoint=tmp_path / "checkpoint")
    watch.look()
    (tmp_path / "spool").rename(tmp_path / "elsewhere")
    time.sleep(0.05)
    watch.look()
    found = watch.figures(60)
    assert found.lag is not None
    assert found.lag.records == 1
    assert found.lag.seconds > 0.05
    assert found.read_us is not None
    assert found.read_us < found.at_us


def test_a_folder_that_is_no_checkpoint_of_this_source_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "spool", answer("1"))
    with pytest.raises(InvalidOptionError, match="is not the checkpoint of a stream"):
        watch_of(tmp_path / "spool", checkpoint=tmp_path / "spool").look()
    for name, text in (("commits", "v1\n{}"), ("offsets", 'v1\n{}\n{"logOffset":3}')):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "0").write_text(text)
    with pytest.raises(InvalidOptionError, match="holds no offset of this source"):
        watch_of(tmp_path / "spool", checkpoint=tmp_path / "other").look()
