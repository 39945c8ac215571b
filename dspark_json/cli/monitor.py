"""``dspark-json monitor``: figures of a server's answers as they come, and alerts on them."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli import output
from dspark_json.cli.listening import place
from dspark_json.cli.numbers import seconds_up_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.monitor.alerts import AlertWatch
    from dspark_json.monitor.exporter import Exporter
    from dspark_json.monitor.figures import Figures
    from dspark_json.monitor.page import Page
    from dspark_json.monitor.watch import Watch
    from dspark_json.monitor.webhook import Webhook

SUMMARY: Final = "watch answers a second, validity, acceptance and latency; alert on them"
DESCRIPTION: Final = (
    "Show figures of the answers of servers with the hook, or of a spool folder, over the last --window: answers and\n"
    "tokens a second, error rate, validity and parse_status by model and schema, how well drafts were accepted, and\n"
    "latency. Acceptance is what the answers tell (vLLM's --enable-per-request-metrics), else what the server's own\n"
    "counters (/metrics) grew by. lag is that of a stream, whose checkpoint is given. A server that is down is\n"
    "shown as that, and picked up when it comes; with --once all must answer.\n"
    "\n"
    "An alert is METRIC OPERATOR NUMBER [for DURATION]. It fires when every look for that long has crossed the bound.\n"
    "With --once there is one look: each alert is about all answers of the last DURATION together (--window if it has\n"
    "none), and the exit status is 1 if one fires."
)
EXAMPLES: Final = """\
examples:
  dspark-json monitor http://localhost:8000
  dspark-json monitor http://gpu7:8000 --key-file key.txt --alert 'acceptance_rate < 0.6 for 5m'
  dspark-json monitor dns+http://vllm:8000 --once --json | jq .error_rate
  dspark-json monitor /dev/shm/dspark_vllm_8000 --checkpoint /data/checkpoint --alert 'lag > 30s'
  dspark-json monitor http://localhost:8000 --alert 'validity < 99%' --webhook https://…
  dspark-json monitor http://localhost:8000 --listen 127.0.0.1:9109 --quiet   # for Prometheus

A server on another machine wants the hook's key (DSPARK_API_KEY of the server), from --key-file or from the
environment's DSPARK_API_KEY. Metrics: answers_per_s, tokens_per_s, validity, error_rate, acceptance_rate,
acceptance_length, latency_p50, latency_p99, lag, lag_records, servers_down.
"""

EXIT_FIRING: Final = 1

_WINDOW_S: Final = 60.0
_INTERVAL_S: Final = 2.0
_LONGEST_INTERVAL_S: Final = 3600.0
_TELL_S: Final = 20.0  # of --once: the longest that a webhook is waited for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``monitor``."""
    parser.add_argument("target", metavar="ENDPOINT|SPOOL", help="servers' addresses (http://…), or a spool folder")
    parser.add_argument("--once", action="store_true", help="one look at what was written in the window, then end")
    said = parser.add_mutually_exclusive_group()
    said.add_argument("--json", action="store_true", help="print each look as one JSON object a line")
    said.add_argument(
        "--quiet", action="store_true", help="print no looks: alerts and new notes alone, on standard error"
    )
    parser.add_argument(
        "--window",
        type=_window,
        default=_WINDOW_S,
        metavar="D",
        help="what figures are over (default 60s; 90s, 5m, 1h)",
    )
    parser.add_argument(
        "--interval",
        type=seconds_up_to(_LONGEST_INTERVAL_S),
        default=_INTERVAL_S,
        metavar="SEC",
        help="seconds from look to look (default 2)",
    )
    parser.add_argument(
        "--alert", action="append", default=[], metavar="A", help="such as 'error_rate > 5%% for 2m'; may be repeated"
    )
    parser.add_argument("--webhook", metavar="URL", help="where alerts that begin or end are told (POST, JSON)")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="a Spark stream's, to know how far it is behind")
    parser.add_argument("--listen", type=place, metavar="HOST:PORT", help="give the figures to Prometheus at /metrics")
    parser.add_argument(
        "--server-metrics", metavar="URL", help="the server's own metrics, where they are not at ENDPOINT/metrics"
    )
    parser.add_argument("--key-file", type=Path, metavar="F", help="a file whose first line is the hook's key")


def run(options: argparse.Namespace) -> int:
    """Look once, or until the command is interrupted."""
    from dspark_json.cli.access import target_settings
    from dspark_json.errors import InvalidOptionError
    from dspark_json.monitor.alerts import AlertWatch, parse_alert
    from dspark_json.monitor.watch import Watch, WatchSettings
    from dspark_json.monitor.webhook import Webhook

    alerts = [AlertWatch(parse_alert(text)) for text in options.alert]
    for one in alerts:
        if one.alert.metric.name.startswith("lag") and options.checkpoint is None:
            raise InvalidOptionError(
                f'the alert "{one.alert.text}" is about a stream, and none is given',
                remedy="Give the folder of its checkpoint with --checkpoint.",
            )
    if options.once and options.listen is not None:
        raise InvalidOptionError(
            "--listen is given with --once, which ends after one look", remedy="Leave one of them out."
        )
    of_alerts = {one.alert.for_s for one in alerts if options.once and one.alert.for_s}
    watch = Watch(
        WatchSettings(
            reader=target_settings(options.target, options.key_file),
            windows_s=sorted({options.window, *of_alerts}),
            counters_url=options.server_metrics,
            checkpoint=options.checkpoint,
            all_up=options.once,
        )
    )
    teller = _Teller(options.target, None if options.webhook is None else Webhook(options.webhook), options.window)
    if options.once:
        return _once(options, watch, alerts, teller)
    _live(options, watch, alerts, teller)
    return 0


def _once(options: argparse.Namespace, watch: Watch, alerts: Sequence[AlertWatch], teller: _Teller) -> int:
    from dspark_json.cli.access import explained

    with explained(options.target):
        watch.look()
    figures = watch.figures(options.window)
    for one in alerts:
        window_s = one.alert.for_s or options.window
        of_alert = figures if window_s == options.window else watch.figures(window_s)
        one.value = of_alert.value(one.alert.metric.name)
        one.firing = one.alert.is_crossed(one.value)
        if one.firing:
            teller.tell(one, figures, window_s)
    if options.quiet:
        _note(figures, frozenset())
    else:
        _print(options, figures, alerts)
    teller.wait()
    return EXIT_FIRING if any(one.firing for one in alerts) else 0


def _live(options: argparse.Namespace, watch: Watch, alerts: Sequence[AlertWatch], teller: _Teller) -> None:
    from dspark_json.cli.access import explained

    with contextlib.ExitStack() as stack:
        exporter: Exporter | None = None
        if options.listen is not None:
            from dspark_json.monitor.exporter import Exporter as Listening

            host, port = options.listen
            exporter = stack.enter_context(Listening(host, port, watch.read_us))
        with explained(options.target):  # what is wrong with the target is told before there is a page
            watch.look()
        lines = options.json or options.quiet or not sys.stdout.isatty()
        page = None if lines else stack.enter_context(_page(options.target))
        noted: frozenset[str] = frozenset()
        while True:
            figures = watch.figures(options.window)
            for one in alerts:
                if one.look(figures.value(one.alert.metric.name), figures.at_us):
                    teller.tell(one, figures, options.window)
            if exporter is not None:
                exporter.show(figures)
            if page is not None:
                page.show(figures, alerts)
            elif options.quiet:
                noted = _note(figures, noted)
            else:
                _print(options, figures, alerts)
            time.sleep(options.interval)
            watch.look()


def _page(target: str) -> Page:
    from dspark_json.cli.packages import require_packages

    require_packages("rich", extra="monitor")
    from dspark_json.monitor.page import Page

    return Page(target)


def _print(options: argparse.Namespace, figures: Figures, alerts: Sequence[AlertWatch]) -> None:
    from dspark_json.monitor.text import summary_lines

    if options.json:
        document = {"target": options.target, **figures.document(), "alerts": [_state(one) for one in alerts]}
        output.write(json.dumps(document, allow_nan=False).encode() + b"\n")
    else:
        text = "\n".join(summary_lines(options.target, figures, alerts))
        output.write(text.encode(errors="replace") + b"\n")
    output.flush()


def _note(figures: Figures, noted: frozenset[str]) -> frozenset[str]:
    """Say what is down and the notes that the last look did not have, whatever their numbers; gives what is now."""
    notes = {re.sub(r"[0-9][0-9,.]*", "#", note): note for note in figures.notes}
    notes |= {f"down: {address}": why for address, why in figures.down.items()}
    for kind, note in notes.items():
        if kind not in noted:
            output.note(note)
    return frozenset(notes)


class _Teller:
    """Says that an alert begins or ceases to fire: a line on standard error, and a message to the webhook."""

    def __init__(self, target: str, webhook: Webhook | None, window_s: float) -> None:
        self._target = target
        self._webhook = webhook
        self._window_s = window_s

    def tell(self, watch: AlertWatch, figures: Figures, window_s: float) -> None:
        from dspark_json.monitor.alerts import shown_seconds
        from dspark_json.monitor.text import shown

        state = "firing" if watch.firing else "resolved"
        value = shown(watch.alert.metric, watch.value)
        over = f"over the last {shown_seconds(window_s)}"
        output.note(f"alert {state}: {watch.alert.text} ({watch.alert.metric.name} is {value} {over}, {self._target})")
        if self._webhook is not None:
            message = {"v": 1, "target": self._target, "at": figures.at_us / 1_000_000, "window_s": window_s}
            self._webhook.tell({**message, **_state(watch)})

    def wait(self) -> None:
        if self._webhook is not None:
            self._webhook.wait(_TELL_S)


def _state(watch: AlertWatch) -> dict[str, Any]:
    """An alert as JSON."""
    alert = watch.alert
    return {
        "alert": alert.text,
        "metric": alert.metric.name,
        "state": "firing" if watch.firing else "resolved",
        "value": watch.value,
        "bound": alert.bound,
        "for_s": alert.for_s,
    }


def _window(text: str) -> float:
    from dspark_json.monitor.alerts import duration

    seconds = duration(text)
    if seconds is None or seconds < 1:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a duration with its unit, such as 90s, 5m or 1h, from 1s to 7d'
        )
    return seconds
