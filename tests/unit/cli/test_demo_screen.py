"""What the demo shows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dspark_json.cli.demo.answers import TypedAnswers
from dspark_json.cli.demo.screen import Screen

if TYPE_CHECKING:
    import pytest

_WORD = "a value that is longer than a column"


def _shown(capfd: pytest.CaptureFixture[str]) -> list[str]:
    answers = [
        TypedAnswers("order", tuple(f"order_column_{i}" for i in range(6)), ((_WORD,) * 6,), {"ok": 1}),
        TypedAnswers("risk", ("score", "risk_level", "reasons"), ((_WORD,) * 3,), {"ok": 1}),
    ]
    with contextlib.closing(Screen(stderr=False)) as screen:
        screen.typed(answers)
    return capfd.readouterr().out.splitlines()


def test_tables_keep_their_borders_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    lines = _shown(capfd)
    top = next(line for line in lines if "┏" in line)
    assert (top.count("┏"), top.count("┓")) == (2, 2)
    for line in lines[lines.index(top) :]:
        assert line.rstrip()[-1] in "┓┃┩│┘"
        assert "…" not in line or len(line) <= 160


def test_tables_that_do_not_fit_side_by_side_stand_one_under_the_other(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark_json.cli.demo.screen._WIDTH", 100)
    tops = [line for line in _shown(capfd) if "┏" in line]
    assert [(top.count("┏"), top.count("┓")) for top in tops] == [(1, 1), (1, 1)]
