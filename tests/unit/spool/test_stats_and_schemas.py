from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from spool_support import lane_of, records, settings

from dspark_json.spool.reader import SpoolReader
from dspark_json.spool.schema_uses import SchemaUse, SchemaUses, load_schema_uses, sum_schema_uses
from dspark_json.spool.schemas import MAX_BYTES, MAX_SCHEMAS, SchemaStore
from dspark_json.spool.stats import Counters, load_counters, save_counters, sum_counters
from dspark_json.spool.writer import LaneWriter

if TYPE_CHECKING:
    from pathlib import Path


def test_counting_from_many_threads_loses_nothing() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(5_000):
            counters.add("records")
            counters.add("bytes", 3)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.snapshot() == {"records": 20_000, "bytes": 60_000}
    assert counters.get("never_met") == 0


def test_a_restarted_writer_goes_on_with_the_counts_of_its_lane(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append(records(0, 7))
        writer.counters.add("dropped_records", 2)
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert writer.counters.get("records") == 7
        writer.append(records(7, 10))
        writer.maintain()
        assert json.loads((lane_of(tmp_path) / "stats.json").read_text())["records"] == 10
    size = sum(path.stat().st_size for path in lane_of(tmp_path).glob("*.ndjson"))
    assert load_counters(lane_of(tmp_path)).snapshot() == {"records": 10, "bytes": size, "dropped_records": 2}


def test_the_sum_is_over_all_lanes_with_a_writer_or_without(tmp_path: Path) -> None:
    writers = [LaneWriter.open(tmp_path, settings()) for _ in range(3)]
    for number, writer in enumerate(writers):
        writer.append(records(0, number + 1))
        writer.maintain()
    writers[1].close()
    assert sum_counters(tmp_path)["records"] == 6
    for writer in writers:
        writer.close()
    assert sum_counters(tmp_path / "absent") == {}


def test_broken_counters_of_a_lane_count_as_none(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"records": "x", "bytes": true, "errors": 3}'):
        (tmp_path / "stats.json").write_text(text)
        assert load_counters(tmp_path).snapshot() == ({"errors": 3} if "errors" in text else {})


def test_counters_are_replaced_whole_and_leave_no_other_file(tmp_path: Path) -> None:
    save_counters(tmp_path, Counters({"b": 1, "a": 2}))
    assert (tmp_path / "stats.json").read_text() == '{"a":2,"b":1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["stats.json"]


def test_a_schema_is_kept_once_under_its_hash(tmp_path: Path) -> None:
    store = SchemaStore(tmp_path)
    assert store.list() == ()
    assert store.put("b1", {"name": "order", "schema": {"type": "object"}, "first_seen": 5})
    assert store.put("a1", {"name": "risk"})
    assert store.put("b1", {"name": "something else"})
    assert SchemaStore(tmp_path).put("b1", {"name": "something else"})
    found = SchemaStore(tmp_path).list()
    assert [(stored.hash, stored.document["name"]) for stored in found] == [("a1", "risk"), ("b1", "order")]
    assert sorted(path.name for path in (tmp_path / "schemas").iterdir()) == ["a1.json", "b1.json"]
    assert (tmp_path / "schemas" / "a1.json").stat().st_mode & 0o777 == 0o600


def test_beyond_a_thousand_schemas_more_are_refused_and_known_ones_are_not(tmp_path: Path) -> None:
    store = SchemaStore(tmp_path)
    assert all(store.put(f"h{number}", {}) for number in range(MAX_SCHEMAS))
    assert not store.put("one-more", {})
    assert store.put("h7", {})
    assert SchemaStore(tmp_path).put("h7", {})


def test_files_that_are_no_schemas_are_left_out(tmp_path: Path) -> None:
    store = SchemaStore(tmp_path)
    store.put("good", {"name": "x"})
    (tmp_path / "schemas" / "broken.json").write_text("{")
    (tmp_path / "schemas" / "list.json").write_text("[]")
    (tmp_path / "schemas" / "note.txt").write_text("mine")
    assert [stored.hash for stored in store.list()] == ["good"]


def test_threads_that_put_the_same_schema_leave_one_whole_file(tmp_path: Path) -> None:
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(SchemaStore(tmp_path).put("same", {"name": "x"})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
    assert [path.name for path in (tmp_path / "schemas").iterdir()] == ["same.json"]


def test_schemas_of_more_than_16_mib_in_all_are_refused(tmp_path: Path) -> None:
    store = SchemaStore(tmp_path)
    document = {"schema": "x" * (1 << 20)}
    kept = [store.put(f"h{number}", document) for number in range(20)]
    assert kept == [True] * 15 + [False] * 5
    assert sum(path.stat().st_size for path in (tmp_path / "schemas").iterdir()) <= MAX_BYTES
    assert store.put("small", {})


def test_a_restarted_writer_goes_on_with_the_uses_of_schemas(tmp_path: Path) -> None:
    for at in (7, 5):
        with LaneWriter.open(tmp_path, settings()) as writer:
            writer.append(records(0, 1))
            writer.schema_uses.add("b1", at)
            writer.schema_uses.add("a1", at)
            writer.maintain()
            writer.schema_uses.add("a1", at + 10)
    stats = json.loads((lane_of(tmp_path) / "stats.json").read_text())
    assert stats["schemas"] == {"a1": {"count": 4, "last_used": 17}, "b1": {"count": 2, "last_used": 7}}
    assert sum_counters(tmp_path)["records"] == 2
    assert "schemas" not in sum_counters(tmp_path)


def test_documents_are_listed_with_the_uses_of_all_lanes(tmp_path: Path) -> None:
    writers = [LaneWriter.open(tmp_path, settings()) for _ in range(3)]
    assert SpoolReader(tmp_path).schemas() == []
    store = SchemaStore(tmp_path)
    store.put("b1", {"hash": "b1", "name": "order"})
    store.put("a1", {"name": "risk", "hash": "forged"})
    for number, writer in enumerate(writers):
        writer.schema_uses.add("b1", 10 - number)
        writer.close()
    assert SpoolReader(tmp_path).schemas() == [
        {"name": "risk", "hash": "a1", "count": 0, "last_used": 0},
        {"hash": "b1", "name": "order", "count": 3, "last_used": 10},
    ]
    assert sum_schema_uses(tmp_path, but="0001") == {"b1": SchemaUse(2, 10)}
    assert sum_schema_uses(tmp_path / "absent") == {}


def test_broken_uses_of_schemas_count_as_none(tmp_path: Path) -> None:
    good = {"count": 1, "last_used": 2}
    broken: list[object] = [[], "x", {"a": 1}, {"a": {"count": "1", "last_used": 2}}, {"a": {"count": 1}}, {"a": None}]
    for schemas in broken:
        (tmp_path / "stats.json").write_text(json.dumps({"records": 1, "schemas": schemas}))
        assert load_schema_uses(tmp_path).snapshot() == {}
    (tmp_path / "stats.json").write_text(json.dumps({"schemas": {"a": None, "b": good}}))
    assert load_schema_uses(tmp_path).snapshot() == {"b": SchemaUse(1, 2)}


def test_counting_uses_from_many_threads_loses_nothing() -> None:
    uses = SchemaUses()

    def use() -> None:
        for at in range(3_000):
            uses.add("a", at)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert uses.snapshot() == {"a": SchemaUse(12_000, 2_999)}


def test_files_that_are_nested_too_deeply_count_as_broken(tmp_path: Path) -> None:
    with LaneWriter.open(tmp_path, settings()) as writer:
        writer.append(records(0, 2))
    deep = "[" * 200_000
    (lane_of(tmp_path) / "stats.json").write_text(deep)
    SchemaStore(tmp_path).put("good", {"name": "a"})
    (tmp_path / "schemas" / "deep.json").write_text(deep)
    assert sum_counters(tmp_path) == {}
    assert sum_schema_uses(tmp_path) == {}
    assert [schema.hash for schema in SchemaStore(tmp_path).list()] == ["good"]
    with LaneWriter.open(tmp_path, settings()) as writer:
        assert (writer.lane, writer.counters.snapshot()) == ("0000", {})
