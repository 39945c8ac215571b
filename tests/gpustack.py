"""A GPUStack server of the tests: the routes that a deployment uses, with GPUStack 2's rules and words."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Final
from urllib.parse import parse_qs

from serving import Message, Receive, Send, model

FIELDS: Final[dict[str, type | tuple[type, ...]]] = {
    "name": str,
    "source": str,
    "huggingface_repo_id": str,
    "model_scope_model_id": str,
    "local_path": str,
    "replicas": int,
    "backend": str,
    "backend_version": str,
    "backend_parameters": list,
    "env": dict,
    "gpu_selector": dict,
    "cluster_id": int,
    "enable_model_route": bool,
}
SOURCE_FIELDS: Final = {
    "huggingface": "huggingface_repo_id",
    "model_scope": "model_scope_model_id",
    "local_path": "local_path",
}
SET_BY_GPUSTACK: Final = {"--port": "port", "--api-key": "API key", "--served-model-name": "served model name"}

_BEFORE_JSON: Final = re.compile(r"=(?=[{\[])")


def argv(entries: list[str]) -> list[str]:
    """The command line that GPUStack makes of ``backend_parameters``.

    An entry that begins with an option is split as a shell does, JSON right behind a ``=`` taken out before and put
    back after; any other entry is one word. Backslashes before line breaks are continued lines; a last one is dropped.
    """
    words: list[str] = []
    for entry in map(str.strip, entries):
        if entry:
            words += _split(entry) if _is_option(entry.split()[0]) else [entry]
    return words


def _split(entry: str) -> list[str]:
    kept: list[str] = []
    text, at = "", 0
    while (match := _BEFORE_JSON.search(entry, at)) is not None:
        text += f"{entry[at : match.end()]}\x1f{len(kept)}\x1f"
        at = _json_end(entry, match.end())
        kept.append(entry[match.end() : at])
    text = re.sub(r"\\\r?\n", " ", text + entry[at:])
    bare = text.rstrip()
    if (len(bare) - len(bare.rstrip("\\"))) % 2:
        text = bare[:-1]
    return [re.sub(r"\x1f(\d+)\x1f", lambda found: kept[int(found[1])], word) for word in shlex.split(text)]


def _json_end(text: str, at: int) -> int:
    depth, quoted, escaped = 0, False, False
    for i in range(at, len(text)):
        if escaped:
            escaped = False
        elif text[i] == "\\":
            escaped = True
        elif text[i] == '"':
            quoted = not quoted
        elif not quoted and text[i] in "{[":
            depth += 1
        elif not quoted and text[i] in "}]":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def _is_option(word: str) -> bool:
    if not word.startswith("-") or word in {"-", "--"}:
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


class GpuStack:
    """The server; ``states`` are those that each instance goes through, one a look, the last one stays."""

    def __init__(self, key: str, *, states: list[str] | None = None, places: list[tuple[str, int]] | None = None):
        self.key = key
        self.states = states or ["pending", "starting", "running"]
        self.places = places or [("10.0.0.5", 40000), ("10.0.0.6", 40001)]
        self.created: list[dict[str, Any]] = []
        self.looks = 0
        self.failing_looks = 0
        self.state_message = ""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await model(scope, receive, send)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, document = self._answer(scope, body)
        encoded = json.dumps(document).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(encoded))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": encoded})

    def _answer(self, scope: Message, body: bytes) -> tuple[int, dict[str, Any]]:
        if dict(scope["headers"]).get(b"authorization") != f"Bearer {self.key}".encode():
            return _error(401, "Unauthorized", "Invalid authentication credentials")
        method, path = scope["method"], scope["path"]
        query = parse_qs(scope["query_string"].decode())
        if (method, path) == ("POST", "/v2/models"):
            return self._create(json.loads(body))
        if (method, path) == ("GET", "/v2/models"):
            return 200, _page([item for item in self.created if query["search"][0] in item["name"]])
        if method == "GET" and (found := re.fullmatch(r"/v2/models/(\d+)/instances", path)):
            return self._instances(int(found[1]))
        return _error(404, "NotFound", "Not Found")

    def _create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        for name, value in body.items():
            if name not in FIELDS or not isinstance(value, FIELDS[name]):
                return _error(422, "Invalid", f"Invalid input: {name}")
        if not body.get(SOURCE_FIELDS.get(body.get("source", ""), "")):
            return _error(422, "Invalid", "Invalid input: source")
        if any(item["name"] == body["name"] for item in self.created):
            return _error(409, "AlreadyExists", f"Model with name '{body['name']}' already exists.")
        if "gpu_selector" in body and body["gpu_selector"].get("gpu_ids") and "cluster_id" not in body:
            return _error(400, "BadRequest", "A cluster context is required for manual GPU selection")
        for word in argv(body.get("backend_parameters", [])):
            if (what := SET_BY_GPUSTACK.get(word.partition("=")[0])) is not None:
                return _error(400, "BadRequest", f"Setting the {what} is not supported.")
        self.created.append({**body, "id": len(self.created) + 1})
        return 200, self.created[-1]

    def _instances(self, model_id: int) -> tuple[int, dict[str, Any]]:
        if not 1 <= model_id <= len(self.created):
            return _error(404, "NotFound", "Model not found")
        if self.failing_looks:
            self.failing_looks -= 1
            return _error(503, "ServiceUnavailable", "Service unavailable")
        state = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        wanted = self.created[model_id - 1]
        items = []
        for i in range(wanted["replicas"]):
            item = {"id": i + 1, "name": f"{wanted['name']}-{i}", "model_id": model_id, "state": state}
            item["state_message"] = self.state_message or None
            if state not in {"pending", "analyzing"}:
                host, port = self.places[i]
                item.update(worker_ip=host, ports=[port, port + 20], port=port)
            items.append(item)
        return 200, _page(items)


def _page(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"items": items, "pagination": {"page": 1, "perPage": 100, "total": len(items), "totalPage": 1}}


def _error(status: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"code": status, "reason": reason, "message": message}
