"""``dspark-json monitor`` against real servers: the replay server, and one whose own counters are known."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from serving import Message, Receive, Send, free_port, hook, serving
from typed_spools import answer as told_answer
from typed_spools import schema, write
from unit.monitor.test_telling import listener

from dspark_json import JsonOutputHook
from dspark_json.cli.main import main
from dspark_json.monitor.watch import Watch, WatchSettings
from dspark_json.replay import RunningServer
from dspark_json.replay.recording import packaged_request
from dspark_json.source.settings import reader_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "the-hooks-key"
COMMAND = [sys.executable, "-m", "dspark_json.cli.main", "monitor"]
ASKED = ("chat_order", "stream_order_usage", "chat_tools_required", "chat_risk")
ANSWERS = 500


Monitor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def monitor(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Monitor:
    """The command in this process: its status, standard output and standard error."""
    monkeypatch.setenv("DSPARK_API_KEY", KEY)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(["monitor", *map(str, arguments)])
        return (status, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A replay server that has given four answers and refused one request."""
    folder = tmp_path_factory.mktemp("monitor")
    settings = {"DSPARK_SPOOL": str(folder / "spool"), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": KEY}
    with RunningServer(arguments=("--speed", "100"), settings=settings, log=folder / "server.log") as running:
        for name in ASKED:
            httpx.post(f"{running.address}/v1/chat/completions", json=packaged_request(name), timeout=30)
        httpx.post(f"{running.address}/v1/chat/completions", json={"model": "nope", "messages": []})
        yield running.address


def test_once_tells_the_last_minutes_in_plain_text(address: str) -> None:
    environment = {**os.environ, "DSPARK_API_KEY": KEY}
    arguments = [*COMMAND, address, "--once", "--window", "10m"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"5 answers in the last 10m$", done.stdout.splitlines()[0])
    assert re.search(r"error_rate\s+20.0 %", done.stdout)
    assert re.search(r"tiny\s+order\s+", done.stdout)
    assert "ok=" in done.stdout


def test_once_with_json_is_one_object_with_every_figure(address: str, monitor: Monitor) -> None:
    status, said, _ = monitor(address, "--once", "--json", "--window", "10m", "--alert", "error_rate > 50%")
    look = json.loads(said)
    assert (status, look["target"], look["window_s"]) == (0, address, 600)
    assert (look["answers"], look["error_rate"], look["validity"], look["lag"]) == (5, 0.2, 1, None)
    assert look["latency_p99"] > 0
    assert {(group["model"], group["schema"]) for group in look["groups"]} >= {("tiny", "order"), ("nope", "-")}
    assert look["alerts"] == [
        {
            "alert": "error_rate > 50%",
            "metric": "error_rate",
            "state": "resolved",
            "value": 0.2,
            "bound": 0.5,
            "for_s": 0.0,
        }
    ]


def test_an_alert_with_once_is_about_its_own_time_and_sets_the_exit_status(address: str, monitor: Monitor) -> None:
    with listener() as (url, told):
        alerts = ("--alert", "error_rate > 10% for 10m", "--alert", "validity < 50% for 10m")
        status, _, said = monitor(address, "--once", "--window", "1s", *alerts, "--webhook", url)
        assert status == 1
        assert "alert firing: error_rate > 10% for 10m (error_rate is 20.0 % over the last 10m" in said
        (message,) = told
        assert (message["v"], message["state"], message["metric"], message["value"]) == (1, "firing", "error_rate", 0.2)
        assert (message["target"], message["window_s"]) == (address, 600)


def test_a_longer_alert_leaves_the_window_and_other_alerts_as_they_are(address: str, monitor: Monitor) -> None:
    alerts = (
        "--alert",
        "error_rate > 10% for 7d",
        "--alert",
        "error_rate > 15%",
        "--alert",
        "answers_per_s > 0 for 1h",
    )
    status, said, _ = monitor(address, "--once", "--json", "--window", "10m", *alerts)
    look = json.loads(said)
    assert (status, look["answers"], look["error_rate"]) == (1, 5, 0.2)
    assert [one["state"] for one in look["alerts"]] == ["firing"] * 3


def test_live_lines_for_programs_go_on_until_the_command_is_interrupted(address: str) -> None:
    port = free_port()
    arguments = (address, "--json", "--interval", "0.2", "--window", "10m", "--alert", "error_rate > 10%")
    environment = {**os.environ, "DSPARK_API_KEY": KEY}
    with subprocess.Popen(
        [*COMMAND, *arguments, "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        exported = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert [look["answers"] for look in looks] == [5, 5]
    assert looks[0]["at"] < looks[1]["at"]
    assert said.decode().count("alert firing: error_rate > 10%") == 1
    assert "dspark_monitor_error_rate 0.2\n" in exported


def test_quiet_looks_print_alerts_and_each_new_note_once(tmp_path: Path) -> None:
    write(tmp_path / "spool", told_answer("1", schema("gone", 1, x="integer")))
    port = free_port()
    arguments = (tmp_path / "spool", "--quiet", "--interval", "0.1", "--listen", f"127.0.0.1:{port}")
    alert = ("--alert", "answers_per_s > 0")
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments), *alert], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(3)]
        write(tmp_path / "spool", told_answer("1", schema("gone", 1, x="integer")))
        deadline = time.monotonic() + 20
        while "answers_per_s 0.0333" not in httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown, rest = process.communicate(timeout=20)
    assert shown == ""
    assert "alert firing: answers_per_s > 0" in said[0]
    assert "1 answers are judged as JSON alone" in said[1]
    assert f"no server writes {tmp_path / 'spool'}" in said[2]
    assert rest.count("judged") == rest.count("no server") == 0
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "spool"), "--once", "--quiet", *alert], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "alert firing" in done.stderr


def test_a_server_that_is_down_is_shown_and_picked_up(tmp_path: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "DSPARK_API_KEY": KEY}
    arguments = (address, "--json", "--interval", "0.1", "--alert", "servers_down > 0")
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline())]
        assert list(looks[0]["down"]) == [address]
        with serving(hook(tmp_path, KEY), port):
            while looks[-1]["servers_down"] and len(looks) < 500:
                looks.append(json.loads(process.stdout.readline()))
            assert looks[-1]["down"] == {}
        while not looks[-1]["servers_down"] and len(looks) < 500:
            looks.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert str(tmp_path) in looks[-1]["down"][address]
    assert re.findall(r"alert (\w+)", said) == ["firing", "resolved", "firing"]


def test_on_a_terminal_there_is_a_page(address: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40", "DSPARK_API_KEY": KEY}
    arguments = (address, "--window", "10m", "--alert", "error_rate > 10%", "--interval", "0.2")
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen, deadline = b"", time.monotonic() + 30
        while seen.count(b"acceptance from") < 2 and time.monotonic() < deadline:
            seen += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 65_536):
                seen += more
        except OSError:  # the terminal is gone with the command
            pass
        process.wait(20)
    os.close(ours)
    # The signal may cut the write of the last page in a character.
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))
    assert process.returncode == 130
    assert "5 answers in the last 10m" in text
    assert "error_rate > 10%: FIRING (20.0 %)" in text
    assert "│ order" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/no/such/spool", "--once"), "DSPARK_JSON_SPOOL_NOT_FOUND"),
        (("localhost:8000", "--once"), "Did you mean http://localhost:8000?"),
        (("http://127.0.0.1:1", "--once"), "DSPARK_JSON_ENDPOINT_UNREACHABLE"),
        (("/x", "--alert", "acceptance < 0.6"), 'Did you mean "acceptance_'),
        (("/x", "--alert", "lag > 5s"), "--checkpoint"),
        (("/x", "--webhook", "nowhere"), "--webhook"),
        (("/x", "--server-metrics", "nowhere"), "--server-metrics"),
        (("/x", "--once", "--listen", "127.0.0.1:9"), "--listen"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: tuple[str, ...], said: str, monitor: Monitor) -> None:
    status, shown, told = monitor(*arguments)
    assert (status, shown) == (2, "")
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--window", "soon", '"soon" is not a duration with its unit'),
        ("--window", "2", '"2" is not a duration with its unit'),
        ("--interval", "2 s", '"2 s" is not a number of seconds, without a unit'),
    ],
)
def test_what_is_no_duration_is_told_with_the_usage(
    option: str, text: str, said: str, monitor: Monitor, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        monitor("/x", option, text)
    told = capfd.readouterr().err
    assert told.startswith("usage: ")
    assert said in told


@dataclass
class SpeculatingServer:
    """A server with a draft: it counts as vLLM does, and perhaps tells each answer's share in the answer."""

    tells: bool
    source: random.Random = field(default_factory=lambda: random.Random(11))
    accepted: int = 0
    drafted: int = 0
    drafts: int = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"].removeprefix("lifespan.")
                await send({"type": f"lifespan.{kind}.complete"})
                if kind == "shutdown":
                    return
        is_metrics = scope["path"] == "/metrics"
        body = self.page() if is_metrics else await self.answer(receive)
        kind = b"text/plain" if is_metrics else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def page(self) -> bytes:
        counts = {"accepted_tokens": self.accepted, "draft_tokens": self.drafted, "drafts": self.drafts}
        lines = [f'vllm:spec_decode_num_{name}_total{{engine="0"}} {float(n)}' for name, n in counts.items()]
        return "\n".join([*lines, "process_start_time_seconds 1.0", ""]).encode()

    async def answer(self, receive: Receive) -> bytes:
        while (await receive()).get("more_body"):
            pass
        steps = self.source.randrange(1, 40)
        taken = [self.source.randrange(4) for _ in range(steps)]
        self.accepted += sum(taken)
        self.drafted += 3 * steps
        self.drafts += steps
        told = {"num_accepted_draft_tokens": sum(taken), "num_draft_tokens": 3 * steps, "num_spec_steps": steps}
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        body: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
        return json.dumps({**body, **({"metrics": {"speculative_decoding": told}} if self.tells else {})}).encode()


async def ask_all(address: str, answers: int) -> None:
    async with httpx.AsyncClient(
        trust_env=False, limits=httpx.Limits(max_connections=16, max_keepalive_connections=0), timeout=60
    ) as client:
        request = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        await asyncio.gather(*(client.post(f"{address}/v1/chat/completions", json=request) for _ in range(answers)))


@pytest.mark.parametrize("tells", [True, False])
def test_acceptance_agrees_with_the_servers_own_counters(
    tells: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monitor: Monitor
) -> None:
    monkeypatch.setenv("DSPARK_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("DSPARK_DURABILITY", "write")
    server = SpeculatingServer(tells)
    with serving(JsonOutputHook(server)) as address:
        asyncio.run(ask_all(address, 10))
        watch = Watch(WatchSettings(reader_settings({"vllm_endpoint": address}), (60,), counters_every_s=0))
        if not tells:
            watch.look()
            before = (server.accepted, server.drafted, server.drafts)
        else:
            before = (0, 0, 0)
        asyncio.run(ask_all(address, ANSWERS))
        watch.look()
        figures = watch.figures(60)
        assert figures.total.answers == ANSWERS + 10
        assert figures.acceptance_from == ("answers" if tells else "server")
        rate = (server.accepted - before[0]) / (server.drafted - before[1])
        length = 1 + (server.accepted - before[0]) / (server.drafts - before[2])
        assert figures.value("acceptance_rate") == pytest.approx(rate, rel=0.01)
        assert figures.value("acceptance_length") == pytest.approx(length, rel=0.01)
        once = json.loads(monitor(address, "--once", "--json")[1])
        assert once["acceptance_from"] == ("answers" if tells else "server since its start")
        assert once["acceptance_rate"] == pytest.approx(server.accepted / server.drafted, rel=0.01)
