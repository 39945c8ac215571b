"""Clients that send chat requests over HTTP and keep account of what they got."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
import orjson

from dspark_json.cli.model_server import key_headers, model_key
from dspark_json.printable import printable
from dspark_json.replay.recording import packaged_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TIMEOUT_SEC: Final = 300.0
_SHOWN: Final = 200  # characters of what a server or a library says
_STREAMED: Final = ("stream_order_usage", "stream_plain", "stream_tools_required", "stream_n2")
_WHOLE: Final = ("chat_order", "chat_risk", "chat_plain", "chat_tools_required")
# What any model can be asked for: no tools (they need a parser at the server), no large n.
_STREAMED_BY_ANY: Final = ("stream_order_usage", "stream_plain")
_WHOLE_BY_ANY: Final = ("chat_order", "chat_risk", "chat_plain")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a client got for one request: the answer's id if it got all of it, else the ``problem``."""

    answer_id: str | None
    problem: str = ""


def demo_requests(count: int, model: str, *, any_model: bool) -> Iterator[dict[str, Any]]:
    """``count`` requests, every second one streamed; with ``any_model`` only such as every server takes."""
    streamed, whole = (_STREAMED_BY_ANY, _WHOLE_BY_ANY) if any_model else (_STREAMED, _WHOLE)
    bodies = {name: {**packaged_request(name), "model": model} for name in (*streamed, *whole)}
    for body in bodies.values():
        body.pop("seed", None)  # a real model must not give the same answer over and over
    for number in range(count):
        names = whole if number % 2 else streamed
        yield bodies[names[number // 2 % len(names)]]


async def send_all(
    address: str, requests: Sequence[Mapping[str, Any]], clients: int, on_answer: Callable[[Receipt], None]
) -> list[Receipt]:
    """Send ``requests`` from ``clients`` at once, each with one request under way; returns a receipt for each."""
    receipts: list[Receipt] = []
    waiting = iter(requests)

    async def client(http: httpx.AsyncClient) -> None:
        for request in waiting:
            receipt = await _ask(http, request)
            receipts.append(receipt)
            on_answer(receipt)

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(
        base_url=address, headers=key_headers(model_key()), timeout=_TIMEOUT_SEC, limits=limits, trust_env=False
    ) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return receipts


async def _ask(http: httpx.AsyncClient, request: Mapping[str, Any]) -> Receipt:
    try:
        async with http.stream("POST", "/v1/chat/completions", json=request) as answer:
            if answer.status_code != httpx.codes.OK:
                text = (await answer.aread()).decode(errors="replace")
                return Receipt(None, f"status {answer.status_code}: {printable(text, _SHOWN)}")
            if request.get("stream"):
                return await _streamed(answer)
            return Receipt(str(orjson.loads(await answer.aread())["id"]))
    except httpx.HTTPError as error:
        return Receipt(None, f"{type(error).__name__}: {printable(str(error), _SHOWN)}")
    except (ValueError, LookupError, TypeError):
        return Receipt(None, "an answer without an id")


async def _streamed(answer: httpx.Response) -> Receipt:
    answer_id, done = None, False
    async for line in answer.aiter_lines():
        if line == "data: [DONE]":
            done = True
        elif answer_id is None and line.startswith("data: {"):
            answer_id = str(orjson.loads(line[len("data: ") :])["id"])
    if not done or answer_id is None:
        return Receipt(None, "a stream that ended early")
    return Receipt(answer_id)
