"""The command line as a whole: help, exit codes, one-line errors."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dspark_json.cli.main import parser

COMMAND = [sys.executable, "-m", "dspark_json.cli.main"]


def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(env or {})}
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("demo", "--help"),
        ("tail", "--help"),
        ("monitor", "--help"),
        ("parse", "--help"),
        ("schema", "--help"),
        ("import", "--help"),
        ("replay", "--help"),
        ("doctor", "--help"),
        ("proxy", "--help"),
        ("serve", "--help"),
        ("deploy", "gpustack", "--help"),
        ("bench", "capture", "--help"),
        ("bench", "serve", "--help"),
        ("bench", "spec-sweep", "--help"),
    ],
)
def test_help_shows_an_example(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 0
    assert f"dspark-json {words[0] if words[0] != '--help' else 'tail'}" in done.stdout.split("xample")[1]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom dspark_json.cli.main import parser\nparser().format_help()\n"
        "print([m for m in ('pyspark', 'delta', 'pyarrow', 'httpx', 'rich', 'uvicorn', 'asyncio') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tail", "/no/such/folder"), "DSPARK_JSON_SPOOL_NOT_FOUND"),
        (("tail", "http://127.0.0.1:1"), "DSPARK_JSON_ENDPOINT_UNREACHABLE"),
        (("tail", "http://user:secret@127.0.0.1:1"), "DSPARK_JSON_INVALID_OPTION"),
        (("tail", "http://[::1"), "DSPARK_JSON_INVALID_OPTION"),
        (("tail", "http://127.0.0.1:1/?key=secret"), "DSPARK_JSON_INVALID_OPTION"),
        (("tail", "http://127.0.0.1:1,http://127.0.0.1:2"), "DSPARK_JSON_INVALID_OPTION"),
        (("tail", "http://127.0.0.1:1", "--key-file", "/no/such/key"), "DSPARK_JSON_INVALID_OPTION"),
        (("demo", "--endpoint", "http://127.0.0.1:1"), "DSPARK_JSON_ENDPOINT_UNREACHABLE"),
        (("demo", "--endpoint", "localhost"), "DSPARK_JSON_INVALID_OPTION"),
        (("demo", "--dir", "/proc/nothing"), "DSPARK_JSON_INVALID_OPTION"),
    ],
)
def test_an_error_is_one_line_with_its_code_and_status_2(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    folder = ("--dir", tmp_path) if words[0] == "demo" and "--dir" not in words else ()
    done = run(*words, *folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"dspark-json: {said}: ")
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--requests", "0"),
        ("tail", "x", "--from", "yesterday"),
        ("bench", "capture", "--seconds", "0"),
        ("bench", "capture", "--seconds", "1", "--requests", "1"),
        ("bench",),
        (),
    ],
)
def test_a_wrong_argument_is_told_with_the_usage(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: dspark-json")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("monitor", "x"), "--window"),
        (("monitor", "x"), "--interval"),
        (("proxy", "--listen", "h:1", "--upstream", "http://x"), "--connect-timeout"),
        (("proxy", "--listen", "h:1", "--upstream", "http://x"), "--idle-timeout"),
        (("proxy", "--listen", "h:1", "--upstream", "http://x"), "--grace"),
        (("bench", "capture"), "--seconds"),
        (("bench", "spark"), "--seconds"),
        (("bench", "serve", "--endpoint", "http://x"), "--timeout"),
        (("bench", "spec-sweep", "--lengths", "2"), "--start-timeout"),
        (("deploy", "gpustack"), "--wait"),
    ],
)
def test_a_time_that_is_not_above_zero_is_told_by_its_option(words: tuple[str, ...], option: str) -> None:
    times = ["-5", "-5m", "-.5s", "0", "0s", "nan"]
    if option == "--wait":
        times.remove("0")  # not to wait
    for time_ in times:
        with pytest.raises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            parser().parse_args([*words, option, time_])
        assert ended.value.code == 2
        assert f'argument {option}: "{time_}" is not a ' in said.getvalue()


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("monitor", "a", "b"), "dspark-json monitor "),
        (("tail", "a", "--folow"), "dspark-json tail "),
        (("bench", "serve", "--endpoint", "http://a", "b"), "dspark-json bench serve "),
        (("deploy", "gpustack", "m", "n"), "dspark-json deploy gpustack "),
    ],
)
def test_an_argument_too_many_is_told_with_the_usage_of_its_command(words: tuple[str, ...], usage: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {usage}")
    assert f"{usage.strip()}: error: " in done.stderr


@pytest.mark.parametrize("target", ["localhost:8000", "gpu7:8000/v1", "127.0.0.1:8000", "[::1]:8000", "localhost"])
def test_an_address_without_http_is_asked_about(target: str, tmp_path: Path) -> None:
    for command in ("tail", "schema"):
        done = run(command, target)
        assert done.returncode == 2
        port = ":8000" if target == "localhost" else ""
        assert f"Did you mean http://{target}{port}?" in done.stderr
    assert "Did you mean" not in run("tail", tmp_path / "spool").stderr


@pytest.mark.parametrize("words", [("tail",), ("schema",), ("monitor", "--once"), ("doctor",)])
def test_a_variable_that_was_to_be_the_key_is_told_where_a_key_is_wanted(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    told = 'dspark_api_key is not a setting of the hook. Did you mean "DSPARK_API_KEY"?'
    server = "http://127.0.0.1:1"
    done = run(*words, server, env={"dspark_api_key": "hunter2"})
    said = done.stdout + done.stderr
    assert said.count(told) == 1
    assert "hunter2" not in said
    (tmp_path / "key").write_text("k")
    for env, rest in (
        ({"dspark_api_key": "hunter2", "DSPARK_API_KEY": "k"}, (server,)),
        ({"dspark_api_key": "hunter2"}, (server, "--key-file", tmp_path / "key")),
        ({"dspark_api_key": "hunter2"}, (tmp_path,)),
        ({"dspark_spool": "x"}, (server,)),
    ):
        done = run(*words, *rest, env=env)
        assert "is not a setting" not in done.stdout + done.stderr, (env, rest)


def test_a_key_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("two words\n")
    for file, why in (("none", "No such file"), ("bad", "is not a key")):
        done = run("tail", "http://127.0.0.1:1", "--key-file", tmp_path / file)
        assert done.returncode == 2
        assert f'--key-file "{tmp_path / file}"' in done.stderr
        assert why in done.stderr
        assert "vllm_api_key" not in done.stderr
        assert "two words" not in done.stderr


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dspark_json", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dspark-json ")


def test_without_java_the_demo_says_so_in_one_line(tmp_path: Path) -> None:
    done = run("demo", "--dir", tmp_path / "demo", env={"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "DSPARK_JSON_MISSING_PACKAGE: Spark needs Java" in done.stderr
    assert not (tmp_path / "demo").exists()


def test_a_missing_package_is_told_with_the_extra_that_brings_it() -> None:
    # -S leaves out the installed packages; the path brings back this one alone.
    root = Path(__file__).parents[3]
    code = "import sys; from dspark_json.cli.main import main; sys.exit(main(['demo']))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.returncode == 2
    assert "DSPARK_JSON_MISSING_PACKAGE" in done.stderr
    assert "pip install 'dspark-json[demo]' (in a checkout: pip install '.[demo]')" in done.stderr


def test_ctrl_c_ends_a_command_with_status_130_and_no_traceback(tmp_path: Path) -> None:
    code = (
        "import sys, types; from dspark_json.cli import main as m, tail\n"
        "def run(options):\n    print('ready', flush=True)\n    import time; time.sleep(60)\n"
        "tail.run = run\nsys.exit(m.main(['tail', 'x']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == ""
