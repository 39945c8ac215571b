"""``ask.py URL [COUNT]``: asks for an order each second, COUNT times or for ever: the client of the profile `cpu`."""

from __future__ import annotations

import json
import sys
import time
import urllib.request

ORDER = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}, "paid": {"type": "boolean"}},
}
REQUEST = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "one order"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER}},
}


def ask(url: str) -> None:
    """Send one request and read its answer."""
    body = json.dumps(REQUEST).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        answer.read()


if __name__ == "__main__":
    left = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    while left:
        try:
            ask(sys.argv[1])
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        left -= 1
        time.sleep(1 if left else 0)
