"""Webhooks and the figures for Prometheus, over real sockets."""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dspark_json.errors import InvalidOptionError, ListenError
from dspark_json.monitor.exporter import Exporter, exported, metrics_text
from dspark_json.monitor.figures import METRICS, figures_of
from dspark_json.monitor.speculation import Speculation
from dspark_json.monitor.tally import Answer
from dspark_json.monitor.webhook import Webhook
from dspark_json.monitor.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_795_970_578_000_000


@contextmanager
def listener(*statuses: int) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers with these statuses in turn, then 200; and what it was sent."""
    received: list[Any] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(left.pop(0) if left else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/secret-path?token=secret", received
        finally:
            server.shutdown()
            thread.join()


def test_messages_are_told_in_order_and_again_where_the_listener_fails() -> None:
    with listener(503, 500) as (url, received):
        webhook = Webhook(url, waits_s=(0.01, 0.01))
        webhook.tell({"n": 1})
        webhook.tell({"n": 2})
        webhook.wait(10)
        assert [message["n"] for message in received] == [1, 1, 1, 2]


def test_what_can_not_be_told_is_logged_without_the_urls_secrets(caplog: pytest.LogCaptureFixture) -> None:
    with listener(*[400] * 3) as (url, received):
        webhook = Webhook(url, waits_s=(0.01, 0.01))
        with caplog.at_level(logging.WARNING):
            webhook.tell({"n": 1})
            webhook.wait(10)
        assert len(received) == 3
    (line,) = caplog.messages
    assert "status 400" in line
    assert "secret" not in line
    gone = Webhook(url, waits_s=())
    gone.tell({"n": 2})
    gone.wait(10)
    assert "ConnectError" in caplog.messages[-1]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("proxy", ["socks9://user:secret@127.0.0.1:1", "nonsense://secret"])
def test_a_webhook_that_nothing_can_be_sent_to_is_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InvalidOptionError, match="alerts can't be told to http://localhost: ") as caught:
        Webhook("http://localhost/secret")
    assert "secret" not in str(caught.value)


def test_a_message_that_can_not_be_sent_does_not_keep_the_next_from_it(caplog: pytest.LogCaptureFixture) -> None:
    with listener() as (url, received):
        webhook = Webhook(url, waits_s=())
        webhook.tell({"n": object()})
        webhook.tell({"n": 2})
        webhook.wait(10)
        assert received == [{"n": 2}]
    assert "can't be told (TypeError)" in caplog.text


def test_what_is_left_after_the_wait_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with listener(500) as (url, _):
        webhook = Webhook(url, waits_s=(0.5,))
        webhook.tell({"n": 1})
        webhook.wait(0.05)
        assert "was not told of 1 alerts within 0.05 s" in caplog.text
        assert "secret" not in caplog.text
        webhook.wait(10)


def test_telling_waits_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook("http://192.0.2.1:9/", waits_s=())  # no machine has this address (RFC 5737)
    for number in range(150):
        webhook.tell({"n": number})
    assert "too slow" in caplog.text


@pytest.mark.parametrize(
    "url", ["", "localhost:9", "ftp://x/secret", "http://", "http://[::1/secret", "http://x:secret"]
)
def test_a_webhook_that_is_no_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        Webhook(url)
    assert "secret" not in str(caught.value)


def window() -> Window:
    found = Window(60)
    for status in ("ok", "ok", "truncated"):
        told = Speculation(1, 4, 2)
        found.count(Answer(NOW, 'a "b"\\\n', "order", False, 5, (status,), 0.5, told), NOW)
    return found


def test_prometheus_gets_every_figure_that_is_told() -> None:
    text = metrics_text(figures_of(window(), NOW, since_start=Speculation(), read_us=NOW - 250_000))
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == set(exported())
    assert "dspark_monitor_validity 0.666666667\n" in text
    assert "dspark_monitor_acceptance_rate 0.25\n" in text
    assert 'dspark_monitor_contents{model="a \\"b\\"\\\\\\n",schema="order",parse_status="truncated"} 1\n' in text
    assert not re.search(r"^dspark_monitor_lag", text, re.MULTILINE)
    assert "dspark_monitor_read_at_seconds 1795970577.750\n" in text
    assert {f"dspark_monitor_{metric.name}" for metric in METRICS} <= set(exported())


def test_long_names_are_cut_in_labels_and_counted_together_where_they_are_the_same_then() -> None:
    found = Window(60)
    for model in ("m" * 100, "n" * 5000, "n" * 5001, '"' * 101):
        found.count(Answer(NOW, model, "order", False, 5, ("ok",), 0.5, None), NOW)
    text = metrics_text(figures_of(found, NOW, since_start=Speculation()))
    shown = re.findall(
        r'^dspark_monitor_contents{model="(.*)",schema="order",parse_status="ok"} (\d)$', text, re.MULTILINE
    )
    assert sorted(shown) == [('\\"' * 99 + "…", "1"), ("m" * 100, "1"), ("n" * 99 + "…", "2")]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_figures_are_given_at_metrics_alone(host: str) -> None:
    with Exporter(host, 0, NOW) as exporter:
        address = f"http://{f'[{host}]' if ':' in host else host}:{exporter.port}"
        exporter.show(figures_of(window(), NOW, since_start=Speculation()))
        found = httpx.get(f"{address}/metrics", trust_env=False)
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "dspark_monitor_answers_per_s 0.05\n" in found.text
        assert httpx.get(f"{address}/", trust_env=False).status_code == 404
        with pytest.raises(ListenError, match="can't be listened on"):
            Exporter(host, exporter.port, NOW)
