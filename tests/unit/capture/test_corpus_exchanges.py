"""Every case of the corpus leaves the record it must."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from unit.capture.driving import answer_messages, capture, corpus_cases, is_subset

if TYPE_CHECKING:
    from pathlib import Path

CASES = corpus_cases()


def cut_everywhere(bodies: list[bytes]) -> list[bytes]:
    whole = b"".join(bodies)
    return [whole[i : i + 3] for i in range(0, len(whole), 3)]


@pytest.mark.parametrize("durability", ["async", "write"])
@pytest.mark.parametrize("cut", [False, True], ids=["as-sent", "cut"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_record_is_the_expected_one(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, durability: str, cut: bool
) -> None:
    if "chunks_latin1" in case:
        bodies = [chunk.encode("latin-1") for chunk in case["chunks_latin1"]]
    else:
        bodies = [chunk.encode() for chunk in case["chunks"]]
    messages = answer_messages(
        cut_everywhere(bodies) if cut and any(bodies) else bodies,
        status=case["status"],
        content_type=case["content_type"],
        end=case["end"] == "complete",
    )
    record = capture(
        messages,
        tmp_path,
        monkeypatch,
        path=case["path"],
        request=json.dumps(case["request"]).encode(),
        DURABILITY=durability,
    )
    expected = case["expect"]
    if expected["response"] is None:
        assert list(record) == ["_dspark"]
    else:
        assert is_subset(expected["response"], record), record
    assert is_subset(expected["_dspark"], record["_dspark"]), record["_dspark"]
