"""``dspark-json deploy gpustack`` against a server with GPUStack's routes and rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpustack import GpuStack, argv
from serving import elsewhere, free_port, hook, serving
from unit.source.spools import ALL, labels, settings, write

from dspark_json import __version__
from dspark_json.cli.main import main
from dspark_json.source.planner import Planner

KEY = "gpustack-secret"
HOOK_KEY = "hook-secret"
QWEN = ("--model", "Qwen/Qwen3-8B")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTACK_API_KEY", KEY)
    monkeypatch.setenv("DSPARK_API_KEY", HOOK_KEY)


def deployed(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> tuple[str, str]:
    assert main(["deploy", "gpustack", *map(str, words)]) == status
    told = capsys.readouterr()
    for secret in (KEY, HOOK_KEY):
        assert secret not in told.out
        assert secret not in told.err
    return told.out, told.err


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(deployed(capsys, *words)[0])
    return body


def test_without_a_server_the_body_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    body = printed(capsys, *QWEN, "--dspark", 7)
    assert body == {
        "name": "qwen3-8b",
        "source": "huggingface",
        "huggingface_repo_id": "Qwen/Qwen3-8B",
        "replicas": 1,
        "backend": "vLLM",
        "backend_parameters": [
            "--middleware=dspark_json.JsonOutputHook",
            "--speculative-config",
            '{"method":"dspark","model":"deepseek-ai/dspark_qwen3_8b_block7","num_speculative_tokens":7}',
        ],
        "env": {"DSPARK_API_KEY": "${DSPARK_API_KEY}", "PYPI_PACKAGES_INSTALL": f"dspark-json=={__version__}"},
        "enable_model_route": True,
    }


def test_the_server_is_started_with_hook_and_dspark(capsys: pytest.CaptureFixture[str]) -> None:
    words = argv(printed(capsys, *QWEN, "--dspark", 7, "--draft", "me/draft")["backend_parameters"])
    assert words[0] == "--middleware=dspark_json.JsonOutputHook"
    assert words[1] == "--speculative-config"
    assert json.loads(words[2]) == {"method": "dspark", "model": "me/draft", "num_speculative_tokens": 7}
    assert argv(printed(capsys, *QWEN)["backend_parameters"]) == words[:1]
    own = argv(printed(capsys, "--model", "deepseek-ai/DeepSeek-V4-Flash", "--dspark")["backend_parameters"])
    assert json.loads(own[2]) == {"method": "dspark"}


def test_sources(capsys: pytest.CaptureFixture[str]) -> None:
    here = printed(capsys, "--model", "/models/My Qwen")
    assert (here["source"], here["local_path"], here["name"]) == ("local_path", "/models/My Qwen", "my-qwen")
    scope = printed(capsys, *QWEN, "--source", "model_scope", "--name", "q")
    assert (scope["source"], scope["model_scope_model_id"], scope["name"]) == ("model_scope", "Qwen/Qwen3-8B", "q")


def test_a_model_is_created_and_its_endpoints_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    stack = GpuStack(KEY)
    stack.failing_looks = 1
    with serving(stack) as address:
        out, err = deployed(capsys, *QWEN, "--dspark", 7, "--replicas", 2, "--server", address, "--wait", 30)
    assert out.splitlines() == [
        "model 1, qwen3-8b: 2 of 2 instances run",
        '.option("vllm_endpoint", "http://10.0.0.5:40000,http://10.0.0.6:40001")',
    ]
    assert [line for line in err.splitlines() if "created model 1" in line]
    assert "qwen3-8b-0: pending" in err
    (created,) = stack.created
    assert created["env"]["DSPARK_API_KEY"] == HOOK_KEY


def test_what_is_printed_is_what_spark_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "spool", 3)
    port = free_port()
    stack = GpuStack(KEY, states=["running"], places=[("127.0.0.1", port)])
    with serving(stack) as address:
        told = json.loads(deployed(capsys, *QWEN, "--server", address, "--json")[0])
        with serving(elsewhere(hook(tmp_path / "spool", stack.created[0]["env"]["DSPARK_API_KEY"])), port):
            name, value = told["option"].removeprefix(".option(").removesuffix(")").split(", ")
            plan = Planner(settings({json.loads(name): json.loads(value), "vllm_api_key": HOOK_KEY}))
            start = plan.initial()
            assert len(labels(plan, start, plan.latest(start, ALL), key=HOOK_KEY)) == 3
    assert (told["model_id"], told["name"], told["instances"][0]["state"]) == (1, "qwen3-8b", "running")


def test_the_wait_ends_and_what_runs_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(GpuStack(KEY, states=["downloading"])) as address:
        out, _ = deployed(capsys, *QWEN, "--server", address, "--wait", 0.5, status=1)
        assert out == "model 1, qwen3-8b: 0 of 1 instances run\n"
        out, _ = deployed(capsys, *QWEN, "--name", "b", "--server", address)
        assert out == "model 2, b: 0 of 1 instances run\n"


def test_an_existing_model_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    stack = GpuStack(KEY, states=["running"])
    with serving(stack) as address:
        deployed(capsys, *QWEN, "--name", "qwen3-8b-more", "--server", address)
        deployed(capsys, *QWEN, "--replicas", 2, "--server", address)
        out, _ = deployed(capsys, *QWEN, "--server", address, "--find")
        assert out.startswith("model 2, qwen3-8b: 2 of 2 instances run\n")
        _, err = deployed(capsys, "--model", "x/other", "--server", address, "--find", status=2)
        assert "has no model other" in err
    assert len(stack.created) == 2


def test_an_instance_that_fails_is_an_error_with_gpustacks_words(capsys: pytest.CaptureFixture[str]) -> None:
    stack = GpuStack(KEY, states=["starting", "error"])
    stack.state_message = "exit 1:\n\x1b[31mno kernel image"
    with serving(stack) as address:
        _, err = deployed(capsys, *QWEN, "--server", address, "--wait", 30, status=2)
    assert "DSPARK_JSON_DEPLOYMENT: instance qwen3-8b-0 of model 1 failed: exit 1:" in err
    assert "no kernel image" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--api-key", "wrong"), "DSPARK_JSON_DEPLOYMENT", "status 401, Invalid authentication credentials"),
        (("--name", "taken"), "DSPARK_JSON_DEPLOYMENT", "Model with name 'taken' already exists."),
        (("--gpus", "worker1:cuda:0"), "DSPARK_JSON_DEPLOYMENT", "A cluster context is required"),
    ],
)
def test_what_gpustack_refuses_is_told(
    words: tuple[str, ...], code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(GpuStack(KEY)) as address:
        deployed(capsys, *QWEN, "--name", "taken", "--server", address)
        _, err = deployed(capsys, *QWEN, "--server", address, *words, status=2)
    assert err.splitlines()[-1].startswith(f"dspark-json: {code}: {address} refuses (status 4")
    assert said in err


def test_a_server_that_is_none_or_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = deployed(capsys, *QWEN, "--server", f"http://127.0.0.1:{free_port()}", status=2)
    assert "DSPARK_JSON_ENDPOINT_UNREACHABLE" in err
    with serving(hook(tmp_path / "spool")) as address:
        _, err = deployed(capsys, *QWEN, "--server", address, status=2)
    assert "it is the address of a GPUStack 2 server" in err


def test_sglang_gets_dspark_and_the_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    stack = GpuStack(KEY, states=["running"])
    with serving(stack) as address:
        out, _ = deployed(capsys, *QWEN, "--backend", "SGLang", "--dspark", "--server", address)
    (created,) = stack.created
    assert created["backend"] == "SGLang"
    assert argv(created["backend_parameters"]) == [
        "--speculative-algorithm=DSPARK",
        "--speculative-draft-model-path=deepseek-ai/dspark_qwen3_8b_block7",
    ]
    assert created["env"] == {}
    assert out.splitlines()[1:] == [
        "dspark-json proxy --upstream http://10.0.0.5:40000 --listen 0.0.0.0:8001",
        '.option("vllm_endpoint", "http://HOST-OF-THE-PROXY:8001")',
    ]
    _, err = deployed(capsys, *QWEN, "--backend", "SGLang", "--dspark", 7, status=2)
    assert "SGLang can't be told to draft 7 tokens" in err


FILE = """
[server]
url = "{url}"
api_key_file = "{key}"
[model]
id = "Qwen/Qwen3-8B"
replicas = 2
dspark = 5
cluster_id = 1
gpus = ["worker1:cuda:0", "worker2:cuda:0"]
gpus_per_replica = 1
[backend]
version = "0.32.0"
package = "dspark-json==9"
[backend.args]
max-model-len = 8192
enable-prefix-caching = true
chat-template-kwargs = {{ thinking = false }}
[env]
DSPARK_DURABILITY = "write"
PYPI_PACKAGES_INSTALL = "extra==1"
"""


def test_a_file_says_the_same_and_options_go_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUSTACK_API_KEY")
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    file = tmp_path / "qwen.toml"
    stack = GpuStack(KEY, states=["running"])
    with serving(stack) as address:
        file.write_text(FILE.format(url=address, key=key))
        out, _ = deployed(capsys, "--file", file, "--name", "mine", "--dspark", 7)
    assert out.startswith("model 1, mine: 2 of 2 instances run\n")
    (created,) = stack.created
    assert argv(created["backend_parameters"])[3:] == [
        "--max-model-len=8192",
        "--enable-prefix-caching",
        "--chat-template-kwargs",
        '{"thinking":false}',
    ]
    assert json.loads(argv(created["backend_parameters"])[2])["num_speculative_tokens"] == 7
    assert created["gpu_selector"] == {"gpu_ids": ["worker1:cuda:0", "worker2:cuda:0"], "gpus_per_replica": 1}
    assert (created["cluster_id"], created["backend_version"]) == (1, "0.32.0")
    assert created["env"] == {
        "DSPARK_DURABILITY": "write",
        "DSPARK_API_KEY": HOOK_KEY,
        "PYPI_PACKAGES_INSTALL": "extra==1 dspark-json==9",
    }


def test_names_that_are_no_settings_of_the_hook_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.toml"
    file.write_text("[model]\nid = 'a'\n[env]\ndspark_spool = '/x'\nHF_HOME = '/y'\n")
    _, err = deployed(capsys, "--file", file)
    assert err.splitlines() == ['dspark-json: dspark_spool is not a setting of the hook. Did you mean "DSPARK_SPOOL"?']


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[model", "is not TOML"),
        ("[modle]\nid = 'a'", "modle is not known"),
        ("[model]\nid = 'a'\nreplica = 2", "model.replica is not known"),
        ("[model]\nid = 5", "model.id is of another type"),
        ("[model]\nid = 'a'\nreplicas = true", "model.replicas is of another type"),
        ("[model]\nid = 'a'\nreplicas = -1", "replicas is -1"),
        ("[model]\nid = 'a'\ndspark = 0", "from 1 to 1000"),
        ("[model]\nid = 'a'\nsource = 'ollama'", 'source "ollama" is not known'),
        ("[model]\nid = 'a'\ndraft = 'b'", "but not --dspark"),
        ("[server]\napi_key = 'file-secret'", "holds a key"),
        ("model = 5", "model is not a table"),
        ("[model]\nid = 'a'\n[env]\nA = 5", "env is not a table of texts"),
        ("[model]\nid = 'a'\n[env]\nDSPARK_DURABILITY = 'perhaps'", "DSPARK_DURABILITY"),
        ("[model]\nid = 'a'\n[backend.args]\nport = 5", "GPUStack sets it itself"),
        ("[model]\nid = 'a'\n[backend]\npackage = 'a b'", "has blanks"),
        ("[model]\nid = 'a'\ndspark = true\n[backend.args]\nspeculative-config = 'x'", "Give one of them"),
        ("", "no model is named"),
    ],
)
def test_a_file_that_is_wrong_is_named(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    out, err = deployed(capsys, "--file", file, status=2)
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert "file-secret" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--file", "/no/such/file"), "can't be read"),
        ((*QWEN, "--server", "http://x", "--api-key", "two words"), "not a key"),
        ((*QWEN, "--server", "http://x", "--api-key-file", "/no/such/key"), "can't be read"),
        ((*QWEN, "--wait", "5"), "no server is named"),
        (("--model", "///"), "no name can be made"),
        ((*QWEN, "--source", "local_path"), "no absolute path"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = deployed(capsys, *words, status=2)
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_missing_keys_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSPARK_API_KEY")
    assert "DSPARK_API_KEY is not set" in deployed(capsys, *QWEN)[1]
    monkeypatch.delenv("GPUSTACK_API_KEY")
    assert "GPUStack's API key is missing" in deployed(capsys, *QWEN, "--server", "http://x", status=2)[1]
    monkeypatch.setenv("DSPARK_API_KEY", "two words-secret")
    _, err = deployed(capsys, *QWEN, status=2)
    assert "DSPARK_API_KEY is not a key" in err
    assert "words" not in err.split("blanks")[1]


def test_the_page_about_it_shows_what_is_printed_and_a_file_that_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs/deploy.md").read_text("utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(shown) == printed(capsys, *QWEN, "--dspark", 7)
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "qwen.toml").write_text(text.replace('url = "https://gpustack.example"', ""))
    body = printed(capsys, "--file", tmp_path / "qwen.toml")
    assert argv(body["backend_parameters"])[-2:] == ["--default-chat-template-kwargs", '{"enable_thinking":false}']


def test_no_draft_is_a_word_of_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no draft model is known for a/b" in deployed(capsys, "--model", "a/b", "--dspark")[1]
    assert deployed(capsys, *QWEN, "--dspark")[1] == ""


def test_the_command_runs_on_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dspark_json", "deploy", "gpustack", *QWEN, "--dspark", "7"],
        capture_output=True,
        text=True,
        env={**os.environ, "DSPARK_API_KEY": HOOK_KEY},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"] == "qwen3-8b"
