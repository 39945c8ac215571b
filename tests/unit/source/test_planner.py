"""The planner over real spool folders."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from unit.source.spools import ALL, expire, labels, lanes_of, planner, record, replace, settings, write, writer

from dspark_json.errors import DataLossError, InvalidOptionError, OffsetError, SpoolNotFoundError, SpoolPermissionError
from dspark_json.source.admission import ReadLimits
from dspark_json.source.planner import Planner
from dspark_json.source.transport import open_folder
from dspark_json.spool.layout import pack_header
from dspark_json.spool.writer import LaneWriter, WriterSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# -- where a stream begins --------------------------------------------------------------------------------------------


def test_earliest_begins_at_the_first_record_kept(folder: Path) -> None:
    spool_id = write(folder, 30, 3)
    first = expire(folder)
    assert first > 0
    start = planner(folder).initial()
    assert lanes_of(start, spool_id) == {"0000": first, "0001": 0}
    assert start["spools"][spool_id]["endpoint"] == str(folder)


def test_latest_begins_at_the_end_and_reads_what_comes_later(folder: Path) -> None:
    spool_id = write(folder, 5)
    plan = planner(folder, startingOffsets="latest")
    start = plan.initial()
    assert lanes_of(start, spool_id) == {"0000": 5}
    write(folder, 2)
    noted = plan.latest(start, ALL)
    assert plan.plan(start, noted) == []
    end = plan.latest(noted, ALL)
    assert labels(plan, noted, end) == ["0000:5", "0000:6"]


def test_latest_killed_in_its_first_micro_batch_loses_nothing(folder: Path) -> None:
    write(folder, 5)
    plan = planner(folder, startingOffsets="latest")
    noted = plan.latest(plan.initial(), ALL)  # in the checkpoint now; the process dies here
    write(folder, 2)
    again = planner(folder, startingOffsets="latest")
    assert again.plan(again.initial(), noted) == []
    assert labels(again, noted, again.latest(noted, ALL)) == ["0000:5", "0000:6"]


@pytest.mark.parametrize("records", [(0,), (3, 0), ()], ids=["an empty lane", "one of two lanes empty", "no lane"])
def test_latest_killed_in_its_first_micro_batch_loses_nothing_of_empty_lanes(
    folder: Path, records: tuple[int, ...]
) -> None:
    write(folder, *records or (0,))
    if not records:
        shutil.rmtree(folder / "lanes" / "0000")
    plan = planner(folder, startingOffsets="latest")
    at = start = plan.initial()
    write(folder, 2, 2)  # between the beginning and the first look
    log = []
    for _ in range(2):  # each is in the checkpoint; the process dies while the last one runs
        at = plan.latest(at, ALL)
        log.append(at)
    again = planner(folder, startingOffsets="latest")
    assert again.plan(start, log[0]) == again.plan(again.initial(), log[0]) == []
    numbers = [f"{lane}:{first + i}" for lane, first in (("0000", (records or (0,))[0]), ("0001", 0)) for i in range(2)]
    assert labels(again, log[0], log[1]) == numbers
    assert again.latest(log[1], ALL) is log[1]


def test_latest_without_any_record_notes_its_beginning_once(folder: Path) -> None:
    write(folder, 0)
    plan = planner(folder, startingOffsets="latest")
    noted = plan.latest(plan.initial(), ALL)
    assert plan.plan(plan.initial(), noted) == []
    assert plan.latest(noted, ALL) is noted


def test_a_timestamp_in_the_future_is_refused_at_the_first_start_alone(folder: Path) -> None:
    spool_id = write(folder, 2)
    late = planner(folder, startingTimestamp="2100-01-01T00:00:00Z")
    start = late.initial()
    with pytest.raises(InvalidOptionError, match="in the future by the clock of this machine"):
        late.latest(start, ALL)
    soon = planner(folder, startingTimestamp=str(time.time_ns() // 1_000_000 + 1_000))  # clocks differ
    assert lanes_of(soon.initial(), spool_id) == {"0000": 2}
    assert soon.latest(soon.initial(), ALL) is soon.initial()
    begun = planner(folder).initial()
    again = planner(folder, startingTimestamp="2100-01-01T00:00:00Z")
    assert labels(again, begun, again.latest(begun, ALL)) == ["0000:0", "0000:1"]


def test_a_batch_from_the_future_is_empty(folder: Path) -> None:
    write(folder, 2)
    batch = planner(folder, startingTimestamp="2100-01-01T00:00:00Z")
    assert batch.plan(batch.initial(), batch.everything()) == []


def test_a_timestamp_begins_at_the_first_record_written_then_or_later(folder: Path) -> None:
    now = 1_000_000_000
    lane = LaneWriter.open(folder, WriterSettings(min_free_ratio=0.0), clock=lambda: now)
    for _ in range(5):
        now += 1_000_000
        lane.append([record("x")])
    spool_id = lane.spool_id
    lane.close()
    assert lanes_of(planner(folder, startingTimestamp="1003000").initial(), spool_id) == {"0000": 2}
    assert lanes_of(planner(folder, startingTimestamp="1002001").initial(), spool_id) == {"0000": 2}
    assert lanes_of(planner(folder, startingTimestamp="9999999").initial(), spool_id) == {"0000": 5}
    both = planner(folder, startingTimestamp="1003000", startingOffsets="latest")
    assert lanes_of(both.initial(), spool_id) == {"0000": 2}


def test_json_offsets_begin_where_they_say_and_other_lanes_at_their_first_record(folder: Path) -> None:
    spool_id = write(folder, 5, 5)
    text = json.dumps({"v": 1, "spools": {spool_id: {"lanes": {"0001": {"next": 3}}}}})
    assert lanes_of(planner(folder, startingOffsets=text).initial(), spool_id) == {"0000": 0, "0001": 3}


def test_json_offsets_that_name_what_is_not_there_are_named_errors(folder: Path) -> None:
    spool_id = write(folder, 30)
    first = expire(folder)

    def begin(spool: str, lane: str, number: int) -> None:
        text = json.dumps({"v": 1, "spools": {spool: {"lanes": {lane: {"next": number}}}}})
        planner(folder, startingOffsets=text).initial()

    with pytest.raises(OffsetError, match="other-id") as caught:
        begin("other-id", "0000", 20)
    assert spool_id in str(caught.value)
    with pytest.raises(OffsetError, match="lane 0007"):
        begin(spool_id, "0007", 20)
    with pytest.raises(OffsetError, match=f"Records {first} to 30"):
        begin(spool_id, "0000", first - 1)
    with pytest.raises(OffsetError, match="record 31"):
        begin(spool_id, "0000", 31)
    begin(spool_id, "0000", 30)


def test_the_beginning_stays_the_same_for_the_life_of_a_planner(folder: Path) -> None:
    write(folder, 1)
    plan = planner(folder, startingOffsets="latest")
    start = plan.initial()
    write(folder, 4)
    assert plan.initial() is start


def test_a_folder_without_a_spool_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(SpoolNotFoundError, match="nothing-here"):
        planner(tmp_path / "nothing-here").initial()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without the permission")
def test_a_folder_that_may_not_be_opened_is_a_named_error() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm")) / "spool"
    folder.parent.chmod(0o755)
    spool_id = write(folder, 1)
    os.seteuid(65534)
    try:
        with pytest.raises(SpoolPermissionError, match=str(folder)):
            planner(folder).initial()
        reader, reason = open_folder(str(folder), spool_id)
    finally:
        os.seteuid(0)
        shutil.rmtree(folder.parent)
    assert reader is None
    assert "DSPARK_JSON_SPOOL_PERMISSION" in reason


# -- how far it goes --------------------------------------------------------------------------------------------------


def test_where_nothing_is_new_the_very_object_is_returned(folder: Path) -> None:
    write(folder, 3)
    plan = planner(folder)
    end = plan.latest(plan.initial(), ALL)
    assert plan.latest(end, ALL) is end
    assert plan.plan(end, end) == []


def test_a_change_of_seen_alone_is_not_new(folder: Path) -> None:
    spool_id = write(folder, 3)
    start = {"spools": {spool_id: {"endpoint": str(folder), "lanes": {"0000": {"next": 3, "seen": 2}}}}, "v": 1}
    assert planner(folder).latest(start, ALL) is start


def test_limits_are_shared_among_lanes_and_the_end_is_reached(folder: Path) -> None:
    spool_id = write(folder, 9, 3)
    plan = planner(folder)
    start = plan.initial()
    end = plan.latest(start, ReadLimits(4))
    assert lanes_of(end, spool_id) == {"0000": 3, "0001": 1}
    assert end["spools"][spool_id]["lanes"]["0000"] == {"next": 3, "seen": 9}
    for _ in range(2):
        end = plan.latest(end, ReadLimits(4))
    assert lanes_of(end, spool_id) == {"0000": 9, "0001": 3}
    assert plan.latest(end, ReadLimits(4)) is end


def test_a_byte_limit_is_measured_by_the_index(folder: Path) -> None:
    write(folder, 50, size=100)
    plan = planner(folder)
    at, batches = plan.initial(), 0
    while (end := plan.latest(at, ReadLimits(max_bytes=1000))) is not at:
        splits = plan.plan(at, end)
        size = sum(stop for split in splits for stop in [_bytes(folder, split.lane, split.start, split.stop)])
        assert size <= 1000
        at, batches = end, batches + 1
    assert batches == 9  # 50 records of about 165 bytes, 6 in 1,000 bytes


def _bytes(folder: Path, lane: str, start: int, stop: int) -> int:
    from dspark_json.spool.reader import SpoolReader

    return int(SpoolReader(folder).index(lane, start, stop).ends[-1])


def test_lanes_that_appear_later_begin_at_record_zero(folder: Path) -> None:
    first = writer(folder)
    first.append([record("0000:0")])
    plan = planner(folder, startingOffsets="latest")
    start = plan.latest(plan.initial(), ALL)
    second = writer(folder)
    second.append([record("0001:0"), record("0001:1")])
    first.close()
    second.close()
    end = plan.latest(start, ALL)
    assert labels(plan, start, end) == ["0001:0", "0001:1"]
    assert labels(planner(folder), start, end) == ["0001:0", "0001:1"]


def test_min_partitions_cuts_lanes(folder: Path) -> None:
    write(folder, 10, 2)
    plan = planner(folder, minPartitions="6")
    start = plan.initial()
    end = plan.latest(start, ALL)
    assert len(plan.plan(start, end)) == 6
    assert labels(plan, start, end) == [f"0000:{i}" for i in range(10)] + ["0001:0", "0001:1"]


def test_a_batch_reads_what_was_there_when_it_was_planned(folder: Path) -> None:
    write(folder, 2)
    plan = planner(folder)
    start = plan.initial()
    write(folder, 2)
    assert labels(plan, start, plan.everything()) == ["0000:0", "0000:1"]


# -- AvailableNow -----------------------------------------------------------------------------------------------------


def test_available_now_ends_at_the_target_fixed_at_its_start(folder: Path) -> None:
    spool_id = write(folder, 5)
    plan = planner(folder)
    plan.fix_target()
    start = plan.initial()
    write(folder, 3, 2)  # three more in the lane there was, two in a new one
    end = plan.latest(start, ReadLimits(3))
    assert lanes_of(end, spool_id) == {"0000": 3}
    end = plan.latest(end, ReadLimits(3))
    assert lanes_of(end, spool_id) == {"0000": 5}
    assert plan.latest(end, ReadLimits(3)) is end
    following = planner(folder)
    following.fix_target()
    assert labels(following, end, following.latest(end, ALL)) == ["0000:5", "0000:6", "0000:7", "0001:0", "0001:1"]


def test_available_now_reads_no_spool_that_came_after_its_start(folder: Path) -> None:
    old = write(folder, 2)
    before = planner(folder)
    start = before.latest(before.initial(), ALL)
    plan = planner(folder)
    plan.fix_target()
    new = replace(folder, 4)
    end = plan.latest(start, ALL)
    assert old not in end["spools"]
    assert new not in end["spools"]
    assert plan.latest(end, ALL) is end
    following = planner(folder)
    assert len(labels(following, end, following.latest(end, ALL))) == 4


# -- data loss --------------------------------------------------------------------------------------------------------


def test_records_deleted_before_they_were_read_are_data_loss(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, 30)
    plan = planner(folder)
    start = plan.initial()
    first = expire(folder)
    with pytest.raises(DataLossError, match=f"records 0 to {first - 1} of lane 0000") as caught:
        plan.latest(start, ALL)
    assert "failOnDataLoss" in caught.value.remedy
    tolerant = planner(folder, failOnDataLoss="false")
    end = tolerant.latest(start, ALL)
    with caplog.at_level(logging.WARNING):
        read = labels(tolerant, start, end, fail=False)
    assert read == [f"0000:{i}" for i in range(first, 30)]
    assert tolerant.counts.lost_records == first
    assert f"lost_records {first}" in caplog.text


def test_a_new_lane_whose_record_zero_is_gone_is_data_loss(folder: Path) -> None:
    write(folder, 1)
    start = planner(folder).initial()
    write(folder, 0, 30)
    expire(folder, "0001")
    with pytest.raises(DataLossError, match="lane 0001"):
        planner(folder).latest(start, ALL)


def test_limits_count_only_records_that_are_there(folder: Path) -> None:
    spool_id = write(folder, 30)
    start = planner(folder).initial()
    first = expire(folder)
    tolerant = planner(folder, failOnDataLoss="false")
    end = tolerant.latest(start, ReadLimits(2))
    assert lanes_of(end, spool_id) == {"0000": first + 2}
    assert labels(tolerant, start, end, fail=False) == [f"0000:{first}", f"0000:{first + 1}"]


def expire_all(folder: Path, count: int) -> None:
    """Delete all records of lane 0000, as retention does: what stays is the empty newest segment."""
    lane = folder / "lanes" / "0000"
    for file in [*lane.glob("*.index"), *lane.glob("*.ndjson")]:
        file.unlink()
    (lane / f"{count:020d}.ndjson").write_bytes(b"")
    (lane / f"{count:020d}.index").write_bytes(pack_header(count, 0))


def test_the_loss_of_all_that_an_idle_lane_held_is_told_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool_id = write(folder, 10)
    start = planner(folder).initial()
    expire_all(folder, 10)
    with pytest.raises(DataLossError, match="records 0 to 9 of lane 0000"):
        planner(folder).latest(start, ALL)
    tolerant = planner(folder, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = tolerant.latest(start, ALL)
        assert tolerant.plan(start, end) == []
        assert tolerant.latest(end, ALL) is end
    assert lanes_of(end, spool_id) == {"0000": 10}
    assert tolerant.counts.lost_records == 10
    assert caplog.text.count("records 0 to 9 of lane 0000") == 1


def test_available_now_tells_what_retention_took_before_its_target(folder: Path) -> None:
    spool_id = write(folder, 10)
    start = planner(folder).initial()
    tolerant = planner(folder, failOnDataLoss="false")
    tolerant.fix_target()
    write(folder, 5)
    expire_all(folder, 15)
    end = tolerant.latest(start, ALL)
    assert lanes_of(end, spool_id) == {"0000": 10}
    assert tolerant.plan(start, end) == []
    assert tolerant.counts.lost_records == 10
    assert tolerant.latest(end, ALL) is end
    following = planner(folder, failOnDataLoss="false")
    assert following.plan(end, following.latest(end, ALL)) == []
    assert following.counts.lost_records == 5


def test_a_lane_removed_before_all_was_read_is_data_loss(folder: Path) -> None:
    write(folder, 5, 3)
    start = planner(folder).initial()
    shutil.rmtree(folder / "lanes" / "0000")
    with pytest.raises(DataLossError, match="5 records"):
        planner(folder).latest(start, ALL)
    tolerant = planner(folder, failOnDataLoss="false")
    end = tolerant.latest(start, ALL)
    assert labels(tolerant, start, end) == ["0001:0", "0001:1", "0001:2"]
    assert tolerant.latest(end, ALL) is end
    assert tolerant.counts.lost_records == 5


def test_a_byte_limit_goes_round_an_index_that_has_lost_its_entries(folder: Path) -> None:
    spool_id = write(folder, 30)
    lane = folder / "lanes" / "0000"
    for index in sorted(lane.glob("*.index"))[:-1]:
        os.truncate(index, 32)
        index.with_suffix(".ndjson").write_bytes(b"")
    newest = int(max(lane.glob("*.index")).stem)
    os.truncate(max(lane.glob("*.index")), 32)
    max(lane.glob("*.ndjson")).write_bytes(b"")
    tolerant = planner(folder, failOnDataLoss="false")
    at = tolerant.initial()
    while (end := tolerant.latest(at, ReadLimits(max_bytes=10))) is not at:
        assert labels(tolerant, at, end, fail=False) == []
        at = end
    assert lanes_of(at, spool_id) == {"0000": newest}


def test_a_spool_made_anew_after_all_was_read_replaces_the_old_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = write(folder, 3)
    plan = planner(folder)
    start = plan.latest(plan.initial(), ALL)
    new = replace(folder, 2)
    with caplog.at_level(logging.WARNING):
        end = plan.latest(start, ALL)
    assert list(end["spools"]) == [new]
    assert plan.counts.spools_replaced == 1
    assert old in caplog.text
    assert labels(plan, start, end) == ["0000:0", "0000:1"]


def test_a_spool_made_anew_before_all_was_read_is_data_loss(folder: Path) -> None:
    write(folder, 5)
    plan = planner(folder)
    start = plan.latest(plan.initial(), ReadLimits(2))
    new = replace(folder, 1)
    with pytest.raises(DataLossError, match="3 records"):
        plan.latest(start, ALL)
    tolerant = planner(folder, failOnDataLoss="false")
    assert lanes_of(tolerant.latest(start, ALL), new) == {"0000": 1}
    assert tolerant.counts.lost_records == 3


def test_an_empty_new_spool_drops_the_old_one_at_once(folder: Path) -> None:
    old = write(folder, 1)
    plan = planner(folder)
    start = plan.latest(plan.initial(), ALL)
    new = replace(folder, 0)
    end = plan.latest(start, ALL)
    assert end is not start
    assert old not in end["spools"]
    assert plan.plan(start, end) == []
    assert plan.latest(end, ALL) is end
    assert new in end["spools"]


def test_a_lane_that_lost_what_was_read_keeps_its_offset(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool_id = write(folder, 3)
    start = {"spools": {spool_id: {"endpoint": str(folder), "lanes": {"0000": {"next": 5, "seen": 5}}}}, "v": 1}
    plan = planner(folder)
    with caplog.at_level(logging.WARNING):
        assert plan.latest(start, ALL) is start
        assert plan.latest(start, ALL) is start
    assert caplog.text.count("lost its tail") == 1


def test_a_lane_that_lost_what_was_yet_to_be_read_is_data_loss(folder: Path) -> None:
    spool_id = write(folder, 3)
    start = {"spools": {spool_id: {"endpoint": str(folder), "lanes": {"0000": {"next": 2, "seen": 8}}}}, "v": 1}
    with pytest.raises(DataLossError, match="5 records"):
        planner(folder).latest(start, ALL)
    tolerant = planner(folder, failOnDataLoss="false")
    assert lanes_of(tolerant.latest(start, ALL), spool_id) == {"0000": 3}
    assert tolerant.counts.lost_records == 5


# -- what tasks read --------------------------------------------------------------------------------------------------


def test_a_plan_is_the_same_after_a_restart(folder: Path) -> None:
    write(folder, 8, 3)
    plan = planner(folder, minPartitions="4")
    start = plan.initial()
    end = plan.latest(start, ReadLimits(6))
    write(folder, 5)
    again = planner(folder, minPartitions="4")
    assert again.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end))) == plan.plan(start, end)


def test_a_plan_names_no_key(folder: Path) -> None:
    write(folder, 2)
    plan = Planner(settings({"path": str(folder), "vllm_api_key": "hush-hush"}))
    splits = plan.plan(plan.initial(), plan.everything())
    assert splits
    assert "hush-hush" not in repr(splits)
    assert b"hush-hush" not in pickle.dumps(splits)


def test_an_offset_of_another_format_is_a_named_error(folder: Path) -> None:
    write(folder, 1)
    with pytest.raises(OffsetError, match="format"):
        planner(folder).latest({"v": 9, "spools": {}}, ALL)


def test_a_folder_removed_later_is_a_named_error(folder: Path) -> None:
    write(folder, 1)
    plan = planner(folder)
    start = plan.initial()
    shutil.rmtree(folder)
    with pytest.raises(SpoolNotFoundError):
        plan.latest(start, ALL)
