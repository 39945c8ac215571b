"""What a load makes of answers, counters and blocks."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dspark_json.cli.bench.serving.blocks import Block, Failures, Plan
from dspark_json.cli.bench.serving.command_keys import without_keys
from dspark_json.cli.bench.serving.figures import figures, ratios
from dspark_json.cli.bench.serving.judging import Answer, Judge
from dspark_json.cli.bench.serving.launched import Launch, LaunchedServer
from dspark_json.cli.bench.serving.picture import sweep_figure
from dspark_json.cli.bench.serving.questions import Asking, packaged_tasks
from dspark_json.cli.bench.serving.reply import Exchange, Problem, Reply, read_reply
from dspark_json.cli.bench.serving.rows import remarks, server_rows
from dspark_json.cli.bench.serving.shares import percent
from dspark_json.cli.bench.serving.sweep import Best, Point, best_length
from dspark_json.cli.bench.serving.sweep_command import lengths
from dspark_json.cli.main import parser
from dspark_json.errors import InvalidOptionError, ServerEndedError
from dspark_json.monitor.counters import Counters, Growth
from dspark_json.monitor.speculation import Speculation
from dspark_json.replay.recording import packaged_recordings

if TYPE_CHECKING:
    from pathlib import Path

METRICS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {0}.0
vllm:spec_decode_num_drafts_created{{engine="0",model_name="tiny"}} 1.795e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {1}.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {2}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="tiny",position="0"}} {2}.0
"""
LIMIT = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "n": {"type": "integer", "maximum": 9},
        "name": {"type": "string", "maxLength": 2},
    },
}


def events(*documents: object, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(document)}\n\n" for document in documents]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def chunk(content: str | None = None, reason: str | None = None, **more: object) -> dict[str, object]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


def answer(
    latency: float = 1.0, status: str = "ok", tokens: int | None = 10, drafts: Speculation | None = None
) -> Answer:
    valid = status == "ok"
    return Answer("order", latency, 0.0, latency / 2 if valid else None, status, None, 100 * valid, tokens, drafts)


def block(*answers: Answer, seconds: float = 1.0, counted: Growth | None = None, failed: int = 0) -> Block:
    failures = {"status 500": Failures(failed, "went wrong")} if failed else {}
    return Block(answers, failures, seconds, 0.1, counted)


def busy(tokens: float, failed: int = 0, seconds: float = 1.0) -> Block:
    """A block of 20 answers with so many tokens a second."""
    return block(*[answer(tokens=round(tokens))] * 20, seconds=20 * seconds, failed=failed)


def test_every_recorded_stream_of_chat_is_read_whole_however_its_bytes_are_cut() -> None:
    streams = [r for r in packaged_recordings() if r.traits.stream and r.traits.path.endswith("chat/completions")]
    assert len(streams) > 10
    for recording in streams:
        whole = b"".join([*recording.parts, b"data: [DONE]\n\n"])
        found = read_reply([(1.0, whole)])
        assert isinstance(found, Reply), recording.name
        assert found == read_reply([(1.0, whole[at : at + 1]) for at in range(len(whole))])
        if recording.traits.name == "order" and found.finish_reason == "stop":
            assert isinstance(json.loads(found.content), dict)
        if recording.traits.usage:
            assert found.tokens is not None


def test_the_first_byte_of_json_is_that_of_the_content_after_blanks() -> None:
    pieces = [
        (1.0, events({"choices": [{"index": 0, "delta": {"reasoning": "{"}}]}, done=False)),
        (2.0, events(chunk(" \n"), done=False)),
        (3.0, events(chunk('{"a"'), done=False)),
        (4.0, events(chunk(":1}", "stop"))),
    ]
    found = read_reply(pieces)
    assert isinstance(found, Reply)
    assert (found.first_json, found.content) == (3.0, ' \n{"a":1}')
    for content in ('Here it is: {"a":1}', '<think>so</think>{"a":1}', '```json\n{"a":1}\n```'):
        said = read_reply([(1.0, events(chunk(content, "stop")))])
        assert isinstance(said, Reply)
        assert said.first_json is None


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (events(chunk("{"), done=False), "stream ended early"),
        (events(chunk("{}", "stop"), done=False), "stream ended early"),
        (events(chunk("{}")), "stream ended early"),
        (b"", "stream ended early"),
        (events(chunk("{"), {"error": {"message": "out of memory"}}), "error in the stream"),
        (b"data: {oops\n\n", "no chunks of chat"),
        (b"data: []\n\n", "no chunks of chat"),
        (b'data: {"choices":null}\n\n', "no chunks of chat"),
        (b'data: {"choices":[{"index":0,"delta":{"content":7}}]}\n\n', "no chunks of chat"),
    ],
)
def test_a_stream_that_is_no_whole_answer_is_a_problem_with_a_name(stream: bytes, kind: str) -> None:
    found = read_reply([(1.0, stream)])
    assert isinstance(found, Problem)
    assert found.kind == kind


def test_an_answer_is_json_and_follows_its_schema_by_the_text_it_is() -> None:
    from dspark_json.cli.bench.serving.questions import Task

    judge = Judge([Task("limit", "", LIMIT)])
    cases = {
        '{"amount":5E991127,"n":9}': ("ok", None),  # beyond a double
        '{"amount":-1e99999999999999999999}': ("ok", "value not checked"),  # beyond a decimal
        '{"amount":' + "9" * 5000 + "}": ("ok", "value not checked"),
        '{"n":10}': ("ok", "maximum"),
        '{"name":"\\ud800\\udc00\\ud800"}': ("ok", None),  # one letter, and half of one
        '{"name":"\\ud800\\ud800\\ud800"}': ("ok", "maxLength"),
        '{"amount":"5"}': ("ok", "type"),
        "[1]": ("ok", "type"),
        '{"amount":1': ("invalid", None),
        '```json\n{"n":1}\n```': ("fenced", None),
        '{"n":1} so it is': ("trailing_text", None),
        "": ("empty", None),
    }
    for content, expected in cases.items():
        exchange = Exchange("limit", 1.0, 1.0, 3.0, ((2.0, events(chunk(content, "stop"))),))
        (found,), problems = judge.judge([exchange])
        assert (found.status, found.violated) == expected, content[:40]
        assert found.follows_schema == (expected == ("ok", None))
        assert found.json_bytes == (len(content) if found.is_json else 0)
        assert not problems
    cut = Exchange("limit", 1.0, 1.0, 3.0, ((2.0, events(chunk('{"amount":1', "length"))),))
    assert judge.judge([cut])[0][0].status == "truncated"


def test_counters_are_summed_over_engines_and_only_their_growth_counts() -> None:
    before = Counters.of(METRICS.format(10, 30, 7) + METRICS.format(1, 3, 1).replace('engine="0"', 'engine="1"'))
    after = Counters.of(METRICS.format(110, 330, 107) + METRICS.format(2, 6, 2).replace('engine="0"', 'engine="1"'))
    assert after.since(before) == Growth(Speculation(101, 303, 101), reset=False)


def test_counters_of_a_server_that_was_started_anew_count_from_zero_and_say_so() -> None:
    growth = Counters.of(METRICS.format(5, 15, 3)).since(Counters.of(METRICS.format(110, 330, 107)))
    assert growth == Growth(Speculation(3, 15, 5), reset=True)
    anew, started = METRICS.format(200, 400, 190), "process_start_time_seconds {}\n"
    restarted = Counters.of(anew + started.format(2)).since(
        Counters.of(METRICS.format(110, 330, 107) + started.format(1))
    )
    assert restarted == Growth(Speculation(190, 400, 200), reset=True), "however far it is since"
    told = figures([block(answer(), counted=growth)])
    assert told["acceptance"]["counters"]["resets"] == 1
    assert any("began anew" in remark for remark in remarks("endpoint", told))


def test_a_server_without_counters_tells_nothing() -> None:
    assert Counters.of("# nothing\nprocess_cpu_seconds_total 1.0\n").since(Counters({})) is None
    assert figures([block(answer())])["acceptance"] is None


def test_acceptance_is_the_answers_own_where_each_has_it_else_the_counters() -> None:
    counted = Growth(Speculation(30, 300, 100), reset=False)
    own = Speculation(6, 30, 10)
    all_tell = figures([block(answer(drafts=own), answer(drafts=own), counted=counted)])["acceptance"]
    assert (all_tell["source"], all_tell["rate"], all_tell["length"]) == ("answers", 0.2, 1.6)
    one_tells = figures([block(answer(drafts=own), answer(), counted=counted)])["acceptance"]
    assert (one_tells["source"], one_tells["rate"], one_tells["length"]) == ("counters", 0.1, 1.3)


def test_others_are_said_to_ask_only_where_all_drafts_of_this_load_are_known() -> None:
    own, counted = Speculation(6, 30, 10), Growth(Speculation(30, 300, 100), reset=False)

    def said(*blocks: Block) -> str:
        return " ".join(remarks("x", figures(blocks)))

    tells = block(answer(drafts=own), counted=counted)
    assert "others ask it as well" in said(tells)
    assert "others" not in said(block(answer(drafts=own), counted=counted, failed=1))  # its drafts were counted, too
    unread = said(block(answer(drafts=own)), tells)
    assert "others" not in unread
    assert "could not be read at 1 of 2 blocks" in unread
    began_anew = said(block(answer(drafts=own), counted=Growth(Speculation(0, 3, 1), reset=True)))
    assert "others" not in began_anew


def test_the_speed_of_json_is_in_a_unit_that_makes_no_figure_a_small_fraction() -> None:
    for speeds, said in (
        ((0.0014, 0.0029), ["JSON, kB/s", "1.4 (1.4 to 1.4)", "2.9 (2.9 to 2.9)"]),
        ((0.0000123, 5.0), ["JSON, B/s", "12.3 (12.3 to 12.3)", "5,000,000 (5,000,000 to 5,000,000)"]),
        ((1.5, 0.0), ["JSON, MB/s", "1.5 (1.5 to 1.5)", "0 (0 to 0)"]),
        ((None, None), ["JSON, MB/s", "–", "–"]),
    ):
        servers = [
            figures([block(answer())]) | {"json_mb_per_second": speed, "json_mb_per_second_ci": [speed, speed]}
            for speed in speeds
        ]
        rows = server_rows(servers, None)
        assert next(row for row in rows if row[0].startswith("JSON, ")) == said


def test_a_share_is_none_or_all_only_where_it_is() -> None:
    texts = {0: "0.0 %", 0.0004: "< 0.1 %", 0.0006: "0.1 %", 0.9994: "99.9 %", 0.9996: "> 99.9 %", 1: "100.0 %"}
    assert {share: percent(share) for share in texts} == texts
    for count in (2, 2_499, 99_999):
        good = figures([block(*[answer()] * count, answer(status="invalid"))])
        assert good["json_valid"] < 1
        assert percent(good["json_valid"]) != "100.0 %"
        assert Point(2, "on", (block(*[answer()] * count, answer(status="invalid")),)).document()["malformed"] > 0
    rare = figures([block(answer(drafts=Speculation(1, 100_000, 1)))])["acceptance"]
    assert rare["rate"] > 0


def test_requests_that_failed_are_in_the_figures_by_name() -> None:
    found = figures([block(answer(), failed=2), block(answer(), answer(status="truncated"), failed=1)])
    assert (found["requests"], found["answers"]) == (6, 3)
    assert found["failures"] == {"status 500": {"count": 3, "example": "went wrong"}}
    assert found["json_valid"] == pytest.approx(2 / 3, abs=1e-4)
    assert any("3 of 6 requests failed (status 500, such as: went wrong)" in line for line in remarks("x", found))


def test_blocks_without_an_answer_have_no_figures_instead_of_wrong_ones() -> None:
    empty = [block(failed=4), block(failed=4)]
    found = figures(empty)
    assert (found["latency_ms_p99"], found["json_valid"], found["first_json_ms_p50"]) == (None, None, None)
    assert (found["answers_per_second"], found["output_tokens_per_second"]) == (0, 0)
    assert ratios(empty, [block(answer())] * 2)["latency_ms_p50"] is None


def test_a_block_whose_requests_all_failed_took_its_time_for_no_tokens() -> None:
    found = figures([block(answer(tokens=120)), *[block(failed=20, seconds=29.75)] * 4])
    assert found["output_tokens_per_second"] == 1.0
    assert found["output_tokens_per_second_ci"][0] == 0
    untold = figures([block(answer(tokens=None)), block(failed=20)])
    assert untold["output_tokens_per_second"] is None  # there are answers, and none tells


def test_answers_without_a_first_byte_of_json_are_counted_beside_the_times_of_the_others() -> None:
    found = figures([block(answer(1.0), answer(status="fenced"))])
    assert (found["first_json_ms_p50"], found["answers_without_first_json"]) == (500, 1)
    assert any("1 of 2 answers do not begin with {" in remark for remark in remarks("x", found))
    assert not remarks("x", figures([block(answer())]))


def test_a_ratio_is_that_of_blocks_measured_together() -> None:
    fast = [block(answer(latency), seconds=latency) for latency in (1.0, 2.0, 4.0)]
    slow = [block(answer(2 * latency), seconds=2 * latency) for latency in (1.0, 2.0, 4.0)]
    found = ratios(fast, slow)
    assert found["latency_ms_p50"] == {"value": 0.5, "ci": [0.5, 0.5]}
    assert found["output_tokens_per_second"] == {"value": 2.0, "ci": [2.0, 2.0]}


def test_blocks_hold_all_requests_once_and_none_is_empty() -> None:
    for requests, blocks in ((100, 5), (7, 3), (2, 5), (1, 1)):
        ranges = Plan(requests, blocks, 4).ranges()
        assert [number for one in ranges for number in one] == list(range(4, 4 + requests))
        assert all(ranges)


def test_the_schema_is_in_the_prompt_with_a_grammar_and_without() -> None:
    tasks = packaged_tasks()
    for grammar in (True, False):
        bodies = [json.loads(Asking(tasks, 64, grammar=grammar).question("m", number).body) for number in range(12)]
        assert all(("response_format" in body) == grammar for body in bodies)
        for number, body in enumerate(bodies):
            schema = json.dumps(tasks[number % len(tasks)].schema, separators=(",", ":"))
            assert schema in body["messages"][0]["content"]
        assert len({json.dumps(body["messages"]) for body in bodies}) == 12


def test_the_schemas_that_can_be_named_are_those_that_are_shipped() -> None:
    shipped = {task.name for task in packaged_tasks()}
    options = parser().parse_args(["bench", "serve", "--endpoint", "http://localhost"])
    assert set(options.schemas) == shipped
    recorded = {recording.traits.name for recording in packaged_recordings() if recording.traits.kind == "json_schema"}
    assert recorded <= shipped  # so that the replay server can follow some


def test_the_best_length_is_named_with_its_margin_where_the_spread_allows_it() -> None:
    def points(speeds: dict[int, list[float]]) -> list[Point]:
        return [Point(length, "on", tuple(map(busy, rates))) for length, rates in speeds.items()]

    clear = best_length(points({2: [100, 102, 98], 4: [150, 151, 149], 6: [120, 122, 118]}))
    assert clear is not None
    assert (clear.length, clear.second, clear.alike) == (4, 6, ())
    assert clear.sentence().startswith("4 is best: +25.0 % over 6 (")
    unclear = best_length(points({2: [100, 140, 98], 4: [101, 151, 97], 6: [50, 51, 49]}))
    assert unclear is not None
    assert (unclear.length, unclear.alike) == (4, (2,))
    assert unclear.sentence().startswith("no difference between 4 and 2 ")
    assert best_length([Point(2, "on", (block(answer(tokens=None)),))]) is None


def test_a_length_whose_requests_mostly_failed_is_not_the_best_one() -> None:
    failing = (block(answer(tokens=120)), *[block(failed=20, seconds=300.0)] * 4)
    steady = tuple(busy(100) for _ in range(5))
    best = best_length([Point(2, "on", steady), Point(7, "on", failing)])
    assert best is not None
    assert best.length == 2
    assert best.sentence().endswith("; requests that failed: 80 of 81 at 7")
    assert json.dumps(best.document(), allow_nan=False)
    dead = tuple(block(failed=20, seconds=300.0) for _ in range(5))
    alone = best_length([Point(2, "on", steady), Point(7, "on", dead)])
    assert alone is not None
    assert alone.sentence() == "2 is the only length that gave tokens; requests that failed: 100 of 100 at 7"
    assert best_length([Point(7, "on", dead)]) is None


def test_fewer_than_three_blocks_give_no_interval_and_no_winner() -> None:
    for count, told in ((1, False), (2, False), (3, True)):
        fast, slow = (
            tuple(block(*[answer(tokens=tokens)] * 60, seconds=60) for _ in range(count)) for tokens in (200, 100)
        )
        found, compared = figures(fast), ratios(fast, slow)
        assert (found["output_tokens_per_second_ci"] is not None) == told
        assert (compared["output_tokens_per_second"]["ci"] is not None) == told
        rows = {row[0]: row[1:] for row in server_rows([found, figures(slow)], compared)}
        assert rows["output tokens/s"][::2] == (
            ["200 (200 to 200)", "2.000 (2.000 to 2.000)"] if told else ["200", "2.000"]
        )
        best = best_length([Point(2, "on", fast), Point(4, "on", slow)])
        assert best is not None
        assert (best.alike == ()) == told
        assert best.sentence().startswith(
            "2 is best: +100.0 %" if told else "too few blocks to say which length is best (3 at least): 2 has "
        )
        assert (best.document()["ratio"]["ci"] is not None) == told
        assert best.document()["length"] == (2 if told else None)


def test_fewer_requests_than_are_needed_give_no_winner_and_say_how_many_are() -> None:
    def best(blocks: int) -> Best:
        found = best_length(
            [Point(length, "on", tuple(busy(100 * length) for _ in range(blocks))) for length in (2, 4)]
        )
        assert found is not None
        return found

    assert best(3).sentence().startswith("4 is best: +100.0 % over 2")
    few = best(2)
    assert few.sentence() == (
        "too few requests to say which length is best (of each 50 at least): 4 has +100.0 % over 2"
    )
    assert (few.document()["length"], few.document()["fastest"]) == (None, 4)
    assert "50 at least" in few.document()["too_few"]


def test_a_picture_of_a_sweep_leaves_out_what_a_length_has_no_figure_of() -> None:
    told = {length: tuple(block(answer(tokens=10 * length)) for _ in range(3)) for length in (2, 3, 6)}
    untold = tuple(block(answer(tokens=None)) for _ in range(3))
    dead = tuple(block(failed=4) for _ in range(3))
    points = {**told, 4: untold, 5: dead}
    figure = sweep_figure([Point(length, "on", points[length]).document() for length in sorted(points)], "lengths")
    speed, accepted, latency, malformed = (np.asarray(axes.lines[0].get_xdata()).tolist() for axes in figure.axes)
    assert speed == [2, 3, 5, 6]  # of nothing but failures, 0
    assert accepted == []
    assert latency == malformed == [2, 3, 4, 6]


def test_lengths_are_a_span_or_a_list() -> None:
    assert lengths("2..5") == (2, 3, 4, 5)
    assert lengths("6,2,4,2") == (2, 4, 6)
    for wrong in ("", "5..2", "0..2", "2..", "a", "2;3", "1..20000", "-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            lengths(wrong)


def test_a_command_has_its_length_and_its_port_put_in() -> None:
    command = """serve --port {port} --speculative-config '{"num_speculative_tokens":{k}, "method":"ngram"}'"""
    launch = Launch.of(command, None)
    port = launch.endpoint.rsplit(":", 1)[1]
    assert launch.command(4) == [
        "serve", "--port", port, "--speculative-config", '{"num_speculative_tokens":4, "method":"ngram"}',
    ]  # fmt: skip
    assert Launch.of("serve {k}", None).endpoint == "http://127.0.0.1:8000"
    assert Launch.of("serve {k}", "http://gpu:1/v1").endpoint == "http://gpu:1"
    for wrong, endpoint in (("serve", None), ("serve '{k}", None), ("serve {k} {port}", "http://gpu:1")):
        with pytest.raises(InvalidOptionError):
            Launch.of(wrong, endpoint)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("env VLLM_API_KEY=hunter2 HF_TOKEN='hunter2 x' vllm serve m", "env VLLM_API_KEY=… HF_TOKEN=… vllm serve m"),
        ("serve --api-key 'hunter2 x' --port {port}", "serve --api-key … --port {port}"),
        ("serve --api_key hunter2 --k {k}", "serve --api_key … --k {k}"),
        ("serve --api_key=hunter2 m", "serve --api_key=… m"),
        ("serve --API-Key hunter2 hunter2b -hunter2c --k {k}", "serve --API-Key … --k {k}"),
        ('serve --api-key "hunter2"hunter2 --k {k}', "serve --api-key … --k {k}"),
        ("serve --hf-token=hunter2 --api-key", "serve --hf-token=… --api-key"),
        ("sh -c 'exec vllm serve --api-key hunter2 --k {k}'", "sh -c 'exec vllm serve --api-key … --k {k}'"),
        ("sh -c 'hf_token=hunter2 vllm serve --api-key hunter2'", "sh -c hf_token=…"),
        ("""sh -c "echo it's; HF_TOKEN=hunter2" """, "sh -c …"),
        ("""serve --config '{"api_key": "hunter2", "n": {k}}'""", """serve --config '{"api_key": "…", "n": {k}}'"""),
        (
            """serve --c '{"n":{k}}' --max-num-batched-tokens 8""",
            """serve --c '{"n":{k}}' --max-num-batched-tokens 8""",
        ),
    ],
)
def test_a_shown_command_has_no_keys(command: str, shown: str) -> None:
    assert without_keys(command) == shown


def test_what_a_server_says_of_its_arguments_is_shown_without_keys(tmp_path: Path) -> None:
    says = "import sys; sys.exit(' '.join(sys.argv))"
    command = [sys.executable, "-c", says, "--api_key", "hunter2", "hunter2b", "--port", "1"]
    with pytest.raises(ServerEndedError) as raised:
        LaunchedServer(command, "http://127.0.0.1:1", tmp_path / "log", 30.0)
    assert "-c --api_key … … --port 1" in str(raised.value)
