"""``dspark-json deploy``: a model with the hook (and DSpark), on a service that runs model servers."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dspark_json.cli import output
from dspark_json.cli.numbers import real_from_zero
from dspark_json.errors import InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark_json.deploy.deployment import Deployment
    from dspark_json.deploy.gpustack_server import Instance

SUMMARY: Final = "deploy a model with the hook and DSpark"
DESCRIPTION: Final = "Deploy a model whose answers Spark can read."
EXAMPLES: Final = """\
examples:
  dspark-json deploy gpustack --model Qwen/Qwen3-8B --dspark 7
  dspark-json deploy gpustack --file qwen.toml --server https://gpustack.example --wait
"""

_GPUSTACK_DESCRIPTION: Final = (
    "A deployment on GPUStack 2: vLLM with the hook, and with DSpark where --dspark says so. Without --server the\n"
    "body of POST /v2/models is printed, secrets as ${NAME}. With it the model is created, and what Spark needs is\n"
    "printed. A server of SGLang takes no hook: what is printed then is the proxy to run beside it."
)
_GPUSTACK_EXAMPLES: Final = """\
examples:
  dspark-json deploy gpustack --model Qwen/Qwen3-8B --dspark 7
  dspark-json deploy gpustack --model Qwen/Qwen3-8B --dspark 7 --server https://gpustack.example --wait 900
  dspark-json deploy gpustack --file qwen.toml --replicas 2 | envsubst | curl … --json @- …/v2/models
  dspark-json deploy gpustack --model Qwen/Qwen3-8B --server https://gpustack.example --find

Keys: GPUStack's is --api-key-file, --api-key or GPUSTACK_API_KEY. DSPARK_API_KEY, if it is set, becomes the hook's,
with which Spark reads over HTTP. Neither is printed. docs/deploy.md has the file's form.

The exit status is 0 when it is done, 1 when the instances did not all run in time, 2 for an error.
"""

_WAIT_S: Final = 1800.0
_PROXY_PORT: Final = 8001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``deploy``."""
    services = parser.add_subparsers(dest="service", metavar="SERVICE", required=True)
    gpustack = services.add_parser(
        "gpustack",
        help="GPUStack 2",
        description=_GPUSTACK_DESCRIPTION,
        epilog=_GPUSTACK_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    wanted = gpustack.add_argument_group("what to deploy")
    wanted.add_argument("--file", type=Path, metavar="F", help="a TOML file with the deployment; options go first")
    wanted.add_argument("--model", metavar="ID", help="the model's repository, or its path on the workers")
    wanted.add_argument("--source", choices=("huggingface", "model_scope", "local_path"), help="where it is from")
    wanted.add_argument("--name", metavar="NAME", help="the deployment's name (made from the model's)")
    wanted.add_argument(
        "--dspark", nargs="?", const=True, type=int, metavar="N", help="speculate with DSpark, N tokens at once"
    )
    wanted.add_argument("--draft", metavar="ID", help="the draft model (the published one, else the model's own)")
    wanted.add_argument("--backend", choices=("vLLM", "SGLang"), help="the server (vLLM)")
    wanted.add_argument("--backend-version", metavar="V", help="the server's version (GPUStack's choice)")
    wanted.add_argument("--replicas", type=int, metavar="N", help="how many instances (1)")
    wanted.add_argument("--cluster", type=int, metavar="ID", help="the cluster's id (GPUStack's default one)")
    wanted.add_argument("--gpus", metavar="GPU,…", help="certain GPUs, such as worker1:cuda:0; needs --cluster")
    wanted.add_argument("--gpus-per-replica", type=int, metavar="N", help="GPUs of one instance")
    wanted.add_argument("--package", metavar="SPEC", help="what pip installs for the hook (this version)")
    server = gpustack.add_argument_group("where")
    server.add_argument("--server", metavar="URL", help="GPUStack's address")
    server.add_argument("--api-key", metavar="KEY", help="its API key; others on this machine can see it here")
    server.add_argument("--api-key-file", type=Path, metavar="F", help="a file whose first line is the API key")
    server.add_argument(
        "--wait",
        nargs="?",
        const=_WAIT_S,
        type=real_from_zero,
        default=0.0,
        metavar="S",
        help="wait for the instances (1800 s)",
    )
    server.add_argument("--find", action="store_true", help="create nothing: find the instances of the name")
    server.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the body, or create the model and print where its instances listen."""
    from dspark_json.deploy.deployment_file import DeploymentFile, deployment, read_file
    from dspark_json.deploy.gpustack import model_body, shown_body

    file = DeploymentFile({}, {}, {}, {}) if options.file is None else read_file(options.file)
    wanted = deployment(file, _given(options), os.environ.get("DSPARK_API_KEY", "").strip() or None)
    body = model_body(wanted)
    url = options.server or file.server.get("url")
    if url is None:
        if options.wait or options.find or options.api_key or options.api_key_file:
            raise MissingOptionError("no server is named", remedy="Give its address with --server.")
        output.write(json.dumps(shown_body(body), indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        _note_odd(wanted)
        return 0
    return _deploy(options, wanted, body, url, _key(options, file.server))


def _deploy(options: argparse.Namespace, wanted: Deployment, body: dict[str, Any], url: str, key: str) -> int:
    from dspark_json.deploy.gpustack_server import GpuStackServer
    from dspark_json.printable import printable

    def tell(found: Sequence[Instance]) -> None:
        output.note("; ".join(f"{printable(one.name)}: {printable(one.state)}" for one in found) or "no instance yet")

    with GpuStackServer(url, key) as server:
        if options.find:
            model, replicas = server.find(wanted.name)
        else:
            _note_odd(wanted)
            model, replicas = server.create(body), wanted.replicas
            output.note(f"created model {model}, {wanted.name}")
        found = server.running(model, replicas, options.wait, tell)
    endpoints = [one.endpoint for one in found if one.runs and one.endpoint is not None]
    if options.json:
        states = [{"name": one.name, "state": one.state, "endpoint": one.endpoint} for one in found]
        document = {"model_id": model, "name": wanted.name, "replicas": replicas, "instances": states}
        output.write(json.dumps({**document, **_for_spark(wanted, endpoints)}, ensure_ascii=False).encode() + b"\n")
    else:
        text = f"model {model}, {wanted.name}: {len(endpoints)} of {replicas} instances run\n"
        told = _for_spark(wanted, endpoints) if endpoints else {}
        text += "".join(f"{line}\n" for line in told.values() if line)
        output.write(text.encode("utf-8", "replace"))
    return 1 if options.wait and len(endpoints) < replicas else 0


def _for_spark(wanted: Deployment, endpoints: Sequence[str]) -> dict[str, str | None]:
    """What to paste: the proxy's command where one is needed, and the option of Spark's reader."""
    if not endpoints:
        return {"proxy": None, "option": None}
    if wanted.backend == "vLLM":
        return {"proxy": None, "option": f'.option("vllm_endpoint", "{",".join(endpoints)}")'}
    return {
        "proxy": f"dspark-json proxy --upstream {','.join(endpoints)} --listen 0.0.0.0:{_PROXY_PORT}",
        "option": f'.option("vllm_endpoint", "http://HOST-OF-THE-PROXY:{_PROXY_PORT}")',
    }


def _note_odd(wanted: Deployment) -> None:
    """What one should know of a deployment that is not wrong."""
    from dspark_json.options import hook_values

    for warning in hook_values(wanted.environment)[1]:
        output.note(warning)
    if wanted.backend == "vLLM" and "DSPARK_API_KEY" not in wanted.environment:
        output.note(
            "DSPARK_API_KEY is not set: the hook will keep the answers, but give them to nobody over HTTP, and the "
            "container's folder is its own; set it to a key (openssl rand -hex 32)"
        )
    if wanted.dspark and wanted.draft_model is None:
        output.note(
            f"no draft model is known for {wanted.model}: its own weights must hold DSpark's, as those of DeepSeek-V4 "
            "do; name another with --draft"
        )


def _given(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "id": options.model,
        "source": options.source,
        "name": options.name,
        "dspark": options.dspark,
        "draft": options.draft,
        "backend": options.backend,
        "backend_version": options.backend_version,
        "replicas": options.replicas,
        "cluster_id": options.cluster,
        "gpus": None if options.gpus is None else options.gpus.split(","),
        "gpus_per_replica": options.gpus_per_replica,
        "package": options.package,
    }


def _key(options: argparse.Namespace, server: Any) -> str:
    """GPUStack's key: option, else file, else environment. Its text appears in no error."""
    from dspark_json.key_file import UnreadableError, first_line
    from dspark_json.options import is_key

    file = options.api_key_file or server.get("api_key_file")
    key: str | None = options.api_key
    if key is None and file is not None:
        try:
            key = first_line(Path(file))
        except UnreadableError as why:
            raise InvalidOptionError(f'the key file "{file}" can\'t be read: {why}') from None
    if key is None:
        key = os.environ.get("GPUSTACK_API_KEY", "").strip() or None
    if key is None:
        raise MissingOptionError(
            "GPUStack's API key is missing", remedy="Set GPUSTACK_API_KEY, or name a file with --api-key-file."
        )
    if not is_key(key):
        raise InvalidOptionError("GPUStack's API key is not a key (its value is not shown)")
    return key
