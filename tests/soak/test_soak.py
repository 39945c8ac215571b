"""Every answer that a client has lands once, whoever is killed meanwhile; the long form is ``make soak``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from soak.clients import Account, Whole
from soak.run import Plan, soak
from soak.verdict import failures, judge_memory, judge_table

if TYPE_CHECKING:
    from pathlib import Path

    from soak.verdict import Table

STEADY = 2


def test_every_answer_lands_once_while_clients_leave_and_servers_and_readers_are_killed(tmp_path: Path) -> None:
    outcome = soak(Plan(seconds=20, seed=20, pause=4), tmp_path)
    told = "\n".join(outcome.lines())
    assert outcome.failures == [], told
    assert min(outcome.kills["servers"], outcome.kills["readers"]) > 0, told
    assert len(outcome.account.whole) > 500, told
    assert outcome.account.streamed > 100, told
    assert outcome.account.left, told
    assert {table.rows for table in outcome.tables.values()} == {outcome.tables["steady reader"].rows}, told


def row(request: str, seq: int, **changed: Any) -> dict[str, Any]:
    told = {"id": f"id-{request}", "status": 200, "completed": True, "disconnected": False}
    return {"request_id": request, "lane": "0000", "seq": seq, **told, **changed}


def judged(*rows: dict[str, Any], end: int = 2, left: dict[str, int] | None = None) -> Table:
    account = Account(whole={name: Whole(f"id-{name}", 200) for name in ("a", "b")}, left=left or {})
    return judge_table(rows, account, {"0000": end}, STEADY)


def test_a_table_with_each_answer_once_is_right() -> None:
    assert judged(row("a", 0), row("b", 1)).problems() == {}
    assert judged(row("a", 0), row("b", 1), row("c", 2), end=3, left={"c": STEADY, "d": 0}).problems() == {}


def test_what_is_lost_doubled_or_other_than_received_is_found() -> None:
    assert judged(row("a", 0), end=1).lost == ["b"]
    assert judged(row("a", 0), row("b", 1), left={"c": STEADY}).lost_of_left == ["c"]
    assert judged(row("a", 0), row("b", 1), row("b", 2), end=3).twice == ["b"]
    assert judged(row("a", 0), row("b", 1), row("c", 1)).twice == ["0000/1"]
    assert judged(row("a", 0), row("b", 2), end=3).holes == ["0000/1"]
    assert judged(row("a", 0), row("b", 1, lane="0001"), end=1).holes == ["lane 0001"]
    for changed in ({"id": "other"}, {"disconnected": True}, {"completed": False}, {"status": 500}):
        assert len(judged(row("a", 0), row("b", 1, **changed)).wrong) == 1


def test_counters_errors_of_readers_growing_memory_and_bad_log_lines_fail_a_soak() -> None:
    assert failures({}, {}, {"records": 3}, {"DSPARK_JSON_ENDPOINT_UNREACHABLE": 2}, []) == []
    growing = judge_memory([30.0] * 100 + [60.0] * 100, 600)
    assert not growing.is_flat
    assert judge_memory([10.0] * 10 + [30.0, 31.0] * 95, 600).is_flat
    found = failures({}, {"server": growing}, {"unrecorded_answers": 1}, {"DSPARK_JSON_DATA_LOSS": 1}, ["lost"])
    assert len(found) == 4
