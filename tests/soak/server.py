"""The replay server behind the hook, as one on another machine: readers that ask it can't open its folder."""

from __future__ import annotations

import argparse

from serving import elsewhere

from dspark_json import JsonOutputHook
from dspark_json.replay import ReplayApp
from dspark_json.replay.serve import serve


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=3.0)
    parser.add_argument("--exit-with-stdin", action="store_true")
    arguments = parser.parse_args()
    app = elsewhere(JsonOutputHook(ReplayApp(speed=arguments.speed)))
    serve(app, port=arguments.port, exit_with_stdin=arguments.exit_with_stdin)


if __name__ == "__main__":
    main()
