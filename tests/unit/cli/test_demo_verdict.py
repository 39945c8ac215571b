"""The demo's judgement of its table."""

from __future__ import annotations

from dspark_json.cli.demo.verdict import Verdict


def verdict(rows: list[tuple[int, str | None]], received: list[str], *, records: int, alone: bool = True) -> Verdict:
    table = [(("spool", "0000", seq), answer_id) for seq, answer_id in rows]
    return Verdict.of(table, received, requests=2, records=records, seconds=1.234, alone=alone)


def test_each_answer_once_is_right() -> None:
    found = verdict([(0, "a"), (1, "b")], ["a", "b"], records=2)
    assert found.agrees
    assert found.document() == {
        "requests": 2, "records": 2, "delta_rows": 2, "duplicates": 0, "missing": 0, "seconds": 1.23
    }  # fmt: skip


def test_the_same_record_twice_is_a_duplicate() -> None:
    found = verdict([(0, "a"), (1, "b"), (1, "b")], ["a", "b"], records=2)
    assert (found.duplicates, found.agrees) == (1, False)


def test_the_same_answer_in_two_records_is_a_duplicate() -> None:
    found = verdict([(0, "a"), (1, "b"), (2, "b")], ["a", "b"], records=3, alone=False)
    assert (found.duplicates, found.agrees) == (1, False)


def test_an_answer_that_a_client_has_and_the_table_lacks_is_missing() -> None:
    found = verdict([(0, "a"), (1, None)], ["a", "b"], records=2)
    assert (found.missing, found.agrees) == (1, False)


def test_a_request_without_an_answer_is_not_right() -> None:
    found = verdict([(0, "a"), (1, "b")], ["a"], records=2)
    assert (found.failed, found.agrees) == (1, False)


def test_rows_of_other_clients_are_fine_only_where_there_may_be_some() -> None:
    rows = [(0, "a"), (1, "b"), (2, "c")]
    assert not verdict(rows, ["a", "b"], records=3).agrees
    assert verdict(rows, ["a", "b"], records=3, alone=False).agrees
