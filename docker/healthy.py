"""``healthy.py URL …``: ends with 0 when every URL answers 200, and the hook's, if it is one of them, has its spool.

For health checks and probes: needs Python alone.
"""

from __future__ import annotations

import json
import sys
import urllib.request

HOOK = "/health/json-schema"
TIMEOUT_S = 5


def problem(url: str) -> str | None:
    """What is wrong with a URL's answer, None if nothing."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=TIMEOUT_S) as answer:
            body = answer.read()
    except (OSError, ValueError) as error:
        return str(error)
    if not url.endswith(HOOK):
        return None
    try:
        said = json.loads(body)
    except ValueError:
        return "not the hook"
    if not isinstance(said, dict) or said.get("json_output_hook_enabled") is not True:
        return "not the hook"
    return None if said.get("spool_id") else f"no spool is open: {said.get('spool_problem', 'no answer yet')}"


if __name__ == "__main__":
    problems = [f"{url}: {found}" for url in sys.argv[1:] if (found := problem(url)) is not None]
    print("\n".join(problems) or "healthy")
    sys.exit(1 if problems or len(sys.argv) < 2 else 0)
