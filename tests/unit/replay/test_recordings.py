"""The packaged recordings, and how they are given out."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from dspark_json.capture.endpoints import CHAT, COMPLETIONS, COVERED, RESPONSES
from dspark_json.replay.recording import (
    ID_PREFIXES,
    MAX_FIRST_TOKEN_SEC,
    ROUTES,
    Pacing,
    Recording,
    Traits,
    packaged_recordings,
    packaged_request,
)
from dspark_json.replay.selection import Repertoire

RECORDINGS = packaged_recordings()


def objects(parts: list[bytes]) -> list[dict[str, Any]]:
    datas = [json.loads(part[part.index(b"{") :]) for part in parts]
    return [data.get("response", data) for data in datas]


def request_traits(name: str) -> Traits:
    request = packaged_request(name)
    return Traits.of(next(path for path, member in ROUTES.items() if member in request), request)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_a_replayed_answer_has_its_own_id_and_time_in_every_part_and_else_the_recorded_bytes(
    recording: Recording,
) -> None:
    new_id = ID_PREFIXES[recording.traits.path] + "0123456789abcdef"
    parts = recording.render(new_id, 1_900_000_000)
    assert [len(part) for part in parts] == [len(part) for part in recording.parts]
    created = "created_at" if recording.traits.path == RESPONSES else "created"
    for recorded, replayed in zip(objects(list(recording.parts)), objects(parts), strict=True):
        if created in recorded:  # an event of a response may be about one of its items
            assert replayed.pop("id") == new_id
            assert replayed.pop(created) == 1_900_000_000
            del recorded["id"], recorded[created]
        if "chatcmpl-tool-" not in json.dumps(recorded) and "msg_" not in json.dumps(recorded):
            assert replayed == recorded


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_every_route_has_recordings_of_both_kinds(path: str, *, stream: bool) -> None:
    assert set(ROUTES) == COVERED
    assert any(one.traits.path == path and one.traits.stream is stream for one in RECORDINGS)


def test_tool_calls_get_new_ids_the_same_in_all_events_of_an_answer() -> None:
    recording = next(r for r in RECORDINGS if r.name == "chat_tools_required")
    ids = [
        call["id"]
        for _ in range(2)
        for answer in objects(recording.render("chatcmpl-0123456789abcdef", 1))
        for call in answer["choices"][0]["message"]["tool_calls"]
    ]
    assert len(set(ids)) == len(ids)


def test_a_cold_servers_first_token_is_not_waited_for_again() -> None:
    assert Pacing.recorded({"time_to_first_token_ms": 22451.6, "mean_itl_ms": 6.5}).first == MAX_FIRST_TOKEN_SEC
    assert all(recording.pacing.first <= MAX_FIRST_TOKEN_SEC for recording in RECORDINGS)


@pytest.mark.parametrize(
    "name",
    [
        *("stream_order_usage", "stream_n2", "chat_risk", "chat_tools_named", "chat_logprobs"),
        *("stream_completions_two_prompts", "completions_json", "stream_responses", "responses_plain"),
    ],
)
def test_a_recorded_request_is_answered_by_a_recording_of_the_same_kind(name: str) -> None:
    wanted = request_traits(name)
    assert all(recording.traits == wanted for recording in Repertoire(RECORDINGS).fitting(wanted))


def test_an_unknown_schema_is_answered_by_some_structured_answer() -> None:
    request = {"response_format": {"type": "json_schema", "json_schema": {"name": "never_seen", "schema": {}}}}
    assert Repertoire(RECORDINGS).pick(Traits.of(CHAT, request)).traits.kind == "json_schema"


def test_equally_fitting_recordings_take_turns() -> None:
    repertoire = Repertoire(RECORDINGS)
    wanted = request_traits("chat_order")
    fitting = repertoire.fitting(wanted)
    assert len(fitting) > 40
    assert [repertoire.pick(wanted).name for _ in range(2 * len(fitting))] == [r.name for r in fitting] * 2


def test_the_packaged_recordings_stay_small() -> None:
    folder = resources.files("dspark_json.replay").joinpath("recordings")
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 600_000
