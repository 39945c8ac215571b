"""The official `openai` client as a process of its own: asks what it is told and tells what it received.

    python official_client.py --address http://127.0.0.1:8000 --key KEY --clients 16 < questions > received

A question is a JSON line ``{"number", "call", "arguments"}``: ``call`` is a name in ``CALLS``, ``arguments`` are the
method's own. With ``chunks`` or ``seconds`` in it, the client leaves after so many chunks or seconds. The request's
``x-request-id`` is ``number``. The answer to it is a JSON line ``{"number", "outcome", "status", "body", "chunks",
"final", …}``, written once the client has all of it: ``outcome`` is ``complete`` (an answer, or an error that the
server answered), ``left`` or ``broken`` (the connection ended early); ``body`` is the JSON of an answer that was not
streamed, ``chunks`` are those of a streamed one, ``error`` is what an event in it said, and ``final`` is what the
client's own helper put together; ``began`` and ``ended`` are seconds of the monotonic clock.

Runs in vLLM's environment, which has that client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import openai
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Json = dict[str, Any]


class Item(BaseModel):
    """A part of an order."""

    name: str = Field(max_length=12)
    quantity: int = Field(ge=0, le=99)


class Order(BaseModel):
    """The type that the parse helpers ask for."""

    order_id: str = Field(max_length=12)
    paid: bool
    channel: Literal["web", "shop"]
    item: Item


class Left(Exception):  # noqa: N818 - never leaves this file
    """The client leaves before the answer is whole."""


class Asking:
    """One question under way; its outcome is ``received``."""

    def __init__(self, client: openai.AsyncOpenAI, question: Json) -> None:
        self._client = client
        self._arguments = {**question["arguments"], "extra_headers": {"x-request-id": question["number"]}}
        self._chunks: int | None = question.get("chunks")
        self._seconds: float | None = question.get("seconds")
        self.received: Json = {"number": question["number"], "outcome": "complete", "status": 200}

    async def ask(self, call: Callable[[Asking], Any]) -> None:
        try:
            await asyncio.wait_for(call(self), self._seconds)
        except openai.APIStatusError as error:
            self.received |= {"status": error.status_code, "body": error.response.json()}
        except (Left, TimeoutError):
            self.received["outcome"] = "left"
        except openai.APIConnectionError as error:
            self.received |= {"outcome": "broken", "error": repr(error)}
        except openai.APIError as error:  # an error event inside a stream
            self.received["error"] = error.body

    async def whole(self, method: Any) -> None:
        """An answer that is not streamed, through the raw form, whose text is the body as sent."""
        raw = await method(**self._arguments)
        self.received["body"] = json.loads(raw.text if isinstance(raw.text, str) else raw.text())
        with contextlib.suppress(openai.LengthFinishReasonError, ValueError):
            raw.parse()

    async def chunks(self, method: Any) -> None:
        await self._note(await method(**self._arguments, stream=True))

    async def helper(self, manager: Any, kind: str, final: str) -> None:
        """A stream through the client's helper, which gives events beside the chunks and puts the answer together.

        It raises, and so leaves, at a raw control character inside a JSON string, and at the chunk that ends a typed
        answer by its length.
        """
        self.received["chunks"] = chunks = []
        try:
            async with manager(**self._arguments) as stream:
                async for event in stream:
                    if kind == "event":
                        chunks.append(_json(event))
                    elif event.type == "chunk":
                        chunks.append(_json(event.chunk))
                self.received["final"] = _json(await getattr(stream, final)())
        except (openai.LengthFinishReasonError, ValueError) as error:
            raise Left from error

    async def _note(self, stream: AsyncIterator[BaseModel]) -> None:
        self.received["chunks"] = chunks = []
        async for chunk in stream:
            chunks.append(_json(chunk))
            if len(chunks) == self._chunks:
                raise Left

    @property
    def chat(self) -> Any:
        return self._client.chat.completions

    @property
    def completions(self) -> Any:
        return self._client.completions

    @property
    def responses(self) -> Any:
        return self._client.responses


def _json(value: BaseModel) -> Json:
    return value.model_dump(mode="json", exclude_unset=True, warnings=False)


CALLS: dict[str, Callable[[Asking], Any]] = {
    "chat": lambda a: a.whole(a.chat.with_raw_response.create),
    "chat.parse": lambda a: a.whole(_typed(a.chat.with_raw_response.parse, response_format=Order)),
    "chat.chunks": lambda a: a.chunks(a.chat.create),
    "chat.stream": lambda a: a.helper(a.chat.stream, "chunk", "get_final_completion"),
    "chat.stream_parse": lambda a: a.helper(
        _typed(a.chat.stream, response_format=Order), "chunk", "get_final_completion"
    ),
    "completions": lambda a: a.whole(a.completions.with_raw_response.create),
    "completions.chunks": lambda a: a.chunks(a.completions.create),
    "responses": lambda a: a.whole(a.responses.with_raw_response.create),
    "responses.parse": lambda a: a.whole(_typed(a.responses.with_raw_response.parse, text_format=Order)),
    "responses.chunks": lambda a: a.chunks(a.responses.create),
    "responses.stream": lambda a: a.helper(a.responses.stream, "event", "get_final_response"),
}


def _typed(method: Any, **types: type[BaseModel]) -> Callable[..., Any]:
    return lambda **arguments: method(**arguments, **types)


async def _client(questions: asyncio.Queue[Json], address: str, key: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=120) as client:
        while not questions.empty():
            question = questions.get_nowait()
            asking = Asking(client, question)
            asking.received["began"] = time.monotonic()
            await asking.ask(CALLS[question["call"]])
            asking.received["ended"] = time.monotonic()
            sys.stdout.write(json.dumps(asking.received) + "\n")
            sys.stdout.flush()


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--address", required=True)
    parser.add_argument("--key", default="none")
    parser.add_argument("--clients", type=int, default=16)
    arguments = parser.parse_args()
    questions: asyncio.Queue[Json] = asyncio.Queue()
    for line in sys.stdin:
        questions.put_nowait(json.loads(line))
    await asyncio.gather(*(_client(questions, arguments.address, arguments.key) for _ in range(arguments.clients)))


if __name__ == "__main__":
    asyncio.run(_main())
