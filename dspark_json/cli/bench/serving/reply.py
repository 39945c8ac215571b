"""One streamed answer, read from its bytes after it has come: the load itself only keeps them and the times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dspark_json.capture.jsontext import loads
from dspark_json.capture.sse import EventSplitter
from dspark_json.cli.bench.serving.acceptance import of_answer
from dspark_json.spool.http_answers import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark_json.monitor.speculation import Speculation

_DONE: Final = b"[DONE]"
_BLANKS: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request has no answer: ``kind`` is what is counted, ``text`` what was said."""

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request: the schema it asked for, its times (seconds of one clock), and the pieces of its answer.

    ``due`` is when it was to be sent; it was ``sent`` later where no place was free, or the load itself was too slow.
    """

    schema: str
    due: float
    sent: float
    ended: float
    pieces: tuple[tuple[float, bytes], ...]
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole streamed answer.

    ``first_json`` is when the content's first byte came, blanks aside, if that begins an object (all the schemas are of
    objects). ``tokens`` and ``drafts`` are None where the server does not tell.
    """

    content: str
    first_json: float | None
    finish_reason: str
    tokens: int | None
    drafts: Speculation | None


def read_reply(pieces: Sequence[tuple[float, bytes]]) -> Reply | Problem:
    """Put the first choice of a stream of chat chunks together; ``pieces`` are its bytes, cut anywhere, and times."""
    texts: list[str] = []
    first_json: float | None = None
    begun = False
    finish_reason: str | None = None
    tokens: int | None = None
    drafts: Speculation | None = None
    try:
        for at, data in _events(pieces):
            if data == _DONE:
                if finish_reason is None:
                    break
                return Reply("".join(texts), first_json, finish_reason, tokens, drafts)
            chunk = loads(data)
            if chunk.get("error"):
                return Problem("error in the stream", str(chunk["error"]))
            tokens = _tokens(chunk, tokens)
            drafts = of_answer(chunk.get("metrics")) or drafts
            for choice in chunk["choices"]:
                if choice.get("index"):
                    continue
                text = choice["delta"].get("content") or ""
                if not begun and text.strip(_BLANKS):
                    begun = True
                    first_json = at if text.lstrip(_BLANKS).startswith("{") else None
                texts.append(text)
                finish_reason = choice.get("finish_reason") or finish_reason
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Problem("no chunks of chat", f"{type(error).__name__}: {error}")
    return Problem("stream ended early")


def _events(pieces: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    splitter = EventSplitter()
    for at, piece in pieces:
        for data in splitter.feed(piece):
            yield at, data


def _tokens(chunk: dict[str, Any], before: int | None) -> int | None:
    usage = chunk.get("usage")
    told = number(usage.get("completion_tokens")) if isinstance(usage, dict) else None
    return before if told is None else told
