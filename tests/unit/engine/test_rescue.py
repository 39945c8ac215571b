"""Rescued data is bounded: linear in the line, whatever stands in it, and nothing of it is lost."""

from __future__ import annotations

import json
from typing import Any

from engine_support import choice_line, line, parse, row
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dspark_json.engine import build_plan
from dspark_json.engine.json_spans import parse as spans_of
from dspark_json.engine.rescue import MAX_ENTRIES, MAX_PATH_BYTES, Path, Rescue
from dspark_json.engine.values import read, shape_of
from dspark_json.schema.ddl import from_ddl

MAPS = from_ddl("m MAP<STRING, ARRAY<BIGINT>>, l ARRAY<DOUBLE>, a BIGINT")
PLAN = build_plan(content_type=MAPS, tool_type=MAPS)

# A path's text is escaped once more as a name, and `": "` and `", "` are added; a byte that is no UTF-8 becomes three.
CONSTANT = 2 * MAX_PATH_BYTES + 8 * MAX_ENTRIES
FACTOR = 4


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def rescued(*lines: bytes) -> list[str | None]:
    found: list[str | None] = parse(lines, PLAN)[0].column("_rescued_data").to_pylist()
    return found


NAME = st.one_of(st.text(max_size=3), st.sampled_from(["it's", '"', "\\", "\x00", "é", "a b"]))
SIZE = st.sampled_from([0, 1, 3, 40, 999, 1001, 3000])


@given(
    choices=st.lists(st.tuples(NAME, SIZE, SIZE, SIZE), max_size=3),
    unknown=SIZE,
    deep=SIZE,
    name=NAME,
    is_call=st.booleans(),
)
@example(choices=[("K", 12_000, 3000, 0)], unknown=0, deep=0, name="", is_call=False)
@example(choices=[("'", 9_000, 3000, 0)], unknown=0, deep=0, name="", is_call=True)
@example(choices=[], unknown=0, deep=3000, name="'" * 3000, is_call=False)
@example(choices=[("", 3000, 20, 0)] * 60, unknown=0, deep=0, name="", is_call=False)
@settings(max_examples=40, deadline=None)
def test_rescued_data_is_linear_in_the_line_and_loses_nothing(
    choices: list[tuple[str, int, int, int]], unknown: int, deep: int, name: str, is_call: bool
) -> None:
    made: list[Any] = []
    for step, repeats, items, members in choices:
        content = compact({"m": {step * repeats: ["x"] * items}, **{f"{step}{i}": i for i in range(members)}})
        call = {"function": {"name": "f", "arguments": content}}
        made.append({"message": {"tool_calls": [call]} if is_call else {"content": content}})
    answer: dict[str, Any] = {"choices": made, **{f"{name}{i}": "y" for i in range(unknown)}}
    answer["usage"] = {"prompt_tokens_details": {"multimodal_tokens": {f"{name}{i}": "z" for i in range(deep)}}}
    one = line(compact(answer)[1:-1])
    (text,) = rescued(one)
    if text is None:
        return
    assert len(text.encode()) <= FACTOR * len(one) + CONSTANT
    assert text.count('"y"') == unknown
    assert text.count('"z"') == len({f"{name}{i}" for i in range(deep)})
    # Escaped in the text of a content, unless that is rescued as part of a member of the line.
    assert text.count('"x"') + text.count('\\"x\\"') == sum(items for _, _, items, _ in choices)
    names = [member for member, _ in spans_of(text.encode()).root.occurrences()]
    assert len(names) == len(set(names))


def test_a_flood_of_values_is_one_entry() -> None:
    content = '{"l":[' + ",".join(['"x"'] * 300_000) + "]}"
    batch, stats = parse([choice_line(content)], PLAN)
    assert batch.column("_rescued_data").to_pylist() == ['{"choices[0].parsed": ' + content + "}"]
    assert stats.mismatches == 300_000


def test_collecting_stops_once_a_bound_is_passed() -> None:
    rescue = Rescue()
    items = ",".join(["1"] * (MAX_ENTRIES + 500))
    read(spans_of(f"[{items}]".encode()).root, shape_of(from_ddl("ARRAY<BOOLEAN>")), None, rescue)
    assert rescue.passes_a_bound
    assert len(json.loads(rescue.text() or "")) == MAX_ENTRIES + 1
    assert rescue.mismatches == MAX_ENTRIES + 500


def test_neither_columns_nor_statuses_nor_counts_depend_on_the_bounds() -> None:
    known = {"m": {"k": [1, "x"]}, "a": 5}
    flood = {f"u{i}": i for i in range(MAX_ENTRIES + 1)}
    batch, stats = parse([choice_line(compact({**known, "u": 1})), choice_line(compact({**flood, **known}))], PLAN)
    few, many = batch.to_pylist()
    assert [one["choices"][0]["parse_status"] for one in (few, many)] == ["mismatch", "mismatch"]
    assert few["choices"][0]["parsed"] == many["choices"][0]["parsed"]
    assert stats.mismatches == 2


def test_unknown_members_that_are_not_kept_are_not_counted() -> None:
    plan = build_plan(content_type=MAPS, rescue_unknown=False)
    content = {**{f"u{i}": i for i in range(MAX_ENTRIES + 1)}, "a": "x"}
    assert row(choice_line(compact(content)), plan)["_rescued_data"] == '{"choices[0].parsed.a": "x"}'


def test_a_record_whose_contents_are_small_keeps_every_value() -> None:
    (text,) = rescued(choice_line(compact({"l": ["x"] * MAX_ENTRIES})))
    assert list(json.loads(text or "")) == [f"choices[0].parsed.l[{i}]" for i in range(MAX_ENTRIES)]


@given(st.lists(st.lists(NAME, min_size=1, max_size=3), min_size=2, max_size=2))
@settings(max_examples=200, deadline=None)
def test_two_places_never_have_one_path(places: list[list[str]]) -> None:
    def path(names: list[str]) -> str:
        place: Path | None = Path(None, "choices")
        for name in names:
            place = Path(place, name)
        return str(place)

    first, second = places
    assert (path(first) == path(second)) == (first == second)
    joined = ["']['".join(["!", *first])]
    assert path(["!", *first]) != path(joined)
