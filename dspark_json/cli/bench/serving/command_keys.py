"""A command as it may be shown: without the keys, tokens and passwords among its arguments."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN: Final = "…"
# api-key, api_key, HF_TOKEN, AWS_SECRET_ACCESS_KEY; not the plural, which counts tokens (--max-num-batched-tokens)
_NAME: Final = r"[\w.-]*(?:key|token|secret|password|passwd)"
_OPTION: Final = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_ASSIGNMENT: Final = re.compile(rf"((?:--?)?{_NAME}=)(.*)", re.IGNORECASE | re.DOTALL)
_MEMBER: Final = re.compile(rf'("{_NAME}"\s*:\s*")((?:[^"\\]|\\.)*)', re.IGNORECASE)  # of an argument that is JSON
_MENTION: Final = re.compile(_NAME, re.IGNORECASE)
_PLAIN: Final = re.compile(r"[\w@%+=:,./{}…-]+")


def without_keys(command: str) -> str:
    """The command, in which each key is an ellipsis: values of options and variables whose names end like a key's.

    An option may have several values: all up to the next argument that begins with ``--`` are hidden. ``command`` is
    one that can be split into arguments.
    """
    shown, _ = _hidden(shlex.split(command))
    return _joined(shown)


def keys_of(arguments: Sequence[str]) -> list[str]:
    """The keys among the arguments, longest first: what is to be taken out of what the command says."""
    _, found = _hidden(arguments)
    return sorted(filter(None, set(found)), key=len, reverse=True)


def _hidden(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments as they may be shown, and the keys that were in them."""
    shown: list[str] = []
    found: list[str] = []
    within = False
    for argument in arguments:
        if within and not argument.startswith("--"):
            found.append(argument)
            if shown[-1] != HIDDEN:
                shown.append(HIDDEN)
            continue
        within = _OPTION.fullmatch(argument) is not None
        assigned = _ASSIGNMENT.fullmatch(argument)
        if assigned is not None:
            found.append(assigned[2])
            shown.append(f"{assigned[1]}{HIDDEN}")
        else:
            shown.append(_inner(argument, found))
    return shown, found


def _inner(argument: str, found: list[str]) -> str:
    """An argument that may be JSON or a command itself (``sh -c``)."""
    if not _MENTION.search(argument):
        return argument
    members = [match[2] for match in _MEMBER.finditer(argument)]
    if members:
        found += members
        return _MEMBER.sub(rf"\g<1>{HIDDEN}", argument)
    try:
        words = shlex.split(argument)
    except ValueError:
        found.append(argument)
        return HIDDEN
    if len(words) < 2:
        return argument
    shown, inner = _hidden(words)
    found += inner
    return _joined(shown) if inner else argument


def _joined(arguments: Sequence[str]) -> str:
    return " ".join(one if _PLAIN.fullmatch(one) else shlex.quote(one) for one in arguments)
