"""``python -m remote_server``: the replay server behind the hook as it looks from another machine, without a folder."""

from __future__ import annotations

import argparse

from serving import elsewhere

from dspark_json import JsonOutputHook
from dspark_json.replay.app import ReplayApp
from dspark_json.replay.serve import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--exit-with-stdin", action="store_true")
    arguments = parser.parse_args()
    app = elsewhere(JsonOutputHook(ReplayApp(speed=arguments.speed)))
    serve(app, port=arguments.port, exit_with_stdin=arguments.exit_with_stdin)
