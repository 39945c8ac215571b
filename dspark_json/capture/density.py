"""Answers that are small on the wire and huge as objects: told by their bytes, before anything is made of them.

An answer of 64 MiB that is one empty list behind the other, a million choices, or lines that hold nothing, would take
gigabytes of the serving process and minutes of its time. What text is made of hardly counts; what becomes an object of
its own does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dspark_json.capture.captured import TOO_LARGE, is_event_stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dspark_json.capture.captured import Captured
    from dspark_json.capture.pacing import Pacer

# Below this size even the worst answer costs less than a large plain one.
_HARMLESS_BYTES: Final = 1 << 20
# About what CPython takes for what stands behind one of these bytes: an item, a member, a line.
_COSTS: Final = ((b"{", 90), (b"[", 90), (b",", 90), (b":", 120), (b"\n", 85), (b"\r", 85))
# A plain stream of short events comes to thirteen times its size, most of it let go event by event.
_MOST_COST_RATIO: Final = 16
_GROUP_BYTES: Final = 64 << 10
# Control characters are written with six bytes; text has few of them.
_CONTROLS: Final = bytes(range(32)).translate(None, b"\t\n\r")
_MOST_CONTROLS: Final = 1 / 8


def let_go_if_dense(captured: Captured, max_record: int, pacer: Pacer) -> None:
    """Let go of the bytes of an answer that would cost too much; it counts as too large a one."""
    if captured.missing is None and _costs_too_much(captured, max_record, pacer):
        captured.missing, captured.body = TOO_LARGE, []


def _costs_too_much(captured: Captured, max_record: int, pacer: Pacer) -> bool:
    """Whether putting an answer together could take more than sixteen times ``max_record`` (bytes) of memory."""
    if captured.size <= _HARMLESS_BYTES:
        return False
    if not is_event_stream(captured.headers):
        controls = 0
        for text in _grouped(captured.body):
            controls += len(text) - len(text.translate(None, _CONTROLS))
            pacer.tick()
        return controls > _MOST_CONTROLS * captured.size
    cost = 0
    for text in _grouped(captured.body):
        cost += sum(each * text.count(byte) for byte, each in _COSTS)
        pacer.tick()
        if cost > _MOST_COST_RATIO * max_record:
            return True
    return False


def _grouped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are neither tiny nor huge."""
    group: list[bytes] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part)
        if size >= _GROUP_BYTES:
            whole = memoryview(b"".join(group))
            for start in range(0, size, _GROUP_BYTES):
                yield bytes(whole[start : start + _GROUP_BYTES])
            group, size = [], 0
    yield b"".join(group)
