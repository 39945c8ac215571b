"""Texts that a reader on a GPU may have mixed up with their neighbours: what has to be looked at on the host.

libcudf puts the items of all lists of a column one behind the other, and each list writes where its own begin and end.
A record that has a list twice writes that twice, in no certain order, and the items that are left over then belong to a
list of a record behind it (``scatter_offsets`` of ``host_tree_algorithms.cu``). The record itself shows: its text has
more members than were seen. The one behind it may not: items that are no objects have no members. So what does not add
up is looked at here, before anything of its batch is believed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["has_list_once", "has_null_alone"]

_SPACE: Final = " \t\r\n"
_HAS_LIST: Final = object()  # stands for an object with a list in it


def has_null_alone(text: str) -> bool:
    """Whether a text is JSON in which no object has a name twice, once with null; such a null may be what counts.

    Most texts show it by having each name that is null once, however often others.
    """
    if "\\" not in text and all(_is_alone(before, text) for before in text.split("null")[:-1]):
        return True
    return _holds(text, _names_once)


def _is_alone(before: str, text: str) -> bool:
    """Whether the name that stands at the end of what is before a null is in the text once; true where none does."""
    head = before.rstrip(_SPACE)
    name = head[:-1].rstrip(_SPACE)
    if not (head.endswith(":") and name.endswith('"')):
        return True
    opening = name.rfind('"', 0, -1)
    return opening >= 0 and text.count(name[opening:]) == 1


def has_list_once(text: str | bytes) -> bool:
    """Whether a text is JSON in which no object has a name twice with a list behind it, or in what is behind it."""
    return _holds(text, _lists_once)


def _holds(text: str | bytes, hook: Callable[[Sequence[tuple[str, object]]], object]) -> bool:
    try:
        json.loads(text, object_pairs_hook=hook, parse_int=len, parse_float=len, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _names_once(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name twice")


def _lists_once(pairs: Sequence[tuple[str, object]]) -> object:
    names = [name for name, value in pairs if value is _HAS_LIST or isinstance(value, list)]
    if len(set(names)) < len(names):
        raise ValueError("a list twice")
    return _HAS_LIST if names else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
