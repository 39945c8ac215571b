"""A deployment from a TOML file, with what the command line says instead."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.deploy.deployment import Deployment
from dspark_json.errors import InvalidOptionError, MissingOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DeploymentFile", "deployment", "read_file"]

_TABLES: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "server": {"url": str, "api_key_file": str},
    "model": {
        "id": str,
        "name": str,
        "source": str,
        "replicas": int,
        "cluster_id": int,
        "gpus": list,
        "gpus_per_replica": int,
        "dspark": (bool, int),
        "draft": str,
    },
    "backend": {"name": str, "version": str, "package": str, "args": dict},
}
_SOURCES: Final = ("huggingface", "model_scope", "local_path")
_BACKENDS: Final = ("vLLM", "SGLang")


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """What a file says, by table."""

    server: Mapping[str, Any]
    model: Mapping[str, Any]
    backend: Mapping[str, Any]
    env: Mapping[str, str]


def read_file(path: Path) -> DeploymentFile:
    """Read a file; ``InvalidOptionError`` names what is wrong in it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOptionError(f'"{path}" can\'t be read: {error.strerror}') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f'"{path}" is not TOML: {error}') from None
    _known(path, "", document, {*_TABLES, "env"})
    for table, members in _TABLES.items():
        given = document.get(table, {})
        if not isinstance(given, dict):
            raise InvalidOptionError(f'"{path}": {table} is not a table')
        if table == "server" and "api_key" in given:
            raise InvalidOptionError(
                f'"{path}" holds a key (its value is not shown)',
                remedy="Name a file with api_key_file, or set GPUSTACK_API_KEY.",
            )
        _known(path, f"{table}.", given, set(members))
        for name, value in given.items():
            kind = members[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and name != "dspark"):
                raise InvalidOptionError(f'"{path}": {table}.{name} is of another type than it must be')
    env = document.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise InvalidOptionError(f'"{path}": env is not a table of texts', remedy="Put numbers in quotes.")
    return DeploymentFile(document.get("server", {}), document.get("model", {}), document.get("backend", {}), env)


def deployment(file: DeploymentFile, given: Mapping[str, Any], hook_key: str | None) -> Deployment:
    """The deployment that a file and a command line ask for together; ``given`` goes first, None in it is nothing.

    ``hook_key`` becomes the server's ``DSPARK_API_KEY`` where the file sets none.
    """
    model = {**file.model, **{name: value for name, value in given.items() if value is not None}}
    named = model.get("id")
    if not named:
        raise MissingOptionError("no model is named", remedy="Name one: --model Qwen/Qwen3-8B.")
    dspark = model.get("dspark", False)
    if isinstance(dspark, int) and not isinstance(dspark, bool) and not 1 <= dspark <= 1000:
        raise InvalidOptionError("dspark is a number of tokens from 1 to 1000", remedy="7 is usual.")
    backend = _one_of("backend", given.get("backend") or file.backend.get("name", "vLLM"), _BACKENDS)
    env = dict(file.env)
    if hook_key is not None:
        env.setdefault("DSPARK_API_KEY", hook_key)
    more = {"package": package} if (package := given.get("package") or file.backend.get("package")) else {}
    return Deployment(
        model=named,
        source=_one_of("source", model.get("source", "local_path" if named.startswith("/") else _SOURCES[0]), _SOURCES),
        name=model.get("name") or default_name(named),
        backend=backend,
        backend_version=given.get("backend_version") or file.backend.get("version"),
        replicas=_least("replicas", model.get("replicas", 1), 0),
        cluster_id=model.get("cluster_id"),
        gpus=tuple(str(gpu) for gpu in model.get("gpus", ())),
        gpus_per_replica=_least("gpus_per_replica", model.get("gpus_per_replica"), 1),
        dspark=dspark is not False,
        speculative_tokens=None if isinstance(dspark, bool) else dspark,
        draft=model.get("draft"),
        arguments=file.backend.get("args", {}),
        environment=env,
        **more,
    )


def default_name(model: str) -> str:
    """A deployment's name from its model: the last part, in lower case."""
    return re.sub(r"[^a-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-._")


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> Any:
    for word in allowed:
        if value.lower() == word.lower():
            return word
    raise InvalidOptionError(f'{what} "{value}" is not known', remedy="Allowed are " + ", ".join(allowed) + ".")


def _least(what: str, value: int | None, least: int) -> Any:
    if value is not None and value < least:
        raise InvalidOptionError(f"{what} is {value}", remedy=f"The least is {least}.")
    return value


def _known(path: Path, where: str, given: Mapping[str, Any], names: set[str]) -> None:
    for name in given:
        if name not in names:
            raise InvalidOptionError(
                f'"{path}": {where}{name} is not known', remedy="Known are " + ", ".join(sorted(names)) + "."
            )
