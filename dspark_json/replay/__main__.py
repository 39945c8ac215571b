"""``python -m dspark_json.replay``: the replay server behind the hook, as a vLLM server with it would be."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from dspark_json.errors import DSparkJsonError
from dspark_json.printable import printable
from dspark_json.replay.app import ReplayApp
from dspark_json.replay.serve import serve


def main() -> int:
    """Serve until a signal comes; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m dspark_json.replay",
        description="Replay recorded answers of a real vLLM server, with the hook around it. The hook is set up by "
        "DSPARK_* variables as in vLLM; the spool is /dev/shm/dspark_vllm_PORT unless DSPARK_SPOOL names another. It "
        "answers chat, completions and responses from recordings whatever the prompt says: n is not obeyed, and a "
        'request with any JSON Schema gets recorded answers of the two recorded schemas, "order" and "risk". '
        "Example: DSPARK_SPOOL=/tmp/spool python -m dspark_json.replay --port 8000",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (0: the system chooses)")
    parser.add_argument("--speed", type=float, default=1.0, help="how many times as fast as recorded (1.0)")
    parser.add_argument("--no-hook", action="store_true", help="serve without the hook")
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when standard input does")
    arguments = parser.parse_args()
    if not 0 < arguments.speed < math.inf:
        parser.error("--speed must be above 0")
    if not 0 <= arguments.port <= 65535:
        parser.error("--port must be from 0 to 65535")
    try:
        app: Any = ReplayApp(speed=arguments.speed)
        if not arguments.no_hook:
            from dspark_json import JsonOutputHook

            app = JsonOutputHook(app)
        serve(app, host=arguments.host, port=arguments.port, exit_with_stdin=arguments.exit_with_stdin)
    except KeyboardInterrupt:  # uvicorn has ended in good order, and hands the signal on
        return 130
    except DSparkJsonError as error:
        print(printable(str(error)), file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
