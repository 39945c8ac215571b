"""What the tests of natively assembled streams share: streams, and the records that they leave either way."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from unit.capture.driving import CHAT, RESPONSES, corpus_cases, recorded_exchanges, recorded_messages
from unit.capture.driving import spec_decode_exchanges as spec_exchanges

from dspark_json.capture.captured import Captured, is_event_stream
from dspark_json.capture.glance import Glance
from dspark_json.capture.pacing import Pacer
from dspark_json.capture.recording import make_recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUEST = b'{"stream":true}'
HEADERS = [(b"content-type", b"text/event-stream")]
DONE = b"data: [DONE]\n\n"


@functools.cache
def glance() -> Glance:
    found = Glance.load("settings")
    assert found is not None
    return found


def streamed(parts: Sequence[bytes], *, ended: bool, path: str = CHAT) -> Captured:
    body = [part for part in parts if part]
    size = sum(map(len, body))
    return Captured(path, [], 7, [REQUEST], len(REQUEST), 200, HEADERS, body, size, None, 1.0, 2.0, ended)


def record(captured: Captured, by: Glance | None) -> tuple[Any, ...]:
    """The record's values; texts of JSON show the order of members too."""
    made = make_recording(captured, "settings", Pacer(), lambda *_: None, glance=by)
    assert b"\n" not in made.record.body
    meta, body = (json.dumps(json.loads(b"{" + text + b"}")) for text in (made.record.meta, made.record.body))
    return meta, body, made.failed, made.disconnected, made.untyped_model


def is_native(captured: Captured) -> bool:
    """Whether the stream is assembled natively; whichever way it goes, the record is the same."""
    assert record(captured, glance()) == record(captured, None)
    return glance().stream(captured) is not None


def known_streams() -> Iterator[tuple[str, str, list[bytes], bool]]:
    """All recorded streams and cases of the two routes: name, path, parts, whether the last part came."""
    for source, exchanges in (("vllm", recorded_exchanges()), ("spec", spec_exchanges())):
        for exchange in exchanges:
            start, *messages = recorded_messages(exchange)
            if exchange["path"] != RESPONSES and is_event_stream(start["headers"]):
                bodies = [message["body"] for message in messages]
                yield f"{source}-{exchange['name']}", exchange["path"], bodies, not messages[-1]["more_body"]
    for case in corpus_cases():
        if case["path"] != RESPONSES and case["content_type"].startswith("text/event-stream"):
            is_latin = "chunks_latin1" in case
            texts = case["chunks_latin1"] if is_latin else case["chunks"]
            bodies = [text.encode("latin-1" if is_latin else "utf-8") for text in texts]
            yield case["id"], case["path"], bodies, case["end"] == "complete"


def cut(stream: bytes, places: set[int]) -> list[bytes]:
    """The stream in pieces that end at these places."""
    return [stream[a:b] for a, b in pairwise(sorted({0, len(stream)} | {p for p in places if p <= len(stream)}))]
