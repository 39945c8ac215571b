"""``dspark-json demo``: arguments, and the steps in order."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dspark_json.cli.numbers import positive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from dspark_json.cli.demo.folder import DemoFolder
    from dspark_json.cli.demo.screen import Screen
    from dspark_json.cli.demo.verdict import Verdict
    from dspark_json.spool.reader import SpoolOffsets

SUMMARY: Final = "show the whole path: requests, records, rows in Delta"
DESCRIPTION: Final = (
    "Send chat requests to a server with the hook, run the Spark query that writes every answer to a Delta table, and\n"
    "check the table against what the clients got. Without --endpoint the server is a small one that replays recorded\n"
    "answers of a real vLLM: no GPU and no model needed. Needs Java 17 and dspark-json[demo]."
)
EXAMPLES: Final = """\
examples:
  dspark-json demo
  dspark-json demo --requests 1000 --clients 64 --json
  dspark-json demo --endpoint http://localhost:8000 --requests 50

Everything is written under --dir, and Delta's jars under ./build/ivy. The last line of --json is one JSON object:
  {"requests":…,"records":…,"delta_rows":…,"duplicates":0,"missing":0,"seconds":…}
The exit status is 1 if the counts don't agree. For a server that wants a key for being asked, set VLLM_API_KEY.
"""

_PACKAGES: Final = ("httpx", "orjson", "pyspark", "delta", "rich", "uvicorn")
_SAMPLE_ROWS: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``demo``."""
    parser.add_argument("--requests", type=positive, default=200, metavar="N", help="requests to send (200)")
    parser.add_argument("--clients", type=positive, default=16, metavar="N", help="requests under way at a time (16)")
    parser.add_argument("--endpoint", metavar="URL", help="a running server with the hook, instead of the demo's own")
    parser.add_argument("--model", metavar="M", help="the model to ask (default: the first one the server lists)")
    parser.add_argument("--key-file", type=Path, metavar="F", help="a file with the hook's key, for --endpoint")
    parser.add_argument("--dir", type=Path, default=Path("build", "demo"), metavar="DIR", help="folder (./build/demo)")
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object, as the last line")


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 if the table holds every answer once, else 1."""
    from dspark_json.cli.packages import require_java, require_packages

    require_packages(*_PACKAGES, extra="demo")
    require_java()
    from dspark_json.cli.demo.folder import DemoFolder
    from dspark_json.cli.demo.screen import Screen

    folder = DemoFolder.prepare(options.dir)
    with contextlib.closing(Screen(stderr=options.json)) as screen:
        verdict = _demo(options, folder, screen)
        screen.closing(verdict, folder)
    if options.json:
        print(json.dumps(verdict.document(), separators=(",", ":")))
    return 0 if verdict.agrees else 1


@dataclass(frozen=True, slots=True)
class _Server:
    """A server to ask: its address, the model, the hook's key if it is in a file."""

    address: str
    model: str
    key_file: Path | None


def _demo(options: argparse.Namespace, folder: DemoFolder, screen: Screen) -> Verdict:
    from dspark_json.cli.access import open_access
    from dspark_json.cli.demo.answers import SCHEMAS
    from dspark_json.cli.demo.clients import demo_requests
    from dspark_json.cli.demo.pipeline import Pipeline
    from dspark_json.cli.demo.run import DemoRun
    from dspark_json.cli.demo.verdict import Verdict

    with _server(options, folder, screen) as server, open_access(server.address, server.key_file) as access:
        requests = list(demo_requests(options.requests, server.model, any_model=options.endpoint is not None))
        before = access.offsets()
        with screen.working("Starting Spark with Delta (the first time it fetches Delta's jars)"):
            pipeline = Pipeline(folder)
        with contextlib.closing(pipeline):
            hint = "" if pipeline.adapter == "JVM connector" else " (`make jar` builds the faster JVM connector)"
            screen.say(f"Spark reads with the {pipeline.adapter}{hint}")
            pipeline.start(_source_options(server, before))
            began = time.monotonic()
            run = DemoRun(pipeline.rows_written, access, before)
            with screen.progress(len(requests)) as report:
                receipts = run.until_all_in_table(server.address, requests, options.clients, report)
            seconds = time.monotonic() - began
            verdict = Verdict.of(
                pipeline.table_rows(),
                [receipt.answer_id for receipt in receipts if receipt.answer_id is not None],
                requests=len(requests),
                records=run.records(),
                seconds=seconds,
                alone=options.endpoint is None,
            )
            for problem, count in Counter(r.problem for r in receipts if r.problem).most_common(3):
                screen.say(f"{count} requests got no whole answer: {problem}")
            lost = verdict.requests - verdict.failed - verdict.records
            if lost > 0:
                screen.say(f"{lost} answers left no record: the server's log says why ({folder.server_log})")
            if verdict.delta_rows:
                screen.sample(pipeline.sample(_SAMPLE_ROWS))
                registered = {document["name"] for document in access.schemas()}
                asked = [schema for schema in SCHEMAS if schema in registered]
                screen.typed(
                    [pipeline.typed(schema, _source_options(server, before), _SAMPLE_ROWS) for schema in asked]
                )
    return verdict


@contextlib.contextmanager
def _server(options: argparse.Namespace, folder: DemoFolder, screen: Screen) -> Iterator[_Server]:
    from dspark_json.cli.model_server import model_key, model_server, served_model
    from dspark_json.replay import RunningServer

    if options.endpoint is not None:
        asked = model_server(options.endpoint, options.model)
        yield _Server(asked.address, asked.model, options.key_file)
        return
    key = secrets.token_urlsafe(24)
    key_file = folder.write_key(key)
    settings = {"DSPARK_SPOOL": str(folder.spool), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": key}
    with screen.working("Starting the replay server"):
        running = RunningServer(settings=settings, log=folder.server_log)
    with running:
        screen.say(f"It listens at {running.address}; its spool is {folder.spool}")
        yield _Server(running.address, options.model or served_model(running.address, model_key()), key_file)


def _source_options(server: _Server, before: SpoolOffsets) -> dict[str, str]:
    # The spool's end now, said in full: what "latest" means when the query gets to it would be too late.
    lanes = {lane: {"next": extent.next} for lane, extent in before.lanes.items()}
    start = {"v": 1, "spools": {before.spool_id: {"endpoint": server.address, "lanes": lanes}}}
    options = {"vllm_endpoint": server.address, "startingOffsets": json.dumps(start)}
    if server.key_file is not None:
        options["vllm_api_key_file"] = str(server.key_file.absolute())
    return options
