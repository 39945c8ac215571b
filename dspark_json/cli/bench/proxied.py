"""The proxy as a server to measure: ``python -m dspark_json.cli.bench.proxied UPSTREAM``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from dspark_json.cli.bench.server import CPU_PATH
from dspark_json.errors import DSparkJsonError
from dspark_json.proxy.forwarder import Forwarder
from dspark_json.replay.asgi import Receive, Send, send_json

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m dspark_json.cli.bench.proxied")
    parser.add_argument("upstream")
    parser.add_argument("--no-hook", action="store_true")
    parser.add_argument("--exit-with-stdin", action="store_true")
    options = parser.parse_args()
    from dspark_json.replay.serve import serve

    try:
        app: Any = Forwarder([options.upstream])
        if not options.no_hook:
            from dspark_json import JsonOutputHook

            app = JsonOutputHook(app)
        serve(_telling_cpu(app), exit_with_stdin=options.exit_with_stdin)
    except DSparkJsonError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _telling_cpu(app: Any) -> Any:
    """``app``, with a route that tells this process's CPU time rather than the upstream's."""

    async def telling(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope.get("path") == CPU_PATH:
            await send_json(send, 200, {"cpu_ns": time.process_time_ns()})
        else:
            await app(scope, receive, send)

    return telling


if __name__ == "__main__":
    sys.exit(main())
