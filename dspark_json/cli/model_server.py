"""A server that answers OpenAI-type requests, as commands that ask it know it: address, model, key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httpx

from dspark_json.errors import EndpointAnswerError, EndpointUnreachableError, InvalidOptionError
from dspark_json.key_file import UnreadableError, first_line
from dspark_json.options import is_key, reader_values
from dspark_json.spool.http_answers import transport_problem

if TYPE_CHECKING:
    from pathlib import Path

_MODELS_TIMEOUT_SEC: Final = 10.0


@dataclass(frozen=True, slots=True)
class ModelServer:
    """Where to ask (``http://host:port``) for which model; ``key`` opens it and is never shown."""

    address: str
    model: str
    key: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What each request to it carries."""
        return key_headers(self.key)

    def without_key(self, text: str) -> str:
        """A text of the server's, in which it may have quoted the key."""
        return text if self.key is None else text.replace(self.key, "…")


def model_server(address: str, model: str | None, key_file: Path | None = None) -> ModelServer:
    """The server at ``address``, which may have an API's path; without ``model``, the first one that it lists.

    Raises an ``InvalidOptionError`` or ``EndpointError`` that names what is wrong.
    """
    base, key = server_address(address), model_key(key_file)
    return ModelServer(base, model or served_model(base, key), key)


def server_address(text: str) -> str:
    """One server's address, as the reader's ``vllm_endpoint`` takes it."""
    addresses = reader_values({"vllm_endpoint": text})["vllm_endpoint"]
    assert isinstance(addresses, tuple)
    if len(addresses) > 1 or str(addresses[0]).startswith("dns+"):
        raise InvalidOptionError(f'"{text}" names several servers', remedy="Give one.")
    return str(addresses[0])


def model_key(key_file: Path | None = None) -> str | None:
    """The key for asking: the first line of ``key_file``, else the environment's ``VLLM_API_KEY``."""
    if key_file is None:
        key, where = os.environ.get("VLLM_API_KEY") or None, "VLLM_API_KEY"
    else:
        where = f'the first line of the key file "{key_file}"'
        try:
            key = first_line(key_file)
        except UnreadableError as why:
            raise InvalidOptionError(
                f'the key file "{key_file}" can\'t be read: {why}',
                remedy="Give a file whose first line is the key for asking the model.",
            ) from None
    if key is not None and not is_key(key):
        raise InvalidOptionError(
            f"{where} is not a key: allowed are visible ASCII characters, without blanks (its value is not shown)"
        )
    return key


def key_headers(key: str | None) -> dict[str, str]:
    """The header that carries the key, if there is one."""
    return {"authorization": f"Bearer {key}"} if key else {}


def served_model(address: str, key: str | None) -> str:
    """The first model that the server at ``address`` lists; a named error where there is none."""
    try:
        answer = httpx.get(
            f"{address}/v1/models", headers=key_headers(key), timeout=_MODELS_TIMEOUT_SEC, trust_env=False
        )
        answer.raise_for_status()
        name = answer.json()["data"][0]["id"]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise EndpointAnswerError(
                f"{address}/v1/models answers with status {status}",
                remedy="Set VLLM_API_KEY to the key for asking the model.",
            ) from error
        raise EndpointAnswerError(
            f"{address} is no OpenAI-type server: /v1/models answers with status {status}",
            remedy="Check the address; for a server that does not list its models, name one with --model.",
        ) from error
    except httpx.HTTPError as error:
        raise EndpointUnreachableError(
            f"{address} does not answer ({transport_problem(error)})",
            remedy="Check that the server runs and that the address is right.",
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        raise EndpointAnswerError(
            f"{address} is no OpenAI-type server: /v1/models does not list a model",
            remedy="Check the address; for a server that does not list its models, name one with --model.",
        ) from error
    return str(name)
