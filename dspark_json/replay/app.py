"""The replay server's ASGI application; its messages have the shape of vLLM's.

A streamed answer is a start message, one body message a server-sent event, ``data: [DONE]`` as a message of its own
(but not of ``/v1/responses``), and an empty last message. An answer that is not streamed is a start message with
``content-length`` and one body message. A client that leaves ends a stream without a last message, and turns the answer
of a call that is not streamed into ``null`` with status 200, as vLLM does.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import orjson

from dspark_json.capture.endpoints import RESPONSES
from dspark_json.capture.lifespan import answer_lifespan
from dspark_json.replay.asgi import JSON_TYPE, STREAM_TYPE, Receive, Send, read_body, send_body, send_json
from dspark_json.replay.recording import ID_PREFIXES, ROUTES, Recording, Traits, packaged_recordings
from dspark_json.replay.selection import Repertoire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODEL: Final = "tiny"


class ReplayApp:
    """Answers chat, completions and responses from recordings; also ``GET /v1/models`` and ``GET /health``."""

    def __init__(self, *, speed: float = 1.0, recordings: Sequence[Recording] | None = None) -> None:
        """``speed`` 2.0 replays twice as fast as recorded; ``recordings`` default to the packaged ones."""
        self._speed = speed
        self._repertoire = Repertoire(packaged_recordings() if recordings is None else recordings)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope (HTTP or lifespan)."""
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope["method"], scope["path"], receive, send)

    async def _serve(self, method: str, path: str, receive: Receive, send: Send) -> None:
        if path in ROUTES:
            if method == "POST":
                await self._generate(path, receive, send)
            else:
                await send_json(send, 405, {"detail": "Method Not Allowed"})
        elif path == "/v1/models" and method == "GET":
            model = {"id": MODEL, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": MODEL}
            await send_json(send, 200, {"object": "list", "data": [{**model, "max_model_len": 4096}]})
        elif path == "/health" and method == "GET":
            await send_body(send, 200, b"", None)
        else:
            await send_json(send, 404, {"detail": "Not Found"})

    async def _generate(self, path: str, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        request, error = _checked(path, body)
        if error is not None:
            await send_json(send, error["error"]["code"], error)
            return
        recording = self._repertoire.pick(Traits.of(path, request))
        parts = recording.render(ID_PREFIXES[path] + secrets.token_hex(8), int(time.time()))
        left = asyncio.create_task(_wait_for_leaving(receive))
        try:
            if recording.traits.stream:
                await self._stream(recording, parts, left, send)
            else:
                await self._answer(recording, parts[0], left, send)
        finally:
            left.cancel()

    async def _stream(self, recording: Recording, parts: list[bytes], left: asyncio.Task[None], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [STREAM_TYPE]})
        loop = asyncio.get_running_loop()
        due = loop.time() + recording.pacing.first / self._speed
        for part in parts:
            if await _left_before(left, due - loop.time()):
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
            due += recording.pacing.step / self._speed
        if recording.traits.path != RESPONSES:
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _answer(self, recording: Recording, body: bytes, left: asyncio.Task[None], send: Send) -> None:
        pacing = recording.pacing
        duration = (pacing.first + pacing.step * max(recording.tokens - 1, 0)) / self._speed
        gone = await _left_before(left, duration)
        await send_body(send, 200, b"null" if gone else body, JSON_TYPE)


def _checked(path: str, body: bytes) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The request, or the error that vLLM answers to a body like this."""
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}, _invalid("json_invalid", "body", "JSON decode error", "{}")
    if not isinstance(request, dict):
        what = f"<{type(request).__name__}>"
        return {}, _invalid("model_attributes_type", "body", "Input should be a valid dictionary", what)
    needed = ROUTES[path]
    if not isinstance(request.get(needed), list if needed == "messages" else (list, str)):
        what = f"<dict of {len(request)} items>"
        return {}, _invalid("missing", f"body.{needed}", "Field required", what)
    model = request.get("model")
    if model is not None and model != MODEL:
        message = f"The model `{model}` does not exist. Valid aliases: {MODEL}."
        return {}, {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}
    return request, None


def _invalid(kind: str, place: str, message: str, found: str) -> dict[str, Any]:
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{message}', 'input': '{found}'}}"
    return {"error": {"message": text, "type": "Bad Request", "param": place, "code": 400}}


async def _wait_for_leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _left_before(left: asyncio.Task[None], seconds: float) -> bool:
    """Wait ``seconds``, or less if the client leaves; tells whether it has left."""
    if seconds > 0 and not left.done():
        await asyncio.wait((left,), timeout=seconds)
    return left.done()
