"""A deployment as GPUStack 2.x takes it: the body of ``POST /v2/models`` (``ModelCreate``, gpustack/schemas/models.py).

The hook and DSpark go in as arguments of the server: GPUStack's own ``speculative_config`` does not know DSpark, and
``PYPI_PACKAGES_INSTALL`` is what it installs before the server starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dspark_json.deploy.arguments import backend_parameters
from dspark_json.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark_json.deploy.deployment import Deployment

__all__ = ["model_body", "shown_body"]

_PACKAGES: Final = "PYPI_PACKAGES_INSTALL"
_HOOK: Final = "dspark_json.JsonOutputHook"
_MODEL_FIELDS: Final = {
    "huggingface": "huggingface_repo_id",
    "model_scope": "model_scope_model_id",
    "local_path": "local_path",
}
_SECRETS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASS")


def model_body(wanted: Deployment) -> dict[str, Any]:
    """The body, secrets of the environment included; ``InvalidOptionError`` where an argument can't be said."""
    body: dict[str, Any] = {
        "name": wanted.name,
        "source": wanted.source,
        _MODEL_FIELDS[wanted.source]: wanted.model,
        "replicas": wanted.replicas,
        "backend": wanted.backend,
        "backend_parameters": _vllm(wanted) if wanted.backend == "vLLM" else _sglang(wanted),
        "env": _environment(wanted),
        "enable_model_route": True,
    }
    selector: dict[str, Any] = {}
    if wanted.gpus:
        selector["gpu_ids"] = list(wanted.gpus)
    if wanted.gpus_per_replica is not None:
        selector["gpus_per_replica"] = wanted.gpus_per_replica
    if selector:
        body["gpu_selector"] = selector
    if wanted.cluster_id is not None:
        body["cluster_id"] = wanted.cluster_id
    if wanted.backend_version is not None:
        body["backend_version"] = wanted.backend_version
    return body


def shown_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body for people and files: each secret of the environment is ``${NAME}``, as a shell would put it in."""
    env = {name: f"${{{name}}}" if name.upper().endswith(_SECRETS) else value for name, value in body["env"].items()}
    return {**body, "env": env}


def _vllm(wanted: Deployment) -> list[str]:
    parameters = [f"--middleware={_HOOK}"]
    if wanted.dspark:
        config: dict[str, Any] = {"method": "dspark"}
        if wanted.draft_model is not None:
            config["model"] = wanted.draft_model
        if wanted.speculative_tokens is not None:
            config["num_speculative_tokens"] = wanted.speculative_tokens
        parameters += backend_parameters({"speculative-config": config})
    return parameters + backend_parameters(wanted.arguments)


def _sglang(wanted: Deployment) -> list[str]:
    """SGLang has no middleware: the proxy runs the hook. It drafts as many tokens as the draft model is made for."""
    arguments: dict[str, object] = {}
    if wanted.dspark:
        arguments["speculative-algorithm"] = "DSPARK"
        if wanted.draft_model is not None:
            arguments["speculative-draft-model-path"] = wanted.draft_model
        if wanted.speculative_tokens is not None:
            raise InvalidOptionError(
                f"SGLang can't be told to draft {wanted.speculative_tokens} tokens: the draft model says how many",
                remedy="Give --dspark without a number.",
            )
    return backend_parameters({**arguments, **wanted.arguments})


def _environment(wanted: Deployment) -> dict[str, str]:
    env = dict(wanted.environment)
    if wanted.backend == "vLLM":
        env[_PACKAGES] = " ".join(filter(None, (env.get(_PACKAGES), wanted.package)))
        return env
    return {name: value for name, value in env.items() if not name.startswith("DSPARK_")}
