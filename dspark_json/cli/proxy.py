"""``dspark-json proxy``: the hook around a reverse proxy, for servers that have no application to hook."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

from dspark_json.cli import output
from dspark_json.cli.listening import place
from dspark_json.cli.numbers import seconds_up_to

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SUMMARY: Final = "pass requests on to a server, and keep its answers"
DESCRIPTION: Final = (
    "A reverse proxy with the hook around it: for SGLang, vLLM's Rust front end, a remote service, or any server that\n"
    "speaks OpenAI's API. Clients ask the proxy in place of the server; every byte is passed on as it is. What the\n"
    "hook keeps, and where, is set by the same DSPARK_* variables as in vLLM."
)
EXAMPLES: Final = """\
examples:
  dspark-json proxy --upstream http://localhost:30000 --listen 0.0.0.0:8001
  dspark-json proxy --upstream http://gpu1:8000,http://gpu2:8000 --listen 0.0.0.0:8001 --spool /data/spool

The client's Authorization goes to the upstream untouched. The control routes (/health/json-schema, /dspark/…) are the
proxy's own; their key is DSPARK_API_KEY.
"""

_seconds: Final = seconds_up_to(86_400)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``proxy``."""
    parser.add_argument(
        "--upstream",
        required=True,
        action="append",
        metavar="URL[,URL]",
        help="the server; several are asked in turn, and one that refuses connections is left out",
    )
    parser.add_argument("--listen", required=True, type=place, metavar="HOST:PORT", help="where clients ask")
    parser.add_argument("--spool", metavar="DIR", help="the spool folder (DSPARK_SPOOL, /dev/shm/dspark_vllm_PORT)")
    parser.add_argument(
        "--connect-timeout", type=_seconds, default=5.0, metavar="S", help="how long connecting may take (5)"
    )
    parser.add_argument(
        "--idle-timeout",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="how long either side may be silent (600)",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="how long requests under way may take to end (60)",
    )
    parser.add_argument(
        "--no-forwarded", action="store_true", help="don't tell the upstream who asks (X-Forwarded-For, -Proto, -Host)"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from dspark_json.cli.packages import require_packages

    require_packages("httpx", "uvicorn", extra="proxy")
    if options.spool is not None:
        os.environ["DSPARK_SPOOL"] = options.spool
    from dspark_json import JsonOutputHook
    from dspark_json.proxy.forwarder import Forwarder, Patience
    from dspark_json.proxy.server import Listener, run_server

    addresses = _addresses(options.upstream)
    patience = Patience(options.connect_timeout, options.idle_timeout)
    app = JsonOutputHook(Forwarder(addresses, patience, forwarded=not options.no_forwarded))
    listener = Listener.bind(*options.listen)
    run_server(
        app,
        listener,
        math.ceil(options.grace),
        lambda: output.note(f"proxy on {listener.address} for {', '.join(addresses)}"),
    )
    return 0


def _addresses(given: Sequence[str]) -> tuple[str, ...]:
    """The upstreams' addresses, by the rules of ``vllm_endpoint``."""
    from typing import cast

    from dspark_json.errors import InvalidOptionError
    from dspark_json.options import reader_values

    try:
        values = reader_values({"vllm_endpoint": ",".join(given)})
    except InvalidOptionError as error:
        raise InvalidOptionError(error.message.replace('"vllm_endpoint"', "--upstream"), remedy=error.remedy) from None
    return cast("tuple[str, ...]", values["vllm_endpoint"])
