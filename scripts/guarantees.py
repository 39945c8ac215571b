"""What this package promises, when that holds, and the tests that show it; ``docs/guarantees.md`` is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A claim in a few words, its terms, and tests as (file below ``tests/``, function)."""

    claim: str
    terms: str
    tests: tuple[tuple[str, str], ...]


GUARANTEES: Final = (
    Guarantee(
        "Each answer lands once",
        "A row's key is (`_dspark.spool_id`, `_dspark.lane`, `_dspark.seq`). With a checkpoint and a sink that knows "
        "its batches (Delta); others may see a batch again after a crash, with the same rows and keys.",
        (
            ("integration/test_exactly_once.py", "test_every_answer_lands_once_though_spark_and_the_server_are_killed"),
            ("unit/source/test_exactly_once.py", "test_every_record_is_read_once_and_in_order"),
            (
                "soak/test_soak.py",
                "test_every_answer_lands_once_while_clients_leave_and_servers_and_readers_are_killed",
            ),
        ),
    ),
    Guarantee(
        "Serving is untouched",
        "Bytes, message boundaries and order are the server's own, with one header more (`x-dspark: json`). In `write` "
        "and `fsync` the message that completes an answer waits for its record, `DSPARK_HOLD_MS` "
        "at most (of an event loop that has its turns).",
        (
            ("unit/capture/test_transparency.py", "test_every_byte_on_the_wire_is_the_same_but_for_the_header"),
            ("unit/capture/test_transparency.py", "test_messages_are_the_same_with_and_without_the_hook"),
            (
                "unit/capture/test_durability.py",
                "test_exactly_the_completing_message_and_later_ones_wait_for_the_record",
            ),
        ),
    ),
    Guarantee(
        "Trouble with the spool costs records, never an answer",
        "A full, read-only or removed disk: what is not kept is counted (`dropped_records`) and logged.",
        (
            (
                "unit/capture/test_spool_faults.py",
                "test_a_disk_that_somebody_else_fills_costs_records_and_no_answer_until_it_has_room_again",
            ),
            (
                "unit/capture/test_spool_faults.py",
                "test_a_disk_that_becomes_read_only_costs_records_and_no_answer_and_readers_read_on",
            ),
        ),
    ),
    Guarantee(
        "With `write` and `fsync`, what a client has is kept",
        "As long as `unrecorded_answers` is 0; `write` over a kill of the server, `fsync` over a loss of power too. "
        "The default, `async`, may lose the last milliseconds of a server that is killed.",
        (
            ("unit/capture/test_durability.py", "test_a_message_is_held_no_longer_than_told_and_counted_then"),
            (
                "unit/spool/test_lanes_and_recovery.py",
                "test_no_acknowledged_record_is_lost_by_a_kill_and_the_lane_goes_on_densely",
            ),
        ),
    ),
    Guarantee(
        "A torn or damaged lane ends before the damage",
        "What is before it is read on; what is behind it is data loss, told as such.",
        (
            ("unit/spool/test_lanes_and_recovery.py", "test_a_torn_tail_is_cut_and_the_lane_goes_on"),
            (
                "unit/spool/test_lanes_and_recovery.py",
                "test_after_a_host_crash_every_checksum_counts_and_the_lane_is_not_written_again",
            ),
        ),
    ),
    Guarantee(
        "Nothing is guessed",
        "A value of another type than its column is null, its text is in `_rescued_data`; a record that can't be read "
        "is in `_corrupt_record`. Both engines give the same rows.",
        (
            ("unit/engine/test_corpus.py", "test_the_corpus"),
            ("unit/engine/test_native.py", "test_answers_with_bytes_mutated"),
        ),
    ),
    Guarantee(
        "Prompts stay out of the spool",
        "Unless `DSPARK_CAPTURE_REQUESTS=full`; what an answer echoes of its request is null, what an error repeats of "
        "it, whole or cut, is `<not kept>`, a broken body that may hold some of it is withheld.",
        (
            ("unit/capture/test_redaction.py", "test_no_echo_gets_into_a_record_unless_all_is_kept"),
            ("unit/capture/test_redaction.py", "test_no_echo_of_a_stream_gets_into_a_record"),
            ("unit/capture/test_request_texts.py", "test_no_record_of_an_error_holds_a_text_of_its_request"),
            ("unit/capture/test_echo.py", "test_the_prompt_is_cut_from_the_text_of_a_completion"),
        ),
    ),
    Guarantee(
        "Keys appear nowhere",
        "Not in logs, errors, offsets or plans.",
        (("unit/source/test_worker_process.py", "test_a_key_is_in_the_task_and_nowhere_else"),),
    ),
    Guarantee(
        "Formats stay readable",
        "Spool, HTTP answers, offsets and rows of format 1 are kept as bytes, which every version reads.",
        (
            ("unit/golden/test_golden_spool.py", "test_a_reader_gets_exactly_the_records_of_the_golden_spool"),
            ("unit/engine/test_golden_rows.py", "test_the_golden_spool_gives_exactly_the_golden_rows"),
        ),
    ),
    Guarantee(
        "Both adapters are one source",
        "The connector and the Python source have the same rows, offsets and errors; "
        "a checkpoint goes on in the other.",
        (
            ("unit/source/test_worker_reads.py", "test_the_rows_are_those_of_the_python_source"),
            ("integration/test_spark_stream.py", "test_errors_reach_the_user_by_code_text_and_remedy"),
        ),
    ),
)
