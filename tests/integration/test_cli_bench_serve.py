"""``dspark-json bench serve`` and ``spec-sweep`` as their users run them, on servers that really answer."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from serving import free_port, serving

from dspark_json.cli.main import main
from dspark_json.replay import ReplayApp, RunningServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serving import App, Message, Receive, Send

REPLAY = f"{sys.executable} -m dspark_json.replay --no-hook --port {{port}} --speed {{k}}"
KEY = "key-that-nobody-may-see"


class Bench(Protocol):
    """Runs the command in this process; the JSON that is its last line, and all that it said to people."""

    def __call__(self, *words: object, status: int = 0) -> tuple[Any, str]: ...


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    def run(*words: object, status: int = 0) -> tuple[Any, str]:
        found = main(["bench", *map(str, words)])
        told = capsys.readouterr()
        assert found == status, told.err
        assert KEY not in told.out + told.err
        return json.loads(told.out.splitlines()[-1]) if "--json" in words else None, told.err

    return run


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("replay") / "log"
    with RunningServer(arguments=("--no-hook", "--speed", "50"), log=log) as running:
        yield running.address


def test_two_servers_are_asked_in_turn_and_compared(bench: Bench, replay: str, tmp_path: Path) -> None:
    png, markdown = tmp_path / "load.png", tmp_path / "load.md"
    document, said = bench(
        *("serve", "--endpoint", f"{replay}/v1/chat/completions", "--baseline", replay, "--json"),
        *("--requests", 24, "--blocks", 3, "--workers", 4, "--schemas", "order,risk"),
        *("--png", png, "--markdown", markdown),
    )  # fmt: skip
    endpoint, baseline = document["servers"]
    for server in (endpoint, baseline):
        assert (server["requests"], server["answers"], server["failures"]) == (24, 24, {})
        assert [block["answers"] for block in server["blocks"]] == [8, 8, 8]
        assert server["json_valid"] == server["schema_valid"] > 0
        assert server["schemas"]["risk"]["schema_valid"] == 1
        assert server["output_tokens_per_second"] > server["answers_per_second"] > 0
        assert 0 < server["first_json_ms_p50"] <= server["latency_ms_p50"] <= server["latency_ms_p99"]
        assert server["acceptance"]["source"] == "answers"
    assert endpoint["address"] == baseline["address"] == replay
    low, high = document["ratios"]["output_tokens_per_second"]["ci"]
    assert low <= document["ratios"]["output_tokens_per_second"]["value"] <= high
    assert document["machine"]["cores"] > 0
    assert "output tokens/s" in said
    assert png.read_bytes().startswith(b"\x89PNG")
    report = markdown.read_text()
    assert "| requests | 24 | 24 |" in report
    assert "![latency and speed](load.png)" in report


def test_answers_that_follow_another_schema_are_told_apart_from_those_that_are_no_json(
    bench: Bench, replay: str
) -> None:
    document, said = bench(
        *("serve", "--endpoint", replay, "--json", "--requests", 8, "--schemas", "contact,reading", "--workers", 4)
    )
    (server,) = document["servers"]
    assert server["json_valid"] > 0
    assert server["schema_valid"] == 0
    assert sum(server["violations"].values()) == server["parse_status"]["ok"]
    assert "JSON that breaks its schema, by the keyword: " in said


def one_at_a_time(seconds: float) -> App:
    """A server that takes so long for each answer, however many wait."""
    turn = asyncio.Lock
    inner = ReplayApp(speed=1e6)
    turns: list[asyncio.Lock] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await inner(scope, receive, send)
            return
        if not turns:
            turns.append(turn())
        async with turns[0]:
            await asyncio.sleep(seconds)
            await inner(scope, receive, send)

    return app


def test_in_an_open_loop_an_answer_takes_from_when_its_request_was_due(bench: Bench) -> None:
    with serving(one_at_a_time(0.02)) as address:
        document, _ = bench(
            *("serve", "--endpoint", address, "--json", "--rate", 500, "--requests", 40, "--blocks", 1, "--warm-up", 1),
            *("--workers", 2),  # so that requests have to wait for a place, too
        )
    (server,) = document["servers"]
    assert server["answers"] == 40
    # The 40th is due after 80 ms and can't be done before 800.
    assert server["latency_ms_p99"] > 500
    assert server["sent_late_ms_p99"] > 400
    assert document["plan"]["rate"] == 500


def test_an_open_loop_is_not_broken_up_by_its_blocks(bench: Bench) -> None:
    with serving(one_at_a_time(0.02)) as address:
        document, said = bench(
            *("serve", "--endpoint", address, "--baseline", address, "--json", "--rate", 500, "--requests", 40),
            *("--blocks", 4, "--warm-up", 1, "--schemas", "order"),
        )
    for server in document["servers"]:
        # The last of 40 waits for all the others, of which 50 a second are answered.
        assert server["latency_ms_p99"] > 500
        assert [block["seconds"] for block in server["blocks"]] == [pytest.approx(server["seconds"] / 4, abs=0.002)] * 4
        assert sum(block["answers"] for block in server["blocks"]) == server["answers"] == 40
        assert all(block["answers"] for block in server["blocks"])  # no rest that is worked off in a last block
    assert document["plan"]["order"] == "one_run_each"
    assert "asked one after the other" in said


def faulty() -> App:
    """A server with a fault in every request but each fifth, which quotes the key, and counters that begin anew."""
    inner = ReplayApp(speed=1e6)
    asked = 0

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal asked
        if scope["type"] != "http" or scope["path"] == "/v1/models":
            await inner(scope, receive, send)
            return
        if scope["path"] == "/metrics":
            count = 1000 + 10 * asked if asked < 10 else asked
            names = ("drafts", "draft_tokens", "accepted_tokens")
            lines = (f'vllm:spec_decode_num_{name}_total{{engine="0"}} {count}.0' for name in names)
            await whole(send, 200, b"text/plain", "\n".join(lines).encode())
            return
        if scope["method"] != "POST":
            await inner(scope, receive, send)
            return
        asked += 1
        fault = asked % 5
        if fault == 0:
            await inner(scope, receive, send)
        elif fault == 1:
            await whole(send, 500, b"application/json", f'{{"error":"bad key {KEY}"}}'.encode())
        elif fault == 2:
            await whole(send, 200, b"application/json", b"{}")
        elif fault == 3:
            await whole(send, 200, b"text/event-stream", b'data: {"choices":[]}\n\n')
        else:
            event = json.dumps({"error": {"message": f"\x1b[31mno {KEY}"}}).encode()
            await whole(send, 200, b"text/event-stream; charset=utf-8", b"data: " + event + b"\n\n")

    return app


async def whole(send: Send, status: int, kind: bytes, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


def test_failed_requests_are_counted_and_named_and_the_key_is_not_shown(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    markdown = tmp_path / "report.md"
    with serving(faulty()) as address:
        document, said = bench(
            *(
                "serve",
                "--endpoint",
                address,
                "--json",
                "--requests",
                20,
                "--blocks",
                2,
                "--workers",
                1,
                "--warm-up",
                5,
            ),
            *("--api-key-file", tmp_path / "key", "--markdown", markdown),
        )
    (server,) = document["servers"]
    assert (server["requests"], server["answers"]) == (20, 4)
    counts = {kind: one["count"] for kind, one in server["failures"].items()}
    assert counts == {"status 500": 4, "no stream": 4, "stream ended early": 4, "error in the stream": 4}
    assert server["acceptance"]["counters"]["resets"] == 1
    assert "4 of 20 requests failed (status 500, such as: " in said
    assert "its counters began anew" in said
    assert "\x1b" not in said
    assert KEY not in markdown.read_text()


def test_a_model_may_have_any_name_and_no_terminal_or_picture_obeys_it(bench: Bench, tmp_path: Path) -> None:
    name = "m \x1b[31m $\\frac$ [b]\n# x"

    choice = {"index": 0, "delta": {"content": "{}"}, "finish_reason": "stop"}
    stream = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"

    async def named(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/models":
            await whole(send, 200, b"application/json", json.dumps({"data": [{"id": name}]}).encode())
        elif scope["type"] == "http" and scope["method"] == "POST":
            await whole(send, 200, b"text/event-stream", stream.encode())
        else:
            await ReplayApp(speed=1e6)(scope, receive, send)

    png, markdown = tmp_path / "load.png", tmp_path / "load.md"
    with serving(named) as address:
        document, said = bench(
            *("serve", "--endpoint", address, "--json", "--requests", 3, "--warm-up", 1, "--schemas", "order"),
            *("--png", png, "--markdown", markdown),
        )
    assert document["servers"][0]["model"] == name
    assert png.read_bytes().startswith(b"\x89PNG")
    for text in (said, markdown.read_text()):
        assert "\x1b" not in text
        assert "$\\frac$ [b]\\n# x" in " ".join(text.split())


def test_a_server_that_answers_nothing_is_an_error_and_not_a_table_of_nothing(bench: Bench, tmp_path: Path) -> None:
    async def refusing(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            await whole(send, 400, b"application/json", b'{"error":"no such grammar"}')
        else:
            await ReplayApp()(scope, receive, send)

    with serving(refusing) as address:
        _, said = bench("serve", "--endpoint", address, status=2)
    assert "DSPARK_JSON_ENDPOINT_ANSWER" in said
    assert 'status 400: {"error":"no such grammar"}' in said


def test_a_server_that_answers_nothing_but_the_warming_up_is_told_by_the_exit_status(bench: Bench) -> None:
    asked = 0

    async def failing(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal asked
        asked += scope["type"] == "http" and scope["method"] == "POST"
        if asked > 1:
            await whole(send, 500, b"application/json", b"{}")
        else:
            await ReplayApp(speed=1e6)(scope, receive, send)

    with serving(failing) as address:
        document, _ = bench(
            *("serve", "--endpoint", address, "--requests", 3, "--warm-up", 1, "--schemas", "order", "--json"), status=1
        )
    assert document["servers"][0]["answers"] == 0


def test_a_file_that_can_not_be_written_in_the_end_costs_neither_the_figures_nor_the_other_file(
    bench: Bench, tmp_path: Path
) -> None:
    png, markdown = tmp_path / "to be" / "load.png", tmp_path / "load.md"
    png.parent.mkdir()

    async def removing(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and png.parent.exists():
            png.parent.rmdir()
        await ReplayApp(speed=1e6)(scope, receive, send)

    with serving(removing) as address:
        document, said = bench(
            *("serve", "--endpoint", address, "--json", "--requests", 3, "--schemas", "order"),
            *("--png", png, "--markdown", markdown),
            status=2,
        )
    assert document["servers"][0]["answers"] == 3
    assert "load.png" in said.splitlines()[-1]
    assert "| requests | 3 |" in markdown.read_text()


def test_a_log_that_can_not_be_written_costs_only_its_length(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "k3.log").mkdir()
    words = ("spec-sweep", "--serve", REPLAY, "--json", "--requests", 2, "--schemas", "order", "--logs", tmp_path)
    document, _ = bench(*words, "--lengths", "2,3", status=1)
    assert [result["length"] for result in document["results"]] == [2]
    assert "k3.log" in document["failed"]["3"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--endpoint", "http://127.0.0.1:1"), "DSPARK_JSON_ENDPOINT_UNREACHABLE"),
        (("--endpoint", "localhost"), "DSPARK_JSON_INVALID_OPTION"),
        (("--endpoint", "http://a,http://b"), "DSPARK_JSON_INVALID_OPTION"),
        (("--endpoint", "http://127.0.0.1:1", "--png", "/no/such/folder/a.png"), "DSPARK_JSON_INVALID_OPTION"),
        (("--endpoint", "http://127.0.0.1:1", "--markdown", "/proc/report.md"), "DSPARK_JSON_INVALID_OPTION"),
        (("--endpoint", "http://127.0.0.1:1", "--api-key-file", "/no/such/key"), "DSPARK_JSON_INVALID_OPTION"),
        (("--endpoint", "http://127.0.0.1:1", "--baseline-model", "m"), "DSPARK_JSON_INVALID_OPTION"),
    ],
)
def test_what_can_not_be_measured_is_told_in_one_line(bench: Bench, words: tuple[str, ...], code: str) -> None:
    _, said = bench("serve", *words, status=2)
    assert said.startswith(f"dspark-json: {code}: ")
    assert said.count("\n") == 1


def test_a_sweep_starts_a_server_for_each_length_and_names_the_best(bench: Bench, tmp_path: Path) -> None:
    png, markdown = tmp_path / "sweep.png", tmp_path / "sweep.md"
    document, said = bench(
        *(
            "spec-sweep",
            "--serve",
            REPLAY,
            "--lengths",
            "4,40",
            "--json",
            "--requests",
            6,
            "--blocks",
            3,
            "--workers",
            6,
        ),
        *(
            "--grammar",
            "on,off",
            "--schemas",
            "order",
            "--logs",
            tmp_path / "logs",
            "--png",
            png,
            "--markdown",
            markdown,
        ),
    )
    results = {(result["length"], result["grammar"]): result for result in document["results"]}
    assert list(results) == [(4, "on"), (4, "off"), (40, "on"), (40, "off")]
    assert all((result["requests"], result["failures"]) == (6, {}) for result in results.values())
    # The replay server's recorded answer without a schema is no JSON.
    assert results[4, "off"]["malformed"] == 1 > results[4, "on"]["malformed"]
    speeds = {length: results[length, "on"]["output_tokens_per_second"] for length in (4, 40)}
    best = document["best"]["on"]["fastest"]
    assert best == max(speeds, key=lambda length: speeds[length])
    assert document["best"]["on"]["ratio"]["value"] == pytest.approx(speeds[best] / speeds[44 - best], rel=0.01)
    assert document["best"]["off"] is None  # its answers don't say how many tokens they have
    few = "too few requests to say which length is best (of each 50 at least)"
    assert said.splitlines()[0] == few, "said before the load, too"
    assert f"grammar on: {few}: {best} has " in said
    assert document["best"]["on"]["length"] is None
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["k4.log", "k40.log"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "| 40 | on |" in markdown.read_text()


def test_a_server_that_does_not_start_is_an_error_that_names_its_log(bench: Bench, tmp_path: Path) -> None:
    for command, why in (
        ("no-such-command {k}", "status 127 before it was healthy; the last it said: no-such-command can't be started"),
        (
            f'{sys.executable} -c \'import sys; print("loading", flush=True); sys.exit("no GPU for {{k}}")\'',
            "status 1 before it was healthy; the last it said: loading | no GPU for 3",
        ),
    ):
        _, said = bench("spec-sweep", "--serve", command, "--lengths", "3,4", "--logs", tmp_path, status=2)
        (tmp_path / "k3.log").unlink()
        assert "DSPARK_JSON_SERVER_ENDED" in said
        assert why in said
        assert str(tmp_path / "k3.log") in said


def test_a_length_that_fails_after_others_were_measured_costs_only_itself(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "import os, sys\nport, length = sys.argv[1:]\nif length == '3': sys.exit('no memory for 3')\n"
        "command = [sys.executable, '-m', 'dspark_json.replay', '--no-hook', '--speed', '50', '--port', port]\n"
        "os.execv(sys.executable, command)"
    )
    document, said = bench(
        *("spec-sweep", "--serve", f"{sys.executable} {script} {{port}} {{k}}", "--lengths", "2,3", "--json"),
        *("--requests", 2, "--schemas", "risk"),
        status=1,
    )
    assert [result["length"] for result in document["results"]] == [2]
    assert "no memory for 3" in document["failed"]["3"]
    assert "no memory for 3" in said


def test_a_server_that_ends_while_it_is_measured_is_told_to_have_ended(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "import http.server, os, sys\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        '        self.wfile.write(b\'{"data":[{"id":"m"}]}\')\n'
        "    def do_POST(self):\n"
        "        print('out of memory', flush=True)\n"
        "        os._exit(9)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
    )
    command = f"{sys.executable} {script} {{port}} {{k}}"
    _, said = bench("spec-sweep", "--serve", command, "--lengths", "3", "--logs", tmp_path, status=2)
    assert "DSPARK_JSON_SERVER_ENDED: the command of --serve ended with status 9 while it was measured" in said
    assert "out of memory" in said


def test_a_server_that_runs_already_is_not_measured_instead(bench: Bench, replay: str) -> None:
    _, said = bench("spec-sweep", "--serve", "serve {k}", "--endpoint", replay, "--lengths", "2", status=2)
    assert "DSPARK_JSON_LISTEN" in said


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_process_behind(end: signal.Signals, tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = tmp_path / "serve.sh"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {child}.part\nmv {child}.part {child}\nwait\n")
    script.chmod(0o755)
    words = ["spec-sweep", "--serve", f"{script} {{k}}", "--endpoint", f"http://127.0.0.1:{free_port()}"]
    words += ["--lengths", "2", "--logs", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "dspark_json", "bench", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as sweep:
        wait_for(child.exists)
        sweep.send_signal(end)
        sweep.wait(30)
    number = int(child.read_text())
    wait_for(lambda: not alive(number))


def wait_for(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(number: int) -> bool:
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
