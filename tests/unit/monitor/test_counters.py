"""The server's own counters: what they grew by, whatever restarts in between."""

from __future__ import annotations

from dspark_json.monitor.counters import ACCEPTED, DRAFTED, DRAFTS, SpeculationCounters, series_of
from dspark_json.monitor.speculation import Speculation


def page(*engines: tuple[float, float, float], started: float | None = None) -> str:
    """Metrics as vLLM gives them, a series for each engine."""
    lines = [] if started is None else [f"process_start_time_seconds {started}"]
    for name, values in zip((ACCEPTED, DRAFTED, DRAFTS), zip(*engines, strict=True), strict=True):
        lines += [f"# HELP {name} Number of tokens.", f"# TYPE {name} counter"]
        lines += [f'{name}{{engine="{i}",model_name="a {{b}} \\"c\\" 1"}} {value}' for i, value in enumerate(values)]
        lines.append(f'{name.removesuffix("_total")}_created{{engine="0"}} 1.7e9')
    lines.append('vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 1000000')
    return "\n".join(lines) + "\n"


def test_the_first_look_gives_what_the_server_has_counted_and_no_growth() -> None:
    counters = SpeculationCounters()
    assert counters.advance(page((6, 10, 5), (1, 10, 5))) == Speculation()
    assert counters.since_start == Speculation(7, 20, 10)
    assert counters.since_start.rate == 0.35
    assert counters.since_start.length == 1.7


def test_growth_is_summed_over_engines() -> None:
    counters = SpeculationCounters()
    counters.advance(page((6, 10, 5), (1, 10, 5)))
    assert counters.advance(page((7, 13, 6), (4, 16, 7))) == Speculation(4, 9, 3)
    assert counters.advance(page((7, 13, 6), (4, 16, 7))) == Speculation()


def test_a_counter_that_is_smaller_than_before_began_again() -> None:
    counters = SpeculationCounters()
    counters.advance(page((60, 100, 50), (6, 10, 5)))
    assert counters.advance(page((5, 9, 3), (7, 12, 6))) == Speculation(5 + 1, 9 + 2, 3 + 1)


def test_counters_of_a_process_that_started_anew_began_again_however_far_they_are() -> None:
    counters = SpeculationCounters()
    counters.advance(page((60, 100, 50), started=1.0))
    assert counters.advance(page((70, 110, 55), started=2.0)) == Speculation(70, 110, 55)
    assert counters.advance(page((71, 112, 56), started=2.0)) == Speculation(1, 2, 1)


def test_an_engine_that_comes_later_counts_from_its_beginning() -> None:
    counters = SpeculationCounters()
    counters.advance(page((6, 10, 5)))
    assert counters.advance(page((6, 10, 5), (3, 9, 3))) == Speculation(3, 9, 3)


def test_a_page_without_these_counters_counts_nothing() -> None:
    counters = SpeculationCounters()
    for text in ("", "<html>\n", "# TYPE x counter\nx 1\n", f"{ACCEPTED} many\n{ACCEPTED}{{ 1\n{DRAFTS} NaN\n"):
        assert counters.advance(text) == Speculation()
        assert counters.since_start.rate is None
        assert counters.since_start.length is None


def test_samples_may_have_labels_times_and_any_form_of_number() -> None:
    assert series_of('a{x="\u2028"} 1\na +Inf\r\na 2\r\n', "a") == {("a", '{x="\u2028"}'): 1, ("a", ""): 2}
    text = 'a 1\na{x="}"} 2 1700000000000\na{x="\\""} 3e2\nab 5\na_total 7\n a 9\n'
    assert series_of(text, "a") == {("a", ""): 1, ("a", '{x="}"}'): 2, ("a", '{x="\\""}'): 300}
