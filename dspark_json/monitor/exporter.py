"""The monitor's figures as Prometheus text (exposition format 0.0.4), and the little server that gives it."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

from dspark_json.errors import ListenError
from dspark_json.monitor.figures import METRICS
from dspark_json.spool.os_errors import reason

if TYPE_CHECKING:
    from dspark_json.monitor.figures import Figures

__all__ = ["Exporter", "exported", "metrics_text"]

_NAMES: Final = {metric.name: f"dspark_monitor_{metric.name}" for metric in METRICS}
_CONTENTS: Final = "dspark_monitor_contents"
_READ_AT: Final = "dspark_monitor_read_at_seconds"
_CONTENTS_DOC: Final = "Contents in the window, by how their parse went."
_READ_AT_DOC: Final = "When the monitor last could read all that it watches; before that, when it began."
LONGEST_NAME: Final = 100
"""Characters of a name in a label; a longer one is cut, with an ellipsis at its end."""


def exported() -> dict[str, str]:
    """All names that the text has, each with its meaning."""
    told = {_NAMES[metric.name]: f"{metric.doc[0].upper()}{metric.doc[1:]}." for metric in METRICS}
    return {**told, _CONTENTS: _CONTENTS_DOC, _READ_AT: _READ_AT_DOC}


def metrics_text(figures: Figures) -> str:
    """Gauges over the monitor's window; a figure that nothing tells is left out."""
    lines = []
    docs = exported()
    for metric in METRICS:
        name, value = _NAMES[metric.name], figures.value(metric.name)
        lines += [f"# HELP {name} {docs[name]}", f"# TYPE {name} gauge"]
        if value is not None:
            lines.append(f"{name} {value:.9g}")
    lines += [f"# HELP {_CONTENTS} {_CONTENTS_DOC}", f"# TYPE {_CONTENTS} gauge"]
    contents: Counter[str] = Counter()  # cut names may be the same, and a series may stand once only
    for (model, schema), tally in figures.groups.items():
        for status, count in sorted(tally.statuses.items()):
            contents[f'model="{_label(model)}",schema="{_label(schema)}",parse_status="{status}"'] += count
    lines += [f"{_CONTENTS}{{{labels}}} {count}" for labels, count in contents.items()]
    return "\n".join(lines) + "\n" + _read_at(figures.read_us)


class Exporter:
    """Answers ``GET /metrics`` with the figures of the last look, and nothing else; a context manager."""

    def __init__(self, host: str, port: int, began_us: int) -> None:
        """``began_us``: when the monitor did, which is all that it gives until there are figures.

        Raises ``ListenError`` where it can't listen there.
        """
        self._text = _read_at(began_us)
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                body = exporter._text.encode() if found else b"GET /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing: the page is on the terminal."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise ListenError(
                f"{host}:{port} can't be listened on: {reason(error)}", remedy="Choose another --listen."
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="dspark-json-exporter", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def show(self, figures: Figures) -> None:
        """Give these figures from now on."""
        self._text = metrics_text(figures)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _read_at(moment_us: int) -> str:
    return f"# HELP {_READ_AT} {_READ_AT_DOC}\n# TYPE {_READ_AT} gauge\n{_READ_AT} {moment_us / 1_000_000:.3f}\n"


def _label(name: str) -> str:
    """A name that clients choose, as a label's value: cut, and escaped as the format wants it."""
    text = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
