"""A GPUStack server: creates models, finds where their instances listen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from dspark_json.errors import DeploymentError, EndpointUnreachableError
from dspark_json.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["GpuStackServer", "Instance"]

_TIMEOUT_S: Final = 30.0
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_SHOWN: Final = 300  # characters of a server's text in an error


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a model. ``endpoint`` is where its server listens, None before it has a place."""

    name: str
    state: str
    state_message: str
    endpoint: str | None

    @property
    def runs(self) -> bool:
        return self.state == "running" and self.endpoint is not None


class GpuStackServer:
    """Asks one server with one key; close it after use. Redirects are not followed: the key goes nowhere else."""

    def __init__(self, url: str, key: str) -> None:
        """``url`` is ``scheme://host[:port][/prefix]``."""
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            headers={"authorization": f"Bearer {key}", "user-agent": "dspark-json"},
            timeout=_TIMEOUT_S,
            trust_env=False,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create(self, body: Mapping[str, Any]) -> int:
        """Create a model (``POST /v2/models``); gives its id."""
        return self._id(self._asked("POST", "/v2/models", f"creating {body['name']}", json=dict(body)))

    def find(self, name: str) -> tuple[int, int]:
        """The id and the wanted replicas of the model of a name; ``DeploymentError`` where there is none."""
        answer = self._asked("GET", "/v2/models", f"looking for {name}", params={"search": name, "perPage": 100})
        for item in self._items(answer):
            if item.get("name") == name:
                replicas = item.get("replicas")
                return self._id(item), replicas if isinstance(replicas, int) else 1
        raise DeploymentError(f"{self.url} has no model {name}", remedy="Give its name there with --name.")

    def instances(self, model: int) -> list[Instance]:
        """The instances that a model has now (``GET /v2/models/{id}/instances``)."""
        answer = self._asked("GET", f"/v2/models/{model}/instances", f"looking for the instances of model {model}")
        return [_instance(item) for item in self._items(answer)]

    def running(
        self, model: int, replicas: int, wait_s: float, tell: Callable[[Sequence[Instance]], None]
    ) -> list[Instance]:
        """The instances once ``replicas`` of them run, or as they are when the wait is over.

        ``tell`` gets the instances each time that a state has changed. ``DeploymentError`` where one of them failed.
        A server that does not answer while one waits is asked again.
        """
        deadline = time.monotonic() + wait_s
        pause = _FIRST_WAIT_S
        last: list[Instance] | None = None
        while True:
            try:
                found = self.instances(model)
            except EndpointUnreachableError:
                if time.monotonic() + pause > deadline:
                    raise
            else:
                if found != last:
                    tell(found)
                last = found
                for one in found:
                    if one.state == "error":
                        why = f": {printable(one.state_message, _SHOWN)}" if one.state_message else ""
                        raise DeploymentError(
                            f"instance {one.name} of model {model} failed{why}",
                            remedy="Its log in GPUStack says more. The model is kept: change or delete it there.",
                        )
                if sum(one.runs for one in found) >= replicas or time.monotonic() + pause > deadline:
                    return found
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_WAIT_S)

    def _asked(self, method: str, path: str, doing: str, **more: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, self.url + path, **more)
        except (httpx.TransportError, httpx.InvalidURL, UnicodeError) as error:
            raise EndpointUnreachableError(
                f"{self.url} does not answer ({printable(str(error) or type(error).__name__, _SHOWN)}), {doing}",
                remedy="Check --server; a model may have been created all the same.",
            ) from None
        try:
            document = answer.json()
        except ValueError:
            document = None
        if answer.status_code >= 500 and method == "GET":
            raise EndpointUnreachableError(f"{self.url} answers with status {answer.status_code}, {doing}")
        if not answer.is_success or not isinstance(document, dict):
            raise _refused(self.url, answer.status_code, document, doing)
        return document

    def _items(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        items = document.get("items")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise DeploymentError(f"{self.url} does not answer as GPUStack 2 does", remedy="Check --server.")
        return items

    def _id(self, document: Mapping[str, Any]) -> int:
        found = document.get("id")
        if not isinstance(found, int):
            raise DeploymentError(f"{self.url} does not answer as GPUStack 2 does", remedy="Check --server.")
        return found


def _instance(item: Mapping[str, Any]) -> Instance:
    """An instance; the first port is the server's (gpustack/worker/serve_manager.py)."""
    host, ports = item.get("worker_ip"), item.get("ports")
    endpoint = None
    if isinstance(host, str) and host and isinstance(ports, list) and ports and isinstance(ports[0], int):
        endpoint = f"http://[{host}]:{ports[0]}" if ":" in host else f"http://{host}:{ports[0]}"
    return Instance(
        str(item.get("name", "")), str(item.get("state", "")), str(item.get("state_message") or ""), endpoint
    )


def _refused(url: str, status: int, document: object, doing: str) -> DeploymentError:
    said = document.get("message") if isinstance(document, dict) else None
    what = f"{url} refuses (status {status}{', ' + printable(str(said), _SHOWN) if said else ''}), {doing}"
    if status in {401, 403}:
        return DeploymentError(
            what, remedy="Give an API key of GPUStack that may manage models: GPUSTACK_API_KEY, --api-key or a file."
        )
    if status == 409:
        return DeploymentError(what, remedy="Choose another --name, or find the one there is with --find.")
    if status in {404, 405} or 300 <= status < 400 or said is None:
        return DeploymentError(what, remedy="Check --server: it is the address of a GPUStack 2 server.")
    return DeploymentError(what, remedy="Correct what it says.")
