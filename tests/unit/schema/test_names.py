"""Column names are what Delta and Spark take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dspark_json.schema.names import column_names


def test_what_delta_refuses_becomes_an_underscore() -> None:
    assert column_names(["a b", "x,;{}()\n\t=y", "größe", "a.b"]) == ["a_b", "x_________y", "größe", "a.b"]


def test_names_equal_but_for_case_are_numbered() -> None:
    assert column_names(["id", "Id", "ID", "id_2", "a b", "A_b"]) == ["id", "Id_2", "ID_3", "id_2_2", "a_b", "A_b_2"]


def test_exact_keeps_them() -> None:
    assert column_names(["a b", "A b"], "exact") == ["a b", "A b"]


@given(st.lists(st.text(alphabet="aA_2 (", max_size=4), unique=True, max_size=12))
def test_names_are_distinct_but_for_case(wire: list[str]) -> None:
    assert len({name.lower() for name in column_names(wire)}) == len(wire)
