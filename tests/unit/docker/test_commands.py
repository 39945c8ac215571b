"""What the images run, runs here: the replay server, its health check, the client, the documented commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from serving import free_port, model, serving
from unit.docker.files import DOCKER, ROOT, copied, document, instructions

from dspark_json.cli.main import parser
from dspark_json.replay.process import RunningServer
from dspark_json.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("replay")
    settings = {"DSPARK_SPOOL": str(folder / "spool"), "DSPARK_DURABILITY": "write", "DSPARK_API_KEY": ""}
    with RunningServer(settings=settings, log=folder / "log") as running:
        yield running.address, folder / "spool"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)


def healthy(*urls: str) -> subprocess.CompletedProcess[str]:
    return run(str(DOCKER / "healthy.py"), *urls)


@pytest.mark.parametrize("service", ["vllm", "replay"])
def test_the_health_check_of_a_server_with_the_hook_holds(service: str, server: tuple[str, Path]) -> None:
    test = document("compose.yaml")["services"][service]["healthcheck"]["test"]
    script = copied(service)[test[2]]
    done = run(str(script), *(url.replace("http://127.0.0.1:8000", server[0]) for url in test[3:]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "healthy\n", "")


def test_a_server_that_is_down_or_has_no_hook_is_not_healthy(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/health"
    assert healthy(nobody).returncode == 1
    assert nobody in healthy(nobody).stdout
    assert healthy().returncode == 1
    with serving(model) as plain:
        assert healthy(f"{plain}/health/json-schema").returncode == 1


def test_a_server_whose_spool_is_not_open_is_not_healthy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"DSPARK_SPOOL": str(tmp_path / "file" / "spool")}
    with RunningServer(settings=settings, log=tmp_path / "log") as running:
        done = healthy(f"{running.address}/health/json-schema")
        assert (done.returncode, "no spool is open" in done.stdout) == (1, True)
        assert healthy(f"{running.address}/health").returncode == 0


def test_the_client_of_the_profile_without_a_gpu_makes_answers(server: tuple[str, Path]) -> None:
    def count() -> int:
        return sum(extent.next for extent in SpoolReader(server[1]).offsets().lanes.values())

    before = count()
    done = run(str(DOCKER / "ask.py"), server[0], "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert count() == before + 2
    names = [json.loads(file.read_text("utf-8"))["name"] for file in (server[1] / "schemas").glob("*.json")]
    assert names == ["order"]


def test_a_client_goes_on_where_the_server_is_away() -> None:
    done = run(str(DOCKER / "ask.py"), f"http://127.0.0.1:{free_port()}", "1")
    assert done.returncode == 0
    assert "refused" in done.stderr


def test_the_metrics_need_no_key(server: tuple[str, Path]) -> None:
    with urllib.request.urlopen(f"{server[0]}/dspark/metrics", timeout=30) as answer:
        assert b"dspark_records_total" in answer.read()


def test_the_replay_images_command_is_one_that_runs() -> None:
    ((_, _, entry),) = (one for one in instructions() if one[:2] == ("replay", "ENTRYPOINT"))
    words = json.loads(entry)
    assert words[:3] == ["python", "-m", "dspark_json.replay"]
    port = words.index("--port") + 1
    with subprocess.Popen(
        [sys.executable, *words[1:port], "0", "--exit-with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline())["address"].startswith("http://0.0.0.0:")
        process.stdin.close()
        assert process.wait(60) == 0


def test_the_vllm_image_serves_with_the_hook_by_its_public_name() -> None:
    import dspark_json

    ((_, _, entry),) = (one for one in instructions() if one[:2] == ("vllm", "ENTRYPOINT"))
    assert json.loads(entry) == ["vllm", "serve", "--middleware", "dspark_json.JsonOutputHook"]
    assert "JsonOutputHook" in dspark_json.__all__


def test_packages_are_installed_with_extras_that_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for extra in re.findall(r"\.whl\)\[(\w+)\]", (DOCKER / "Dockerfile").read_text("utf-8")):
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE), extra


@pytest.mark.parametrize("page", ["docs/deploy.md", "docs/articles.md"])
def test_commands_of_the_documentation_are_ones(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"(?:^|`|\| )(?:\w+=\S+ )*dspark-json ([a-z][^`|\n]*)", text, re.MULTILINE)
    assert commands
    for command in commands:
        words = [word for word in command.split() if word not in {"…", "&"}]
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([*words, "--help"])
        assert ended.value.code == 0, command
    capsys.readouterr()
