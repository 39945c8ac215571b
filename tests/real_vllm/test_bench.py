"""The load test and the sweep over speculation lengths on a real vLLM: what they tell of drafts is what it counted."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from real_vllm.server import COMMAND, DRAFT, SETTINGS, TELL_ACCEPTANCE, TINY, Vllm

from dspark_json.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    Json = dict[str, Any]

ANSWERS = 500
# JSON that the grammar allowed, or that ended with the last token it was given.
EXPECTED = {"ok", "truncated"}


def bench(capsys: pytest.CaptureFixture[str], *words: object) -> Json:
    assert main(["bench", *map(str, words), "--json"]) == 0
    document: Json = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def counted(server: Vllm) -> dict[str, float]:
    """The server's counters of drafts, by the last word of their names."""
    found = {}
    for line in httpx.get(f"{server.address}/metrics", trust_env=False).text.splitlines():
        name, _, value = line.rpartition(" ")
        for word in ("drafts", "draft_tokens", "accepted_tokens"):
            if name.startswith(f"vllm:spec_decode_num_{word}_total{{"):
                found[word] = float(value)
    return found


def test_acceptance_over_500_answers_is_what_the_server_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The model drafts for itself, so that much of it is accepted.
    draft = {"model": str(TINY), "method": "draft_model", "num_speculative_tokens": 3}
    with Vllm(tmp_path, [*TELL_ACCEPTANCE, "--speculative-config", json.dumps(draft)]) as server:
        before = counted(server)
        words = ("--requests", ANSWERS, "--warm-up", 0, "--max-tokens", 40)
        (found,) = bench(capsys, "serve", "--endpoint", server.address, *words)["servers"]
        grown = {name: value - before[name] for name, value in counted(server).items()}
    assert (found["answers"], found["failures"]) == (ANSWERS, {})
    assert found["parse_status"].keys() <= EXPECTED
    assert found["schema_valid"] == found["json_valid"] > 0
    assert found["acceptance"]["source"] == "answers"
    own, counters = found["acceptance"]["answers"], found["acceptance"]["counters"]
    assert own["told_by"] == ANSWERS
    assert grown["accepted_tokens"] > 100
    for told in (own, counters):
        assert told["draft_tokens"] == pytest.approx(grown["draft_tokens"], rel=0.01)
        assert told["accepted_tokens"] == pytest.approx(grown["accepted_tokens"], rel=0.01)
        assert told["rate"] == pytest.approx(grown["accepted_tokens"] / grown["draft_tokens"], rel=0.01)
        assert told["length"] == pytest.approx(1 + grown["accepted_tokens"] / grown["drafts"], rel=0.01)


def test_a_sweep_measures_each_length_with_a_grammar_and_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    speculation = {"model": DRAFT, "method": "draft_model", "num_speculative_tokens": "{k}"}
    dotted = " ".join(f"--speculative-config.{name} {value}" for name, value in speculation.items())
    command = f"{shlex.join(COMMAND)} --port {{port}} {shlex.join(TELL_ACCEPTANCE)} {dotted}"
    words = ("--lengths", "2,4,6", "--grammar", "on,off", "--requests", 20, "--blocks", 2, "--max-tokens", 60)
    document = bench(
        capsys, "spec-sweep", "--serve", command, *words, "--logs", tmp_path, "--markdown", tmp_path / "r.md"
    )
    assert [(one["length"], one["grammar"]) for one in document["results"]] == [
        (length, grammar) for length in (2, 4, 6) for grammar in ("on", "off")
    ]
    for result in document["results"]:
        assert (result["answers"], result["failures"]) == (20, {})
        assert result["output_tokens_per_second"] > 0
        assert result["acceptance"]["answers"]["told_by"] == 20
        if result["grammar"] == "on":
            assert result["parse_status"].keys() <= EXPECTED
        else:
            assert result["malformed"] == 1  # a random model writes no JSON by itself
    drafted = {one["length"]: one["acceptance"]["answers"] for one in document["results"] if one["grammar"] == "off"}
    for length, told in drafted.items():
        assert 0 < told["draft_tokens"] <= length * told["steps"]
    assert document["best"]["on"]["fastest"] in (2, 4, 6)
    assert "| 6 | off |" in (tmp_path / "r.md").read_text()
