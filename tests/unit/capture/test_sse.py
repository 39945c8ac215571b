"""Server-sent events are split as the standard says, wherever the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_json.capture.sse import DoneDetector, EventSplitter, LastEventDetector


def split(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    rest = splitter.finish()
    return events if rest is None else [*events, rest]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": ping\n\ndata: a\n: in between\n\n", [b"a"]),
        (b"event: x\nid: 7\nretry: 3\ndata: a\n\n", [b"a"]),
        (b"dat: a\n\ndatax: b\n\n", []),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: never ended", [b"a", b"never ended"]),
        (b"data: a\n\ndata: one line\n", [b"a", b"one line"]),
        (b"", []),
    ],
)
def test_events_are_split_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert split(stream) == events
    assert split(*(stream[i : i + 1] for i in range(len(stream)))) == events


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cuts_change_nothing(data: st.DataObject) -> None:
    lines = st.sampled_from([b"data: x", b"data:y", b": c", b"", b"event: e", b"data", b"\xe6\x97\xa5data: z"])
    ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
    stream = b"".join(line + end for line, end in data.draw(st.lists(st.tuples(lines, ends), max_size=12)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)) | {0, len(stream)})
    assert split(*(stream[a:b] for a, b in pairwise(cuts))) == split(stream)


@pytest.mark.parametrize("line", [b"data: [DONE]", b"data:[DONE]"])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b""])
@pytest.mark.parametrize("before", [b"", b"data: {}\n\n", b"data: {}\r\r"])
def test_the_message_that_completes_the_done_line_is_found_wherever_it_is_cut(
    before: bytes, line: bytes, end: bytes
) -> None:
    stream = before + line + end
    completes_at = len(before + line)
    for cut in range(1, len(stream)):
        detector = DoneDetector()
        first = detector.seen_in(stream[:cut])
        assert first is (cut >= completes_at)
        if not first:
            assert detector.seen_in(stream[cut:])
    detector = DoneDetector()
    assert [detector.seen_in(stream[i : i + 1]) for i in range(completes_at)].index(True) == completes_at - 1


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"content":"data: [DONE]"}\n\n',
        b'data: {"content":"\\ndata: [DONE]\\n"}\n\n',
        b": data: [DONE]\n\n",
        b"data: [DONE]!\n\n",
        b"xdata: [DONE]\n\n",
        b"data: [DONE\n]\n\n",
    ],
)
def test_done_inside_something_else_is_not_the_end(body: bytes) -> None:
    assert not DoneDetector().seen_in(body)
    detector = DoneDetector()
    pieces = [body[i : i + 5] for i in range(0, len(body), 5)]
    if b"]!" not in body:  # cut right after the bracket it can't be told apart
        assert not any(detector.seen_in(piece) for piece in pieces)


DATA = b'{"response":{"id":"r"},"sequence_number":7,"type":"response.%s"}'
LAST_EVENTS = [
    b"event: response.completed\ndata: {}\n\n",
    b"event:response.incomplete\r\ndata: {}\r\n\r\n",
    b"event: response.failed\rdata: {}\r\r",
    b"data: " + DATA % b"completed" + b"\n\n",
    b'data: {"type": "response.failed", "response": {}}\n\n',
    b'data: {"type":"response.completed"}\n\n',
]


@pytest.mark.parametrize("event", LAST_EVENTS)
@pytest.mark.parametrize("before", [b"", b"event: response.created\ndata: {}\n\n"])
def test_the_message_that_completes_the_last_event_is_found_wherever_it_is_cut(before: bytes, event: bytes) -> None:
    stream = before + event
    for cut in range(1, len(stream) + 1):
        detector = LastEventDetector()
        first = detector.seen_in(stream[:cut])
        assert first is (cut == len(stream))
        if not first:
            assert detector.seen_in(stream[cut:])
    detector = LastEventDetector()
    assert [detector.seen_in(stream[i : i + 1]) for i in range(len(stream))].index(True) == len(stream) - 1


@pytest.mark.parametrize(
    "body",
    [
        b'event: response.output_text.delta\ndata: {"delta":"event: response.completed"}\n\n',
        b'event: response.output_text.delta\ndata: {"delta":"\\nevent: response.completed\\n"}\n\n',
        b"event: response.completed_later\ndata: {}\n\n",
        b": event: response.completed\n\n",
        b'event: response.created\ndata: {"response":{"metadata":{"type":"response.completed"}}}\n\n',
        b'event: response.created\ndata: {"response":{"metadata":{"a":1,"type":"response.completed"}},"n":1}\n\n',
        b'data: {"delta":"{\\"type\\":\\"response.completed\\"}"}\n\n',
        b"event: response.in_progress\ndata: {}\n\ndata: [DONE]\n\n",
    ],
)
def test_the_name_of_a_last_event_inside_something_else_is_not_the_end(body: bytes) -> None:
    assert not LastEventDetector().seen_in(body)
    detector = LastEventDetector()
    assert not any(detector.seen_in(body[i : i + 5]) for i in range(0, len(body), 5))
