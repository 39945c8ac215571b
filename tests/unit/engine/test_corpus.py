"""Every case of the corpus gives exactly its value, status and rescued data, through whole records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_support import choice_line, row

from dspark_json.engine import build_plan
from dspark_json.schema.jsonschema import from_json_schema

CORPUS = Path(__file__).parents[2] / "corpus"


def cases(name: str) -> list[Any]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


CASES = cases("content.jsonl")
RECORDS = cases("records.jsonl")
ROOT = "choices[0].parsed"


def relative(rescued: dict[str, Any]) -> dict[str, Any]:
    """Paths relative to ``parsed``, as the corpus writes them."""
    return {path.removeprefix(ROOT).removeprefix("."): value for path, value in rescued.items()}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_corpus(case: dict[str, Any]) -> None:
    plan = build_plan(content_type=from_json_schema(case["schema"]))
    made = row(choice_line(case["content"], case["finish_reason"]), plan)
    choice = made["choices"][0]
    rescued = None if made["_rescued_data"] is None else relative(json.loads(made["_rescued_data"]))
    assert (choice["parsed"], choice["parse_status"]) == (case["parsed"], case["status"])
    if case["rescued"] != "any":
        assert rescued == case["rescued"]


@pytest.mark.parametrize("case", RECORDS, ids=[case["id"] for case in RECORDS])
def test_what_is_rescued_of_whole_records(case: dict[str, Any]) -> None:
    tool = case["tool_schema"]
    plan = build_plan(
        content_type=from_json_schema(case["schema"]), tool_type=None if tool is None else from_json_schema(tool)
    )
    assert row(case["line"].encode() + b"\n", plan)["_rescued_data"] == case["rescued"]
